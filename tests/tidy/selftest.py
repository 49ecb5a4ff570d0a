#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows that each check of tidy.py fails on a tree with that fault, and passes on the same tree without it."""
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tidy

SPDX = "/* SPDX-License-Identifier: Apache-2.0 */\n"
CC = os.environ.get("CC", "cc")


def header(room, stem, body="int %s_get(void);\n"):
    guard = f"COBORD_{room}_{stem}_H".upper()
    return f"{SPDX}#ifndef {guard}\n#define {guard}\n{body % stem if '%s' in body else body}#endif\n"


class Tidy(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = self.folder.name

    def tearDown(self):
        self.folder.cleanup()

    def write(self, path, text):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as f:
            f.write(text)

    def faults(self, check, *arguments):
        return [text for _, _, text in check(self.root, *arguments)]

    def expect(self, check, fragment, *arguments):
        found = self.faults(check, *arguments)
        self.assertTrue(any(fragment in text for text in found), f"no fault with '{fragment}' in {found}")

    def clean(self, check, *arguments):
        self.assertEqual(self.faults(check, *arguments), [])

    # rooms

    def test_rooms_clean(self):
        self.write("src/quant/dot.c", SPDX + '#include "base/bytes.h"\n#include "quant/dot.h"\n#include <stdint.h>\n')
        self.write("src/host/file.c", SPDX + '#include "api/x.h"\n#include <stdio.h>\n')
        self.clean(tidy.check_rooms)

    def test_rooms_later_room(self):
        self.write("src/quant/dot.c", SPDX + '#include "knot/knot.h"\n')
        self.expect(tidy.check_rooms, "may not include room knot")

    def test_rooms_system_header_in_pure_room(self):
        for name in ("stdio.h", "math.h", "stdlib.h", "time.h", "pthread.h"):
            self.write("src/wire/frame.c", SPDX + f"#  include <{name}>\n")
            self.expect(tidy.check_rooms, f"<{name}>")

    def test_rooms_system_header_in_serve(self):
        self.write("src/serve/a.c", SPDX + "#include <stdlib.h>\n#include <stdatomic.h>\n")
        self.clean(tidy.check_rooms)
        self.write("src/serve/a.c", SPDX + "#include <pthread.h>\n")
        self.expect(tidy.check_rooms, "<pthread.h>")

    def test_rooms_include_without_room(self):
        self.write("src/base/a.c", SPDX + '#include "b.h"\n')
        self.expect(tidy.check_rooms, "must name its room")

    def test_rooms_unknown_room(self):
        self.write("src/extra/a.c", SPDX)
        self.expect(tidy.check_rooms, "not in a room")

    def test_rooms_worker_includes_host(self):
        self.write("workers/x.c", SPDX + '#include "host/file.h"\n')
        self.expect(tidy.check_rooms, "may not include room host")

    # headers

    def test_headers_clean(self):
        self.write("src/base/a.h", header("base", "a"))
        self.clean(tidy.check_headers, CC)

    def test_headers_not_alone(self):
        self.write("src/base/a.h", header("base", "a", "uint32_t a_get(void);\n"))
        self.expect(tidy.check_headers, "does not compile alone", CC)

    def test_headers_guard(self):
        self.write("src/base/a.h", SPDX + "struct A { int x; };\n")
        self.expect(tidy.check_headers, "header guard", CC)
        self.expect(tidy.check_headers, "does not compile alone", CC)

    # symbols

    def archive(self, room, stem, text):
        source = f"src/{room}/{stem}.c"
        self.write(source, SPDX + text)
        output = os.path.join(self.root, f"{stem}.c.o")
        subprocess.run([CC, "-O1", "-c", os.path.join(self.root, source), "-o", output], check=True)
        subprocess.run(["ar", "rcs", os.path.join(self.root, f"libcobord_{room}_archive.a"), output], check=True)

    def symbols(self):
        return self.faults(lambda root: tidy.check_symbols(root, root))

    def test_symbols_clean(self):
        self.archive("base", "a", 'static const char *const names[] = {"x", "y"};\n'
                                  "const char *a_get(int i) { return names[i]; }\n")
        self.archive("quant", "b_avx2", "const char *a_get(int i);\nconst char *b_get(void) { return a_get(1); }\n")
        self.assertEqual(self.symbols(), [])

    def test_symbols_mutable_global(self):
        for text in ("int a_count;\n", "static int n = 3;\nint a_next(void) { return n++; }\n",
                     "int a_next(void) { static int n; return n++; }\n", "_Thread_local int a_mine = 1;\n"):
            self.archive("base", "a", text)
            self.assertTrue(any("mutable global" in f for f in self.symbols()), text)

    def test_symbols_call_outside(self):
        for call in ("void *malloc(unsigned long); void *a_f(void) { return malloc(3); }\n",
                     "int printf(const char *, ...); int a_f(void) { return printf(\"x%d\", 1); }\n",
                     "float expf(float); float a_f(float x) { return expf(x); }\n",
                     "long time(long *); long a_f(void) { return time(0); }\n"):
            self.archive("base", "a", call)
            self.assertTrue(any("outside the pure rooms" in f for f in self.symbols()), call)

    def test_symbols_serve(self):
        self.archive("serve", "a", "void *malloc(unsigned long); unsigned long machine_now_ns(void);\n"
                                   "void *a_f(void) { return malloc(machine_now_ns()); }\n")
        self.assertEqual(self.symbols(), [])
        self.archive("serve", "a", "long time(long *); long a_f(void) { return time(0); }\n")
        self.assertTrue(any("outside the pure rooms" in f for f in self.symbols()))

    def test_symbols_call_of_later_room(self):
        self.archive("quant", "b", "int k_f(void); int b_f(void) { return k_f(); }\n")
        self.archive("knot", "k", "int k_f(void) { return 1; }\n")
        self.assertTrue(any("calls k_f" in f for f in self.symbols()))

    def test_symbols_function_name(self):
        self.archive("host", "a", "int other(void) { return 1; }\n")
        self.assertTrue(any("does not start with a_" in f for f in self.symbols()))
        self.write("src/host/other.h", "int other_get(void);\n")
        self.archive("host", "a", "int other_get(void) { return 1; }\n")
        self.assertEqual(self.symbols(), [])

    def test_symbols_nothing_built(self):
        self.assertTrue(any("nothing was checked" in f for f in self.symbols()))

    # shape

    def test_shape_clean(self):
        self.write("src/base/a.c", SPDX + "int a_f(void)\n{\n    return 1;\n}\n")
        self.write("scripts/run", "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n")
        self.clean(tidy.check_shape)

    def test_shape_head(self):
        self.write("src/base/a.c", "int a;\n")
        self.write("scripts/run", "#!/bin/sh\necho\n")
        self.assertEqual(len([f for f in self.faults(tidy.check_shape) if "SPDX" in f]), 2)

    def test_shape_function_length(self):
        body = "int a_f(void)\n{\n" + "    ;\n" * 70 + "}\n"
        self.write("src/base/a.c", SPDX + body)
        self.expect(tidy.check_shape, "a function of 71 lines")
        self.write("src/base/a.c", SPDX + "/* Long because one case per type. */\n" + body)
        self.clean(tidy.check_shape)
        # a brace in a literal or a comment is not the end
        self.write("src/base/a.c", SPDX + body.replace("    ;", "/*\n}*/", 1))
        self.expect(tidy.check_shape, "a function of 72 lines")

    def test_shape_python_function_length(self):
        self.write("tests/a.py", "# SPDX-License-Identifier: Apache-2.0\ndef f():\n" + "    pass\n" * 71)
        self.expect(tidy.check_shape, "f has 71 lines")

    def test_shape_file(self):
        self.write("src/base/a.c", SPDX + "\n" * 900)
        self.expect(tidy.check_shape, "901 lines")
        self.write("src/base/a.c", SPDX + "/* Generated by x.py. */\n" + "\n" * 900)
        self.clean(tidy.check_shape)
        self.write("src/base/a.c", SPDX + "/*" + "x" * 130 + "*/\n")
        self.expect(tidy.check_shape, "columns")
        self.write("src/base/a.c", SPDX + "\tint a; \n")
        self.expect(tidy.check_shape, "tab")
        self.expect(tidy.check_shape, "space at the end")
        self.write("src/base/a.c", SPDX + "int a;")
        self.expect(tidy.check_shape, "no newline")

    def test_shape_empty_name(self):
        self.write("src/base/file_util.c", SPDX)
        self.expect(tidy.check_shape, "says nothing")

    # words

    def test_words_clean(self):
        self.write("src/base/a.c", SPDX + '/* not strcpy(x) */ const char *s = "atoi(x)"; int my_system(int);\n')
        self.clean(tidy.check_words)

    def test_words_banned_call(self):
        for name in ("strcpy", "sprintf", "strtok", "gets", "atoi", "system"):
            self.write("src/host/a.c", SPDX + f"void a_f(void) {{ {name} (0); }}\n")
            self.expect(tidy.check_words, f"{name}() is banned")

    def test_words_sscanf(self):
        self.write("src/host/a.c", SPDX + 'int a_f(char *s, char *t) { return sscanf(s, "%*s %31s %9[a-z]", t, t); }\n')
        self.clean(tidy.check_words)
        for bad in ("%s", "%d", "%31s %llu", "%[a-z]"):
            self.write("src/host/a.c", SPDX + f'int a_f(char *s, char *t) {{ return sscanf(s, "{bad}", t); }}\n')
            self.expect(tidy.check_words, "sscanf with")

    def test_words_mark(self):
        self.write("docs/a.md", "TODO later\n")
        self.expect(tidy.check_words, "left-over mark")

    def test_words_host(self):
        self.write("scripts/a", "#!/bin/sh\ncurl https://" + "py" + "pi.org/x\n")
        self.expect(tidy.check_words, "registry")

    def test_words_path_of_one_machine(self):
        self.write("docs/a.md", "see /root/x/y\n")
        self.expect(tidy.check_words, "one machine")

    def test_words_hub_in_two_files(self):
        hub = '"https://hugging' + 'face.co"\n'
        self.write("src/host/a.c", SPDX + hub)
        self.clean(tidy.check_words)
        self.write("src/cli/b.c", SPDX + hub)
        self.expect(tidy.check_words, "one setting")

    # docs

    def test_docs(self):
        self.write("docs/b.md", "# The Heading, first\n")
        self.write("docs/a.md", "[x](b.md) [y](b.md#the-heading-first) [z](https://example.org/)\n")
        self.clean(tidy.check_docs)
        self.write("tests/system/x_test.py", "def test_a():\n    pass\n")
        self.write("docs/a.md", "`system/x_test.py` test_a\n")
        self.clean(tidy.check_docs)
        self.write("docs/a.md", "`system/x_test.py` test_a, test_b\n")
        self.expect(tidy.check_docs, "no test test_b")
        self.write("docs/a.md", "`system/y_test.py` test_a\n")
        self.expect(tidy.check_docs, "y_test.py does not exist")
        self.write("docs/a.md", "[x](c.md)\n")
        self.expect(tidy.check_docs, "no such file")
        self.write("docs/a.md", "[x](b.md#second)\n")
        self.expect(tidy.check_docs, "no such heading")

    def test_docs_named_in_code(self):
        self.write("src/base/a.c", SPDX + "/* docs/format/none.md */\n")
        self.expect(tidy.check_docs, "docs/format/none.md does not exist")


if __name__ == "__main__":
    unittest.main()
