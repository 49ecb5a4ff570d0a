#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""confined.py PROFILE USER COMMAND...: runs a command as that user (a number), with no capability, no way to a new
privilege, and the system calls of a profile in containers' form (deploy/docker/seccomp.json). What the profile refuses
kills the process here, so that a call that is missing there does not go unnoticed. x86-64 only."""
import ctypes
import json
import os
import re
import struct
import sys

NUMBERS = ["/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"]
LOAD, EQUAL, AND, RETURN = 0x20, 0x15, 0x54, 0x06  # BPF: ld [k], jeq, and, ret
ALLOW, KILL, FAIL = 0x7fff0000, 0x80000000, 0x00050000
X86_64, AT_NUMBER, AT_ARCHITECTURE, AT_ARGUMENTS = 0xc000003e, 0, 4, 16
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, FILTER = 38, 22, 2


def numbers():
    with open(next(p for p in NUMBERS if os.path.exists(p))) as f:
        return {name: int(n) for name, n in re.findall(r"#define __NR_(\w+) (\d+)", f.read())}


def rule(entry, number):
    """BPF for one name: when it is that call and its argument is as the entry says, the entry's action."""
    action = {"SCMP_ACT_ALLOW": ALLOW, "SCMP_ACT_ERRNO": FAIL | entry.get("errnoRet", 1)}[entry["action"]]
    tests = []
    for a in entry.get("args", []):
        tests.append((LOAD, AT_ARGUMENTS + 8 * a["index"]))
        if a["op"] == "SCMP_CMP_MASKED_EQ":
            tests += [(AND, a["value"]), (EQUAL, a["valueTwo"])]
        else:
            assert a["op"] == "SCMP_CMP_EQ", a
            tests.append((EQUAL, a["value"]))
    code = [(EQUAL, number), *tests, (RETURN, action)]
    out = []
    for i, (what, k) in enumerate(code):
        out.append(struct.pack("=HBBI", what, 0, len(code) - 1 - i if what == EQUAL else 0, k))
    return b"".join([struct.pack("=HBBI", LOAD, 0, 0, AT_NUMBER), *out])


def program(profile):
    known = numbers()
    code = struct.pack("=HBBI", LOAD, 0, 0, AT_ARCHITECTURE) + struct.pack("=HBBI", EQUAL, 1, 0, X86_64)
    code += struct.pack("=HBBI", RETURN, 0, 0, KILL)
    for entry in profile["syscalls"]:
        for name in entry["names"]:
            if name in known:  # the others are another machine's
                code += rule(entry, known[name])
    return code + struct.pack("=HBBI", RETURN, 0, 0, KILL)


def confine(code):
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(code, len(code))

    class Program(ctypes.Structure):
        _fields_ = [("count", ctypes.c_ushort), ("code", ctypes.c_void_p)]
    filter_ = Program(len(code) // 8, ctypes.addressof(buffer))
    for arguments in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, FILTER, ctypes.byref(filter_), 0, 0)):
        if libc.prctl(*arguments) != 0:
            sys.exit(f"confined.py: prctl {arguments[0]}: {os.strerror(ctypes.get_errno())}")


def main():
    path, user, *command = sys.argv[1:]
    with open(path) as f:
        code = program(json.load(f))
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(int(user))
        os.setuid(int(user))
    confine(code)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
