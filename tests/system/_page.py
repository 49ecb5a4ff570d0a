# SPDX-License-Identifier: Apache-2.0
"""Scripts of tests/page in Node, with Debian's Chromium: what tests of the page are made of."""
import os
import pathlib
import shutil
import subprocess
import unittest

from _packages import need_locked

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "tests" / "page"
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find_chromium():
    """Debian's, or COBORD_CHROMIUM."""
    for name in (os.environ.get("COBORD_CHROMIUM"), *PROGRAMS):
        if name and shutil.which(name):
            return shutil.which(name)
    raise unittest.SkipTest("no Chromium here: scripts/prepare browser, or COBORD_CHROMIUM")


def run_script(name, *arguments, browser=True):
    """Its output; its failures are the test's. With PAGE_SHOTS=FOLDER it leaves pictures there."""
    node = shutil.which("node")
    assert node, "node is not installed: scripts/prepare"
    environment = dict(os.environ)
    if browser:
        environment.update(CHROMIUM=find_chromium(), PAGE_PACKAGES=need_locked(SCRIPTS))
    done = subprocess.run([node, str(SCRIPTS / name), *map(str, arguments)], capture_output=True, text=True,
                          timeout=300, env=environment)
    if done.returncode or "all passed" not in done.stdout:
        raise AssertionError(f"{name}:\n{done.stdout}{done.stderr}")
    return done.stdout
