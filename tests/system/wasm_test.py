#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The WebAssembly module under Node: the same bits as the native program, within a worker's memory.

COBORD_WASM is the folder of the built modules; without it they are built here, by scripts/build wasm."""
import json
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
COBORD = os.path.abspath(os.environ.get("COBORD", "build/cobord"))
MODULES = pathlib.Path(os.environ.get("COBORD_WASM", ROOT / "build-wasm"))
MODULE_BYTES_MAX = 1 << 20
MEMORY_MAX = 128 << 20
TOKENS = [(i * 7919 + 31) % 49000 for i in range(24)]


def run(*command, timeout=600):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=timeout, cwd=ROOT)


def must(*command):
    done = run(*command)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))[:200]}: exit {done.returncode}: {done.stderr[-500:]}")
    return done.stdout


def node(path, tokens, *options, module="cobord", node_options=()):
    """A run of the module: the finished process."""
    return run("node", *node_options, ROOT / "workers/logits.mjs", path, "--tokens", ",".join(map(str, tokens)),
               "--module", MODULES / f"{module}.wasm", *options)


def is_valid(module, *node_options):
    code = "process.stdout.write(String(WebAssembly.validate(require('fs').readFileSync(process.argv[1]))))"
    return must("node", *node_options, "-e", code, MODULES / f"{module}.wasm") == "true"


def relaxed_options():
    """What makes Node take relaxed SIMD: newer ones do so unasked."""
    return [] if is_valid("cobord-relaxed") else ["--experimental-wasm-relaxed-simd"]


def node_json(path, tokens, *options, **how):
    done = node(path, tokens, *options, **how)
    if done.returncode:
        raise AssertionError(f"logits.mjs {path} {options}: {done.stderr[-500:]}")
    return json.loads(done.stdout)


def native(model, tokens, *options):
    ids = ",".join(map(str, tokens))
    return json.loads(must(COBORD, "logits", model, "--tokens", ids, "--json", "--hash", *options))


def single(number):
    """The float32 next to a number that was printed with nine digits, or with more."""
    return struct.pack("<f", number)


def model_paths():
    return {m["name"]: m["path"] for m in json.loads(must(COBORD, "list", "--json"))["models"]}


class WasmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if "COBORD_WASM" not in os.environ:
            must(ROOT / "scripts/build", "wasm", 2)
        cls.paths = model_paths()

    def test_modules_have_no_imports_and_are_small(self):
        served = [MODULES / "cobord.wasm", MODULES / "cobord-relaxed.wasm"]
        out = must(ROOT / "scripts/wasm-imports", *served, MODULES / "rooms.wasm")
        self.assertEqual(out.count(" 0 imports"), 3, out)
        for module in served:
            self.assertLess(module.stat().st_size, MODULE_BYTES_MAX)

    def test_only_the_relaxed_module_has_relaxed_instructions(self):
        if is_valid("cobord-relaxed"):
            self.skipTest("this Node takes relaxed SIMD everywhere")
        self.assertTrue(is_valid("cobord"))
        self.assertTrue(is_valid("cobord-relaxed", *relaxed_options()))

    def test_kernels_give_the_reference_bits(self):
        check = ROOT / "tests/wasm/kernels_check.mjs"
        out = must("node", check, MODULES / "kernels_check.wasm")
        self.assertRegex(out, r"\Asimd128: [1-9]\d{3,} cases, 0 faults\n\Z")
        out = must("node", *relaxed_options(), check, MODULES / "kernels_check-relaxed.wasm")
        self.assertRegex(out, r"\Asimd128: [1-9]\d{3,} cases, 0 faults\nrelaxed: [1-9]\d{3,} cases, 0 faults\n\Z")

    def check_memory(self, result, allowed):
        self.assertLessEqual(result["counters"]["memory_bytes"], allowed)
        self.assertLess(result["counters"]["memory_bytes"], MEMORY_MAX)

    def test_smollm2_gives_the_native_logits(self):
        path, want = self.paths["smollm2-135m"], native("smollm2-135m", TOKENS, "--top", 5)
        got = node_json(path, TOKENS, "--top", 5)
        self.assertEqual(got["xxh3"], want["xxh3"])
        self.check_memory(got, 96 << 20)
        self.assertEqual(got["counters"]["phase_loads"], 4 * 30)
        self.assertEqual(got["counters"]["phase_evictions"], 4 * 30)
        self.assertEqual(len(got["positions"]), len(TOKENS))
        for mine, other in zip(got["positions"], want["positions"]):
            self.assertEqual([(i, single(x)) for i, x in mine["top"]], [(i, single(x)) for i, x in other["top"]])
            self.assertAlmostEqual(mine["logsumexp"], other["logsumexp"], places=9)

    def test_no_cut_and_no_kernel_changes_a_bit(self):
        path, want = self.paths["smollm2-135m"], native("smollm2-135m", TOKENS)["xxh3"]
        for memory, options in [(40, ("--stations", 3, "--shards", 5, "--chunk", 7)), (64, ("--isa", "scalar")),
                                (112, ("--stations", 1, "--shards", 1, "--logit-rows", 6)), (32, ("--chunk", 1))]:
            with self.subTest(options):
                got = node_json(path, TOKENS, "--memory", f"{memory}M", *options)
                self.assertEqual(got["xxh3"], want)
                self.check_memory(got, memory << 20)

    def test_relaxed_module_gives_the_native_logits(self):
        relaxed = {"module": "cobord-relaxed", "node_options": relaxed_options()}
        for model in ("smollm2-135m", "qwen2.5-coder-0.5b"):
            with self.subTest(model):
                got = node_json(self.paths[model], TOKENS[:8], "--memory", "112M", "--isa", "relaxed", **relaxed)
                self.assertEqual(got["plan"]["isa"], "relaxed")
                self.assertEqual(got["xxh3"], native(model, TOKENS[:8])["xxh3"])
                self.check_memory(got, 112 << 20)
        self.refused(node(self.paths["smollm2-135m"], [1], "--isa", "relaxed"), 1, "instruction set")

    def test_quantized_attention_cache(self):
        path, option = self.paths["smollm2-135m"], ("--cache-type", "q8_0")
        self.assertEqual(node_json(path, TOKENS, *option)["xxh3"], native("smollm2-135m", TOKENS, *option)["xxh3"])
        self.assertNotEqual(native("smollm2-135m", TOKENS, *option)["xxh3"], native("smollm2-135m", TOKENS)["xxh3"])

    def test_every_zoo_model_within_a_worker(self):
        for model in ("qwen2.5-coder-0.5b", "gemma3-270m", "qwen2.5-coder-1.5b"):
            with self.subTest(model):
                got = node_json(self.paths[model], TOKENS[:3], "--memory", "112M")
                self.assertEqual(got["xxh3"], native(model, TOKENS[:3])["xxh3"])
                self.check_memory(got, 112 << 20)

    def test_greedy_text_continues_its_own_attention_cache(self):
        path = self.paths["smollm2-135m"]
        got = node_json(path, TOKENS[:8], "--generate", 6)
        again = native("smollm2-135m", TOKENS[:8] + got["ids"], "--top", 1)
        best = [p["top"][0][0] for p in again["positions"]]
        self.assertEqual(got["ids"], best[7:13])

    def test_refusals_are_one_clear_line(self):
        path = self.paths["smollm2-135m"]
        with tempfile.TemporaryDirectory() as folder, open(path, "rb") as file:
            whole = file.read()
            cases = {"html": b"<!DOCTYPE html><html></html>", "empty": b"", "short": whole[:5000], "header": whole[:9],
                     "cut": whole[:-1], "version": whole[:4] + b"\x09\0" + whole[6:70000],
                     "length": whole[:6] + b"\xff\xff\xff\xff" + whole[10:70000]}
            for name, data in cases.items():
                with self.subTest(name):
                    bad = pathlib.Path(folder, name)
                    bad.write_bytes(data)
                    self.refused(node(bad, [1]), 1)
        self.refused(node(path, [1], "--memory", "6M"), 1, "does not fit", "MiB")
        self.refused(node(path, [1], "--memory", "4G"), 1, "memory")
        self.refused(node(path, [49152]), 1, "49152")
        self.refused(node(path, TOKENS, "--context", "8"), 1, "context")
        self.refused(node(path, [1], "--stations", "999"), 1, "stations")
        self.refused(node(path, [1], "--isa", "avx2"), 2, "simd128")

    def refused(self, done, code, *words):
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, r"\Alogits\.mjs: [^\n]+\n\Z")
        for word in words:
            self.assertIn(word, done.stderr)


if __name__ == "__main__":
    unittest.main()
