#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program for 64-bit ARM under qemu-aarch64: the native logits, bit for bit, and the right choice of kernels.

Everything is skipped where scripts/arm64-run says that the cross compiler, qemu or the libraries are missing."""
import json
import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
COBORD = os.path.abspath(os.environ.get("COBORD", "build/cobord"))
RUN = ROOT / "scripts/arm64-run"
MODEL = "smollm2-135m"
TOKENS = "1,20,300,4000"
NOT_HERE = 77

# qemu's names of processors and what --isa auto must choose there.
CPUS = {"cortex-a72": "scalar", "cortex-a76": "neon", "max": "i8mm"}


def run(*command, timeout=900):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=timeout, cwd=ROOT)


def logits(*program):
    def ask(*options):
        done = run(*program, "logits", MODEL, "--tokens", TOKENS, "--top", "3", "--hash", "--json", *options)
        if done.returncode:
            raise AssertionError(f"logits {options}: exit {done.returncode}: {done.stderr[-500:]}")
        return json.loads(done.stdout)
    return ask


native = logits(COBORD)


def arm(cpu):
    return logits(RUN, "-cpu", cpu, "cobord")


class Arm64Test(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        built = run(RUN, "--build", timeout=1800)
        if built.returncode == NOT_HERE:
            raise unittest.SkipTest(built.stderr.strip())
        if built.returncode:
            raise AssertionError(f"arm64-run --build: {built.stdout[-2000:]}{built.stderr[-2000:]}")
        cls.want = native()

    def test_it_is_hardened(self):
        done = run(sys.executable, ROOT / "tests/tidy/hardening.py", "check", ROOT / "build-arm64", "program")
        self.assertEqual(done.returncode, 0, done.stdout)

    def same(self, got, want, isa):
        self.assertEqual(got["plan"]["isa"], isa)
        self.assertEqual(got["xxh3"], want["xxh3"])
        self.assertEqual([p["top"] for p in got["positions"]], [p["top"] for p in want["positions"]])

    def test_every_kind_of_processor_gives_the_native_logits(self):
        self.assertEqual(len(self.want["positions"]), 4)
        for cpu, isa in CPUS.items():
            with self.subTest(cpu):
                self.same(arm(cpu)(), self.want, isa)

    def test_forced_kernels_and_cuts_give_the_native_logits(self):
        for isa, options in [("neon", ()), ("i8mm", ("--chunk", "3")),
                             ("neon", ("--stations", "3", "--shards", "5", "--chunk", "1"))]:
            with self.subTest(isa + " ".join(options)):
                self.same(arm("max")("--isa", isa, *options), self.want, isa)

    def test_quantized_attention_cache(self):
        option = ("--cache-type", "q8_0")
        want = native(*option)
        self.assertNotEqual(want["xxh3"], self.want["xxh3"])
        self.same(arm("cortex-a76")(*option), want, "neon")

    def test_kernels_that_the_processor_lacks_are_refused(self):
        for cpu, isa in [("cortex-a72", "neon"), ("cortex-a76", "i8mm"), ("max", "avx2")]:
            with self.subTest(cpu + " " + isa):
                done = run(RUN, "-cpu", cpu, "cobord", "logits", MODEL, "--tokens", "1", "--isa", isa)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertEqual(done.stdout, "")
                self.assertIn(isa, done.stderr)


if __name__ == "__main__":
    unittest.main()
