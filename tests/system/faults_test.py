# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a file is said in one line, by every verb that reads it: cut, flipped, stale, foreign, missing."""
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "golden"))
from support import COBORD, Checks, logits, models_folder, must, run  # noqa: E402


def damaged_knots(checks, folder):
    good = folder / "good.knot"
    must("synth", "--shape", "test", "-o", good)
    must("verify", good)
    whole = good.read_bytes()
    bad = folder / "bad.knot"

    bad.write_bytes(whole[:-1])
    for verb in (["verify", bad], ["run", bad, "hi"], ["logits", bad, "--tokens", "1"], ["info", bad]):
        checks.refused(run(*verb), 1, "bad.knot")

    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0x10
    bad.write_bytes(flipped)
    checks.refused(run("verify", bad), 1, "checksum")
    checks.refused(run("run", bad, "hi"), 1, "checksum")

    must("verify", good)  # a file that was found good is checked again when it changed
    time.sleep(0.02)
    good.write_bytes(flipped)
    checks.refused(run("run", good, "hi"), 1, "checksum")


def stale_knots(checks, folder, gguf):
    fresh, stale, repaired = folder / "v1.knot", folder / "stale.knot", folder / "repaired.knot"
    must("encode", gguf, "-o", fresh, "--knot-version", 1)
    whole = fresh.read_bytes()
    length = struct.unpack_from("<I", whole, 6)[0]
    text = whole[10:10 + length]
    start = ((10 + length + 3) & ~3) + 1
    padded = text + b" " * ((-(10 + length)) % 4)
    # the early encoder counted the padding, and its marker lies right behind: one byte early
    while (10 + len(padded)) % 4 != 3:
        padded += b" "
    stale.write_bytes(b"KNOT\x01\x00" + struct.pack("<I", len(padded)) + padded + b"\x40" + whole[start:])
    for verb in (["verify", stale], ["run", stale, "hi"], ["logits", stale, "--tokens", "1"]):
        checks.refused(run(*verb), 1, "stale.knot", "repair")
    must("repair", stale, "-o", repaired)
    must("verify", repaired)
    checks.that(logits(repaired, [1, 2, 3], "--hash")["xxh3"] == logits(fresh, [1, 2, 3], "--hash")["xxh3"],
                "the repaired knot gives other numbers")


def versions_agree(checks, gguf):
    """The same model as version 1 (rows) and version 2 (x16.1) gives the same bits."""
    with tempfile.TemporaryDirectory() as folder:
        one, two = os.path.join(folder, "1.knot"), os.path.join(folder, "2.knot")
        must("encode", gguf, "-o", one, "--knot-version", 1)
        must("encode", gguf, "-o", two)
        checks.that(logits(one, [1, 2, 3], "--hash")["xxh3"] == logits(two, [1, 2, 3], "--hash")["xxh3"],
                    "versions 1 and 2 give different numbers")
        checks.refused(run("run", one, "hi"), 1, "tokenizer")


FOREIGN = {"page.gguf": (b"<!DOCTYPE html><html><body>Not found</body></html>", "HTML"),
           "pointer.gguf": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "git-lfs"),
           "archive.gguf": (b"PK\x03\x04" + bytes(60), "zip"),
           "old.gguf": (b"tjgg" + bytes(60), "ggjt"),
           "cut.gguf": (b"GGUF\x03\x00\x00\x00", ""),
           "empty.gguf": (b"", "")}


def foreign_files(checks, folder):
    for name, (content, word) in FOREIGN.items():
        path = folder / name
        path.write_bytes(content)
        out = folder / "out.knot"
        checks.refused(run("encode", path, "-o", out), 1, name)
        done = run("run", path, "hi")
        checks.refused(done, 1, name)
        if word:
            checks.that(word.lower() in done.stderr.decode().lower(),
                        f"{name}: no {word!r} in {done.stderr.decode()!r}")
        checks.that(not out.exists(), f"{name}: a half file under the final name")
    checks.refused(run("run", folder / "none.knot", "hi"), 1, "none.knot")
    checks.refused(run("info", folder), 1, folder.name)
    checks.refused(run("run", "/dev/null", "hi"), 1, "/dev/null")
    fifo = folder / "fifo"
    os.mkfifo(fifo)
    checks.refused(run("info", fifo, timeout=20), 1, "fifo")


def interruptions(checks, folder, gguf):
    out = folder / "stopped.knot"
    process = subprocess.Popen([COBORD, "encode", gguf, "-o", out], stderr=subprocess.PIPE)
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    if process.returncode:  # it was still at work
        checks.that(process.returncode in (130, -2), f"Ctrl-C: exit {process.returncode}")
        left = [p.name for p in folder.iterdir() if "stopped" in p.name]
        checks.that(not left, f"Ctrl-C during encode leaves {left}")
    small = subprocess.run(["bash", "-c", f"ulimit -f 2000; exec {COBORD} encode {gguf} -o {folder}/full.knot"],
                           capture_output=True, timeout=120)
    checks.that(small.returncode == 1 and small.stderr.startswith(b"cobord: ") and b"full.knot" in small.stderr,
                f"no space: exit {small.returncode}: {small.stderr[-200:]}")
    checks.that(not [p for p in folder.iterdir() if "full" in p.name], "no space: something is left behind")


