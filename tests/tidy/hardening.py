#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads from the ELF files of a build that they are hardened: what an attacker who found a fault in us would meet.

    hardening.py check BUILD [program]  the program, the library (without that word), objects; a line a fault
    hardening.py selftest               programs that lack one property each are found out

A property that leaves no trace in an ELF file (probing of large stack frames) is read from compile_commands.json."""
import glob
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

from tidy import ROOMS

FORTIFIED_MIN = 2 # functions of libc with a check of sizes in them that each file calls: snprintf and memcpy
# Property of each object by machine: (name of the machine, words of the note, flag of the compiler).
BRANCHES = [("X86-64", ("IBT", "SHSTK"), "-fcf-protection=full"),
            ("AArch64", ("BTI", "PAC"), "-mbranch-protection=standard")]
FLAGS = ("-fstack-protector-strong", "-fstack-clash-protection", "-D_FORTIFY_SOURCE=", "-Wformat-security")


def readelf(option, path):
    return subprocess.run(["readelf", "-W", option, path], capture_output=True, text=True, check=True).stdout


def is_elf(path):
    with open(path, "rb") as f:
        return f.read(4) == b"\x7fELF"


def segment_faults(path):
    """An executable stack, code that can be written, and tables of addresses that stay writable."""
    segments = re.findall(r"^\s+([A-Z_]+)\s+(?:0x\w+\s+){5}([R ][W ][E ])", readelf("-l", path), re.M)
    flags = dict(segments)
    if "E" in flags.get("GNU_STACK", "RWE"):
        yield "the stack can be executed"
    if any(kind == "LOAD" and "W" in how and "E" in how for kind, how in segments):
        yield "a segment can be both written and executed"
    if "GNU_RELRO" not in flags:
        yield "relocated data stays writable (-z relro)"


def dynamic_faults(path, is_program):
    text = readelf("-d", path)
    flags = " ".join(re.findall(r"\(FLAGS(?:_1)?\)\s+(.*)", text))
    if not re.search(r"\bNOW\b|BIND_NOW", flags):
        yield "functions are bound when they are called first (-z now)"
    if is_program and ("DYN" not in readelf("-h", path) or "PIE" not in flags):
        yield "the program has a fixed place in memory (-pie)"
    for word, what in (("(RPATH)", "RPATH"), ("(RUNPATH)", "RUNPATH"), ("TEXTREL", "TEXTREL")):
        if word in text:
            yield f"has {what}"


def call_faults(path):
    called = set(re.findall(r"UND (\w+)", readelf("--dyn-syms", path)))
    if "__stack_chk_fail" not in called:
        yield "stacks have no guard (-fstack-protector-strong)"
    fortified = [c for c in called if re.fullmatch(r"__\w+_chk", c)]
    if len(fortified) < FORTIFIED_MIN:
        yield f"{len(fortified)} calls with a check of sizes, not {FORTIFIED_MIN} (-D_FORTIFY_SOURCE)"


def elf_faults(path, is_program):
    if not is_elf(path):
        yield "is no ELF file"
        return
    yield from segment_faults(path)
    yield from dynamic_faults(path, is_program)
    yield from call_faults(path)


def branch_faults(archive):
    """Objects whose functions may be entered anywhere, or whose return addresses nothing guards."""
    head = readelf("-h", archive)
    for machine, words, flag in BRANCHES:
        if machine not in head:
            continue
        for part in re.split(r"^File: ", readelf("-n", archive), flags=re.M)[1:]:
            found = " ".join(re.findall(r"(?:x86|AArch64) feature: (.*)", part))
            if any(word not in found for word in words):
                yield f"{part.split()[0]}: no note of {' and '.join(words)} ({flag})"
        return
    yield "is for a machine that this test does not know"


def flag_faults(build):
    """Files of ours and of libraries that we compile without one of the flags."""
    with open(os.path.join(build, "compile_commands.json")) as f:
        commands = json.load(f)
    seen = 0
    for entry in commands:
        if not re.search(r"/src/(%s)/\w+\.c$|/yyjson\.c$" % "|".join(ROOMS), entry["file"]):
            continue
        seen += 1
        for flag in FLAGS:
            if flag not in entry["command"] and not (flag[:2] == "-W" and "yyjson" in entry["file"]):
                yield f"{os.path.basename(entry['file'])}: compiled without {flag}"
    if not seen:
        yield "no file of ours is in compile_commands.json"


def check(build, program_only=False):
    faults = []
    files = [(p, True) for p in [os.path.join(build, "cobord")] if os.path.exists(p)]
    if not program_only:
        files += [(p, False) for p in glob.glob(os.path.join(build, "libcobord.so.*.*"))]
    for path, is_program in files:
        faults += [f"{path}: {fault}" for fault in elf_faults(path, is_program)]
    archives = sorted(glob.glob(os.path.join(build, "libcobord_*_archive.a")))
    for path in archives:
        faults += [f"{path}: {fault}" for fault in branch_faults(path)]
    faults += [f"{build}: {fault}" for fault in flag_faults(build)]
    if not files or not archives:
        faults.append(f"{build}: there is no program, or no archive of a room: nothing was checked")
    return faults, f"{len(files)} files and {len(archives)} archives"


PROGRAM = r"""
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    char text[64], *more = malloc((size_t)argc * 3);
    memcpy(text, argv[0], (size_t)argc);
    snprintf(more, (size_t)argc * 5, "%s", argv[0]);
    strcat(text, argv[0]);
    if (argc > 5) fprintf(stderr, "%s", text);
    printf("%s %s\n", text, more);
}
"""
GOOD = ["-O2", "-fPIE", "-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2", "-pie",
        "-Wl,-z,relro,-z,now,-z,noexecstack"]
BAD = {  # what is added, and the word of the one fault that is to be found
    "-no-pie": "-pie", "-Wl,-z,lazy": "-z now", "-Wl,-z,norelro": "-z relro", "-Wl,-z,execstack": "executed",
    "-fno-stack-protector": "guard", "-U_FORTIFY_SOURCE": "FORTIFY", "-Wl,-rpath,/tmp": "PATH"}


def open_segments(path):
    """Makes each loaded segment of a 64-bit ELF file one that is written and executed: no linker wants to."""
    with open(path, "r+b") as f:
        data = bytearray(f.read())
        first, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
        for at in range(first, first + size * count, size):
            if struct.unpack_from("<I", data, at)[0] == 1:
                struct.pack_into("<I", data, at + 4, 7)
        f.seek(0)
        f.write(data)


def selftest():
    cc = os.environ.get("CC", "cc")
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "x.c"), os.path.join(folder, "x")
        with open(source, "w") as f:
            f.write(PROGRAM)

        def faults(*more):
            subprocess.run([cc, "-w", *GOOD, *more, source, "-o", program], check=True, capture_output=True)
            return list(elf_faults(program, True))
        wrong = faults()
        assert not wrong, f"a hardened program is not taken for one: {wrong}"
        for flag, word in BAD.items():
            found = faults(flag)
            assert any(word in fault for fault in found), f"{flag}: not found out: {found}"
            assert len(found) == 1, f"{flag}: {found}"
        faults()
        open_segments(program)
        assert list(elf_faults(program, True)) == ["a segment can be both written and executed"]
        archive = os.path.join(folder, "x.a")
        for flags, count in ((["-fcf-protection=none"], 1), (["-fcf-protection=full"], 0)):
            subprocess.run([cc, "-w", "-c", "-O2", *flags, source, "-o", program + ".o"], check=True)
            subprocess.run(["ar", "rc", archive, program + ".o"], check=True)
            assert len(list(branch_faults(archive))) == count, (flags, list(branch_faults(archive)))
    print(f"{len(BAD) + 4} programs are what they are taken for")


def main(arguments):
    if arguments[:1] == ["selftest"]:
        return selftest()
    if arguments[:1] != ["check"] or len(arguments) not in (2, 3) or arguments[2:] not in ([], ["program"]):
        sys.exit(__doc__)
    faults, what = check(arguments[1], len(arguments) == 3)
    for fault in faults[:50]:
        print(fault)
    print(f"{what}: {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
