#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make install` into a clean root: what is there, that it works from there, and that `make uninstall` takes just that
away again."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import _installed as installed
from _nodes import support

HAS_MANUAL = (installed.BUILD / "written").exists()


class InstallTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        os.environ.pop("DESTDIR", None)

    def run_there(self, *arguments, **env):
        """A program with the new root's folders before the system's."""
        path = f"{self.root}/usr/local/bin:/usr/bin:/bin"
        bare = {"PATH": path, "HOME": str(self.root), "LC_ALL": "C.UTF-8"}
        return subprocess.run(list(map(str, arguments)), capture_output=True, text=True, timeout=60,
                              env={**bare, **env})

    def test_everything_is_in_its_place(self):
        installed.install(self.root)
        files = installed.files_below(self.root)
        self.assertTrue(all(f.startswith("usr/local/") for f in files), files)
        for name in ("bin/cobord", "share/doc/cobord/LICENSE", "share/doc/cobord/README.md",
                     "share/doc/cobord/format/knot.md", "lib/systemd/system/cobord.service",
                     "lib/systemd/system/cobord-node@.service", "share/doc/cobord/examples/cobord.default"):
            self.assertIn("usr/local/" + name, files)
        for path in self.root.rglob("*"):
            self.assertEqual(path.stat().st_mode & 0o444, 0o444, path)

    def test_the_program_works_from_there(self):
        installed.install(self.root)
        done = self.run_there("cobord", "version")
        self.assertRegex(done.stdout, r"\Acobord \d+\.\d+\.\d+\n\Z")
        self.assertEqual(self.run_there("cobord", "tokenize", "--help").returncode, 0)

    def test_units_name_the_program_of_their_prefix(self):
        installed.install(self.root, prefix="/opt/some place")
        unit = (self.root / "opt/some place/lib/systemd/system/cobord.service").read_text()
        self.assertIn("ExecStart=/opt/some place/bin/cobord serve", unit)
        self.assertNotIn("/usr/bin/cobord", unit)

    def test_uninstall_takes_what_was_installed_and_nothing_else(self):
        installed.install(self.root)
        mine = [self.root / "usr/local/share/doc/cobord/mine", self.root / "usr/local/bin/other"]
        for path in mine:
            path.write_text("mine")
        installed.install(self.root, remove=True)
        self.assertEqual(installed.files_below(self.root), ["usr/local/bin/other", "usr/local/share/doc/cobord/mine"])
        mine[0].unlink()
        installed.install(self.root, remove=True)  # again, of nothing
        self.assertFalse((self.root / "usr/local/share/doc/cobord").exists())

    def test_a_relative_prefix_is_refused(self):
        with self.assertRaisesRegex(AssertionError, "no absolute path"):
            installed.install(self.root, prefix="usr")

    @unittest.skipUnless(shutil.which("pkg-config") and shutil.which("cc"), "pkg-config or cc is missing")
    def test_the_example_is_built_with_what_is_installed(self):
        """In the new root's own words; the root itself is what a sysroot is to pkg-config."""
        installed.install(self.root)
        env = {"PKG_CONFIG_LIBDIR": f"{self.root}/usr/local/lib/pkgconfig", "PKG_CONFIG_SYSROOT_DIR": str(self.root),
               "PKG_CONFIG_ALLOW_SYSTEM_CFLAGS": "1", "PKG_CONFIG_ALLOW_SYSTEM_LIBS": "1"}
        example = self.root / "usr/local/share/doc/libcobord-dev/examples/generate.c"
        library = self.root / "usr/local/lib"
        knot = support.models_folder() / "smollm2-135m.knot"
        texts = set()
        for name, extra in (("shared", []), ("static", ["--static"])):
            flags = self.run_there("pkg-config", "--cflags", "--libs", *extra, "cobord", **env).stdout.split()
            if extra:
                flags = [str(library / "libcobord.a") if f == "-lcobord" else f for f in flags]
            program = self.root / name
            done = self.run_there("cc", "-Wall", "-Werror", example, *flags, "-o", program)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            done = self.run_there(program, knot, "What is 2 + 2?", LD_LIBRARY_PATH="" if extra else str(library))
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            texts.add(done.stdout.split("\n[")[0])
        self.assertEqual(len(texts), 1)
        self.assertTrue(texts.pop().strip())

    @unittest.skipUnless(HAS_MANUAL, "this tree has no page of the manual")
    @unittest.skipUnless(shutil.which("man"), "man is missing: apt-get install man-db")
    def test_the_page_of_the_manual_is_found(self):
        installed.install(self.root)
        done = self.run_there("man", "--warnings", "-E", "UTF-8", "cobord", MANPATH=f"{self.root}/usr/local/share/man",
                              MANWIDTH="80")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for word in ("cobord", "--max-tokens", "serve"):
            self.assertIn(word, done.stdout)

    @unittest.skipUnless(HAS_MANUAL, "this tree has no completions")
    def test_completions_are_where_shells_look(self):
        installed.install(self.root)
        share = self.root / "usr/local/share"
        for name in ("bash-completion/completions/cobord", "zsh/site-functions/_cobord",
                     "fish/vendor_completions.d/cobord.fish"):
            self.assertIn("serve", (share / name).read_text(), name)
        self.assertEqual(self.run_there("bash", "-n", share / "bash-completion/completions/cobord").returncode, 0)


if __name__ == "__main__":
    unittest.main()
