# SPDX-License-Identifier: Apache-2.0
"""What `make install` and `make deb` make of the tree that is tested, in folders of the test's own."""
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("COBORD", "build/cobord")).resolve().parent


def script(name, *arguments, **env):
    """A script of the tree: its standard output."""
    done = subprocess.run([ROOT / "scripts" / name, *map(str, arguments)], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **env})
    assert done.returncode == 0, (name, arguments, done.stdout, done.stderr)
    return done.stdout


def install(destination, prefix="/usr/local", remove=False):
    arguments = ["--remove", BUILD] if remove else [BUILD]
    return script("install", *arguments, DESTDIR=str(destination), PREFIX=prefix)


def files_below(folder):
    """Paths of files, relative to `folder`."""
    folder = pathlib.Path(folder)
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir() or p.is_symlink())
