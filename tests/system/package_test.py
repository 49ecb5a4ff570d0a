#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Debian packages: what they say of themselves, lintian, and that they come and go with dpkg."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import _installed as installed


UNTOLD = [] if (installed.BUILD / "written").exists() else ["--suppress-tags", "no-manual-page"]


def ask(*arguments):
    return subprocess.run(list(map(str, arguments)), check=True, capture_output=True, text=True, timeout=120).stdout


@unittest.skipUnless(shutil.which("dpkg-shlibdeps") and shutil.which("dpkg"), "dpkg-dev is missing")
class PackageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        names = installed.script("deb", installed.BUILD, cls.folder.name).split()
        cls.packages = {pathlib.Path(n).name.split("_")[0]: pathlib.Path(n) for n in names}
        cls.package = cls.packages["cobord"]

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def field(self, name, package="cobord"):
        return ask("dpkg-deb", "-f", self.packages[package], name).strip()

    def unpacked(self, package="cobord"):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        ask("dpkg-deb", "-R", self.packages[package], folder.name)
        return pathlib.Path(folder.name)

    def test_names_and_fields(self):
        version, machine = self.field("Version"), ask("dpkg", "--print-architecture").strip()
        self.assertEqual(self.package.name, f"cobord_{version}_{machine}.deb")
        self.assertIn(f"cobord {version}\n", ask(installed.BUILD / "cobord", "version"))
        depends = self.field("Depends")
        for library in ("libc6", "libcurl3", "libgnutls30", "libmicrohttpd12", "libsqlite3-0"):
            self.assertRegex(depends, rf"{library}\S* \(>= ")
        self.assertEqual(self.field("Description").split("\n")[0], "runs large language models as many small workers")

    def test_contents(self):
        root = self.unpacked()
        files = installed.files_below(root)
        for name in ("usr/bin/cobord", "etc/default/cobord", "usr/share/doc/cobord/copyright",
                     "usr/share/doc/cobord/changelog.gz", "usr/lib/systemd/system/cobord.service", "DEBIAN/md5sums"):
            self.assertIn(name, files)
        self.assertEqual((root / "DEBIAN/conffiles").read_text(), "/etc/default/cobord\n")
        self.assertIn("ExecStart=/usr/bin/cobord serve", (root / "usr/lib/systemd/system/cobord.service").read_text())
        sections = ask("readelf", "-S", "--wide", root / "usr/bin/cobord")
        self.assertNotIn(".debug_info", sections)
        self.assertNotIn(".symtab", sections)
        self.assertIn("BIND_NOW", ask("readelf", "-d", root / "usr/bin/cobord"))

    def test_the_library_is_two_packages(self):
        files = installed.files_below(self.unpacked("libcobord0"))
        self.assertTrue(any(f.endswith("/libcobord.so.0") for f in files), files)
        self.assertIn("DEBIAN/shlibs", files)
        self.assertFalse(any("include" in f for f in files))
        files = installed.files_below(self.unpacked("libcobord-dev"))
        for name in ("include/cobord/cobord.h", "cobord.pc", "libcobord.a", "libcobord.so"):
            self.assertTrue(any(f.endswith(name) for f in files), name)
        self.assertIn(f"libcobord0 (= {self.field('Version')})", self.field("Depends", "libcobord-dev"))

    @unittest.skipUnless(shutil.which("lintian"), "lintian is missing: scripts/prepare package")
    def test_lintian_has_nothing_to_say(self):
        root = ["--allow-root"] if os.geteuid() == 0 else []
        done = subprocess.run(["lintian", *root, "--fail-on", "error,warning", *UNTOLD, *self.packages.values()],
                              text=True, capture_output=True, timeout=120)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    @unittest.skipUnless(os.geteuid() == 0, "dpkg installs as root only")
    def test_comes_and_goes(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        root = pathlib.Path(folder.name)
        (root / "var/lib/dpkg").mkdir(parents=True)
        (root / "var/lib/dpkg/status").write_text("")
        dpkg = ["dpkg", f"--root={root}", "--force-depends", "--force-script-chrootless"]
        there = ["usr/bin/cobord", "etc/default/cobord", "usr/share/doc/cobord/copyright"]

        def run(*arguments):
            done = subprocess.run([*dpkg, *map(str, arguments)], capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)

        run("-i", self.package)
        self.assertTrue(all((root / f).exists() for f in there))
        ask(root / "usr/bin/cobord", "version")
        (root / "etc/default/cobord").write_text("COBORD_SLOTS=2\n")
        run("-i", self.package)  # a setting of the administrator stays
        self.assertEqual((root / "etc/default/cobord").read_text(), "COBORD_SLOTS=2\n")
        run("-r", "cobord")
        self.assertEqual([(root / f).exists() for f in there], [False, True, False])
        kept = root / "var/lib/private/cobord/journal.db"
        kept.parent.mkdir(parents=True)
        kept.write_text("")
        run("-P", "cobord")
        self.assertFalse(kept.exists())
        self.assertFalse((root / "etc/default/cobord").exists())


if __name__ == "__main__":
    unittest.main()