def lying_knots(checks, folder):
    """What the header says of the numbers is believed, so it has to be known; ids come from checked bytes only."""
    good, bad = folder / "honest.knot", folder / "lying.knot"
    must("synth", "--shape", "test", "-o", good)
    whole = good.read_bytes()
    bad.write_bytes(whole.replace(b'"numerics":1', b'"numerics":2', 1))
    checks.refused(run("run", bad, "hi"), 1, "numerics")
    length = struct.unpack_from("<I", whole, 6)[0]
    section = json.loads(whole[10:10 + length])["tokenizer"]
    flipped = bytearray(whole)
    payload = (((10 + length + 3) & ~3) + 1 + 4095) & ~4095
    flipped[payload + section["offset"] + section["length"] - 1] ^= 1
    bad.write_bytes(flipped)
    checks.refused(run("tokenize", bad, stdin=b"hi"), 1, "checksum")


def unusable_inputs(checks, folder, gguf):
    """A download is never replaced by its knot, and a model that no verb could run is refused before it is written."""
    whole = gguf.read_bytes()
    name = b"llama.attention.head_count_kv"
    at = whole.index(name) + len(name) + 4
    odd, out = folder / "odd.gguf", folder / "odd.knot"
    odd.write_bytes(whole[:at] + struct.pack("<I", 2) + whole[at + 4:])
    checks.refused(run("encode", odd, "-o", out), 1, "odd.gguf", "9 attention heads")
    checks.that(not out.exists(), "a knot of a model that cannot run")
    checks.refused(run("encode", odd, "-o", odd), 2, "odd.gguf")
    checks.that(odd.read_bytes()[:4] == b"GGUF", "encode replaced its own input")


def closed_streams(checks, folder):
    """A closed standard stream is not the next file that is opened."""
    knot = folder / "closed.knot"
    must("synth", "--shape", "test", "-o", knot)
    for verb, close in ((f"run {knot} -n 1", "<&-"), (f"tokenize {knot}", "<&-"), (f"run {knot} hi -n 1", ">&-"),
                        ("help", ">/dev/full"), ("--version", ">&-")):
        done = subprocess.run(["bash", "-c", f"exec {COBORD} {verb} {close}"], capture_output=True, timeout=60)
        checks.that(done.returncode == 1 and b"cobord: " in done.stderr, f"{verb} {close}: exit {done.returncode}")


def wrong_usage(checks):
    for args, words in ((["run"], ["MODEL"]), (["logits", "smollm2-135m"], ["--tokens"]),
                        (["logits", "smollm2-135m", "--tokens", "1,x"], ["--tokens"]),
                        (["logits", "smollm2-135m", "--tokens", "1", "--memory", "lots"], ["--memory", "lots"]),
                        (["run", "smollm2-135m", "hi", "--no-such-flag"], ["--no-such-flag"]),
                        (["run", "smollm2-135m", "hi", "--ranges", "0-5"], ["ranges"]),
                        (["run", "smollm2-135m", "hi", "--logit-bias", "x:1"], ["--logit-bias"]),
                        (["run", "smollm2-135m", "hi", "--logit-bias", "-18446744073709551615:1"], ["--logit-bias"])):
        checks.refused(run(*args), 2, *words)
    checks.refused(run("logits", "smollm2-135m", "--tokens", "49152"), 1, "49152")
    checks.refused(run("logits", "smollm2-135m", "--tokens", "1", "--stations", "300"), 1, "stations")
    checks.refused(run("run", "smollm2-135m", "hi", "--logit-bias", "999999:1"), 1, "999999")
    checks.refused(run("run", "no-such-model", "hi"), 1, "no-such-model")


def main():
    checks = Checks()
    space = os.environ.get("COBORD_TEST_SPACE")
    with tempfile.TemporaryDirectory(dir=space) as name:
        folder = pathlib.Path(name)
        must("pull", "smollm2-135m", "--keep")
        gguf = models_folder() / "smollm2-135m.gguf"
        damaged_knots(checks, folder)
        foreign_files(checks, folder)
        stale_knots(checks, folder, gguf)
        versions_agree(checks, gguf)
        interruptions(checks, folder, gguf)
        lying_knots(checks, folder)
        unusable_inputs(checks, folder, gguf)
        closed_streams(checks, folder)
    wrong_usage(checks)
    return checks.end()


sys.exit(main())
