# SPDX-License-Identifier: Apache-2.0
"""docs/PERFORMANCE.md: an introduction and one section per command and model, each replaced as a whole.

    <!-- NAME -->
    ## TITLE
    ...
    <!-- end of NAME -->
"""
import datetime
import os
import platform
import re
import subprocess
import sys

from options import ROOT
from programs import BenchError

PATH = os.path.join(ROOT, "docs", "PERFORMANCE.md")
SECTION = r"<!-- (\S+) -->\n.*?<!-- end of \1 -->\n"

INTRO = """# Performance

The tables are measured and written by the commands below, each into a section with date, commit and machine.
What is compared takes turns in one run, and figures are medians (lowest to highest) over the rounds. A floor must hold,
or the command fails; a goal is where the work goes.

    make bench                                            # bench/compare as it comes: no section is written
    bench/compare --batch 1,4,8 --depth 4096 --load 2 --isa auto,avx2 --memory 64M --write
    bench/compare --model smollm2-135m --isa auto,avx2 --batch 4,8 --write
    bench/encode --write                                  # cobord encode beside copying the file
    bench/seven --fill --write                            # a model in the shape of 7B, in 64 MiB
    bench/plots --write                                   # tokens/s against batch, depth, threads, memory
    bench/cluster --no-llama --first --write              # a cluster's processes beside one process
    bench/cluster --write                                 # the same, and llama.cpp over its RPC
    bench/resident --first --write                        # enough workers of 128 MiB, each in a memory control group
    bench/hop --first --write                             # what a call between nodes costs beyond computing
    bench/pipeline --first --write                        # pipelined prefill over a slow network
    bench/activations --write                             # f32, f16, int8 between nodes: bytes and log-probabilities
    bench/concurrent --write                              # eight conversations at once, beside llama-server
    bench/prefix --write                                  # a second turn, and a second conversation that begins alike
    bench/speculation --write                             # guessed tokens beside plain decoding
    bench/speculation --memory 128M --write               # the same while weights are streamed
    bench/warden                                          # a layer warden's rule beside plain LRU
    make bench-wasm                                       # the two below as they come: no section is written
    bench/wasm --first --write                            # kernels in WebAssembly beside native ones
    bench/wllama --first --write                          # in Chromium, beside llama.cpp in WebAssembly

`bench/compare` runs llama.cpp from a pinned source package, built with `GGML_NATIVE=ON`, further programs where someone
has them (`COBORD_BENCH_PROGRAMS`), and Cobord, on the same model file with the same number of threads. Ratios are of
medians, to llama.cpp.

- *prefill*: a prompt of 512 tokens in one request, from an empty cache. *decode*: 64 tokens one by one, from an empty
  cache. *n sequences*: tokens/s in all, n sequences advancing together. *decode at n*: after n positions of context.
  *decode beside n spinning*: while n processes that only count run with the same priority. Threads that wait for each
  other without sleeping lose whole time slices there.
- *raw read*: all weights of the model read once by the same threads, with nothing computed. On virtual machines it
  moves by a factor of two between minutes, so only figures of one table can be compared.
- *others*: the share of the processors that other programs used meanwhile. Above 5 % the table is a sketch.
- *--first*: everything that is compared runs before other programs (real-time priority, at most 95 % of the time).
  Where a compiler has the processor, a message between nodes would wait for its time slice, and that would be what is
  measured. Caches are shared all the same. llama.cpp's threads wait spinning and cannot run so.
- Cobord's logits are bit-identical in every line of these tables; llama.cpp makes no such promise.
"""


def publish(name, title, body, write):
    """Prints a section, and with `write` puts it onto the page in place of the older one of that name."""
    print(f"{title}\n\n{body}")
    if write:
        replace(name, f"<!-- {name} -->\n## {title}\n\n{body}\n<!-- end of {name} -->\n")
        print(f"written to {os.path.relpath(PATH)}", file=sys.stderr)


def replace(name, section):
    old = ""
    if os.path.exists(PATH):
        with open(PATH) as f:
            old = f.read()
    kept = {m[1]: m[0] for m in re.finditer(SECTION, old, flags=re.S)}
    kept[name] = section
    write_file(PATH, "\n".join([INTRO, *kept.values()]))


def write_file(path, text):
    try:
        with open(path + ".part", "w") as f:
            f.write(text)
        os.replace(path + ".part", path)
    except OSError as error:
        raise BenchError(f"{path}: {error.strerror}") from error


def setting(commit_name, work):
    """The lines that every section starts with: when, of what, where, doing what."""
    return [f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC, commit {commit_name}",
            f"{processor_name()}, {os.cpu_count()} processors, Linux {platform.release()}", work]


def items(lines):
    return "\n".join(f"- {line}" for line in lines)


def table(rows):
    """Markdown; the first row is the heading."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    rows = [rows[0], ["-" * w for w in widths], *rows[1:]]
    return "\n".join("| " + " | ".join(c.ljust(w) for c, w in zip(row, widths)) + " |" for row in rows)


def verdict(held):
    return "held" if held else "missed"


def commit():
    """Short hash; "with changes" when a source differs from it."""
    def git(*words):
        return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True).stdout.strip()
    try:
        name = git("rev-parse", "--short", "HEAD")
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "src", "cmake", "CMakeLists.txt")
        return (name or "unknown") + (" with changes" if changed else "")
    except OSError:
        return "unknown"


def processor_name():
    try:
        with open("/proc/cpuinfo") as f:
            facts = dict(re.findall(r"^(model name|cpu family|model)\s*: (.*)$", f.read().split("\n\n")[0], flags=re.M))
        return f"{facts['model name']} (family {facts.get('cpu family', '?')}, model {facts.get('model', '?')})"
    except (OSError, KeyError):
        return platform.processor() or platform.machine()
