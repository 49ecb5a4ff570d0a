# SPDX-License-Identifier: Apache-2.0
"""Python packages that tests compare with: imported where they are installed; else put into a virtual environment in
the user's cache, once."""
import glob
import importlib.util
import json
import os
import subprocess
import sys


def need(name, version):
    """Makes `import name` work."""
    if importlib.util.find_spec(name):
        return
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    place = os.path.join(cache, "cobord-tests", f"{name}-venv")
    found = folders(place)
    if not any(os.path.isdir(os.path.join(f, name)) for f in found):
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        subprocess.run([os.path.join(place, "bin", "pip"), "-q", "install", f"{name}=={version}"], check=True)
        found = folders(place)
    sys.path[:0] = found
    importlib.invalidate_caches()


def folders(place):
    return glob.glob(os.path.join(place, "lib", "python*", "site-packages"))


# Packages for JavaScript: name -> (version, what npm says of the bytes).
JAVASCRIPT = {
    "openai": ("6.49.0", "sha512-"
               "aYCc0C6L864eR6WSYIwQGyXriw/nIyZx0ObvhzOEVuk0zoBDpynjSbrionWI7q65B5H8jJX0DXR9snEzM6bfPg=="),
}


def need_javascript(name):
    """The folder with node_modules/NAME, in the user's cache."""
    version, integrity = JAVASCRIPT[name]
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    place = os.path.join(cache, "cobord-tests", f"{name}-js-{version}")
    lock = os.path.join(place, "package-lock.json")
    if not os.path.isfile(lock):
        os.makedirs(place, exist_ok=True)
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--save-exact",
                        "--prefix", place, f"{name}@{version}"], check=True, timeout=300)
    with open(lock) as f:
        found = json.load(f)["packages"][f"node_modules/{name}"]
    assert (found["version"], found["integrity"]) == (version, integrity), f"{place} holds another {name}: remove it"
    return place
