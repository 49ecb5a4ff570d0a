# SPDX-License-Identifier: Apache-2.0
"""Python packages that tests compare with: imported where they are installed; else put into a virtual environment in
the user's cache, once."""
import glob
import importlib.util
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
