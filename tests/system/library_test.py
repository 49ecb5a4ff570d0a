#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libcobord.a and libcobord.so.0: examples/generate.c is compiled as C99 and as C++, by gcc and clang, linked with
both, run, and says what `cobord run` says; nothing but cobord_* can be seen in them; they need nothing but libc, and of
it nothing that ends a process, writes to its streams or touches its signals."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COBORD = os.environ["COBORD"]
BUILD = os.path.dirname(COBORD)
EXAMPLE = os.path.join(ROOT, "examples", "generate.c")
MODEL, QUESTION = "smollm2-135m", "What is 2 + 2?"

C = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]
CXX = ["-x", "c++", "-std=c++11", "-Wall", "-Wextra", "-Werror"]
COMPILERS = [("gcc", C), ("clang-19", C), ("cc", C), ("g++", CXX), ("clang++-19", CXX)]

FUNCTIONS = {
    "cobord_version", "cobord_error_text", "cobord_last_error", "cobord_options_init", "cobord_open", "cobord_close",
    "cobord_get_info", "cobord_tokenize", "cobord_detokenize", "cobord_apply_chat", "cobord_settings_init",
    "cobord_generate", "cobord_chat", "cobord_cancel"}
NOT_A_GUESTS = {
    "exit", "_exit", "_Exit", "quick_exit", "abort", "atexit", "on_exit", "signal", "sigaction", "raise", "kill",
    "fork", "vfork", "execve", "system", "popen", "setenv", "putenv", "unsetenv", "setlocale", "chdir", "umask",
    "printf", "puts", "putchar", "perror", "stdout", "stderr", "stdin", "__assert_fail"}


def run(*words, **more):
    return subprocess.run(words, check=True, capture_output=True, text=True, **more).stdout


def symbols(*options):
    """Names that nm lists, without versions."""
    lines = run("nm", *options).splitlines()
    return {line.split()[-1].split("@")[0] for line in lines if re.match(r"[0-9a-f ]{16} ", line)}


@unittest.skipUnless(os.path.exists(os.path.join(BUILD, "libcobord.a")), "a build with sanitizers has no library")
class Library(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.archive, cls.shared = os.path.join(BUILD, "libcobord.a"), os.path.join(BUILD, "libcobord.so.0")
        said = run(COBORD, "run", MODEL, QUESTION, "--temperature", "0", "--max-tokens", "200")
        cls.answer = said.rstrip("\n")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def compile(self, compiler, flags, *libraries):
        program = os.path.join(self.folder, "generate")
        after = ["-x", "none"] if "-x" in flags and libraries[0] == self.archive else []
        run(compiler, *flags, "-I", os.path.join(ROOT, "include"), EXAMPLE, *after, *libraries, "-o", program)
        return program

    def check_answer(self, program):
        said = run(program, MODEL, QUESTION, env={**os.environ, "LD_LIBRARY_PATH": BUILD})
        self.assertRegex(said, r"\n\[[0-9]+ tokens in [0-9.]+ s\]\n$")
        self.assertEqual(said[:said.rindex("\n[")], self.answer)

    def test_example(self):
        with open(EXAMPLE, encoding="utf-8") as file:
            self.assertLessEqual(len(file.readlines()), 42)
        found = [c for c in COMPILERS if shutil.which(c[0])]
        self.assertTrue(found)
        for compiler, flags in found:
            for libraries in ([self.archive, "-pthread"], ["-L", BUILD, "-lcobord"]):
                with self.subTest(compiler, libraries=libraries):
                    self.check_answer(self.compile(compiler, flags, *libraries))

    def test_example_says_what_is_wrong(self):
        program = self.compile("cc", C, self.archive, "-pthread")
        done = subprocess.run([program, "no-such-model", "x"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("no-such-model", done.stderr)

    def test_header_alone(self):
        """Every function that the header declares is there, and twice the header is once."""
        with open(os.path.join(ROOT, "include", "cobord", "cobord.h"), encoding="utf-8") as file:
            declared = set(re.findall(r"^COBORD_API [^;(]*?(cobord_\w+)\(", file.read(), re.M))
        self.assertEqual(declared, FUNCTIONS)
        source = os.path.join(self.folder, "twice.c")
        with open(source, "w", encoding="utf-8") as file:
            file.write("#include <cobord/cobord.h>\n#include <cobord/cobord.h>\nint nothing;\n")
        for compiler, flags in COMPILERS:
            if shutil.which(compiler):
                run(compiler, *flags, "-fsyntax-only", "-I", os.path.join(ROOT, "include"), source)

    def test_symbols(self):
        self.assertEqual(symbols("-D", "--defined-only", self.shared) - {"COBORD_0"}, FUNCTIONS)
        self.assertEqual(symbols("-g", "--defined-only", self.archive), FUNCTIONS)

    def test_is_a_good_guest(self):
        for words in (("-D", "--undefined-only", self.shared), ("-g", "--undefined-only", self.archive)):
            needed = symbols(*words)
            self.assertIn("mmap64" if "mmap64" in needed else "mmap", needed)
            self.assertEqual(needed & NOT_A_GUESTS, set())

    def test_needs_nothing_but_libc(self):
        dynamic = run("readelf", "-d", self.shared)
        needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic))
        self.assertLessEqual({re.sub(r"\.so.*", "", n) for n in needed},
                             {"libc", "libm", "libpthread", "ld-linux-x86-64", "ld-linux-aarch64", "libgcc_s"})
        self.assertIn("[libcobord.so.0]", dynamic)

    def test_version(self):
        with open(os.path.join(ROOT, "include", "cobord", "cobord.h"), encoding="utf-8") as file:
            header = file.read()
        numbers = [re.search(rf"COBORD_VERSION_{n} (\d+)", header).group(1) for n in ("MAJOR", "MINOR", "PATCH")]
        self.assertEqual(re.search(r'COBORD_VERSION "(.+)"', header).group(1), ".".join(numbers))
        self.assertIn(".".join(numbers), run(COBORD, "--version"))


if __name__ == "__main__":
    unittest.main()
