# SPDX-License-Identifier: Apache-2.0
"""From samples to a table: medians, ranges, ratios to llama.cpp, and what is asked of them.

A floor must hold, or the comparison fails; a goal is where the work goes. Both are ratios to llama.cpp in the same run.
With --write the table becomes a section of docs/PERFORMANCE.md, in place of the older one of the same name.
"""
import datetime
import os
import platform
import re
import subprocess
from statistics import median

import llama_build
from programs import BenchError, Cobord

# Per model: measure -> (floor, goal with AVX-512, goal with AVX2).
ASKED = {
    "qwen2.5-coder-1.5b": {"prefill": (0.80, 2.0, 1.3), "decode": (0.85, 1.0, 1.0), 4: (None, 2.6, None),
                           8: (None, 4.0, None)},
    "qwen2.5-coder-0.5b": {"prefill": (None, 2.8, None), "decode": (None, 1.3, None)},
    "smollm2-135m": {"prefill": (None, 3.3, None), "decode": (None, 1.4, None)},
}
BUDGET_GOAL = 0.90    # decode within a memory budget, to Cobord's own without one
BANDWIDTH_GOAL = 0.95  # bytes of weights read while decoding, to what a plain read of them reaches
QUIET_SHARE_MAX = 0.05
SECTION = r"<!-- (\S+) -->\n.*?<!-- end of \1 -->\n"

INTRO = """# Performance

Measured by `bench/compare` (`make bench`), never by hand. Programs take turns in one run, on the same model file with
the same number of threads: llama.cpp from a pinned source package, built with `GGML_NATIVE=ON`, further programs where
someone has them, and Cobord. Figures are tokens/s, as median (lowest to highest) over the rounds. Ratios are of
medians, to llama.cpp; a floor must hold, a goal is where the work goes.

- *prefill*: a prompt of 512 tokens in one request, from an empty cache. *decode*: 64 tokens one by one, from an empty
  cache. *n sequences*: tokens/s in all, n sequences advancing together.
- *raw read*: all weights of the model read once by the same threads, with nothing computed. On virtual machines it
  moves by a factor of two between minutes, so only figures of one table can be compared.
- *others*: the share of the processors that other programs used meanwhile. Above 5 % the table is a sketch.
- Cobord's logits are bit-identical in every line of these tables; llama.cpp makes no such promise.

    bench/compare --rounds 5 --batch 1,4,8 --write
    bench/compare --model smollm2-135m --isa avx512,avx2 --memory 64M --write
"""


class Report:
    def __init__(self, root, model, found, args):
        self.root, self.model, self.found, self.args = root, model, found, args
        self.base = found[0]
        self.cobords = [p for p in found if isinstance(p, Cobord)]
        self.main = self.cobords[0]
        self.measures = ["prefill", "decode", *args.batch]
        self.missed = []

    # ---- figures ----

    @staticmethod
    def values(program, measure):
        if measure in ("prefill", "decode"):
            return [getattr(s, f"{measure}_tps") for s in program.samples]
        return [s.batch_tps[measure] for s in program.samples if measure in s.batch_tps]

    def middle(self, program, measure):
        values = self.values(program, measure)
        return median(values) if values else None

    def ratio(self, program, measure, base=None):
        one, other = self.middle(program, measure), self.middle(base or self.base, measure)
        return one / other if one and other else None

    def asked(self, program, measure):
        """(floor, goal) of a program of ours, by the instruction set it ran with. A floor is of the unbounded run."""
        floor, goal, goal_avx2 = ASKED.get(self.model, {}).get(measure, (None, None, None))
        if program.memory:
            return None, None
        isa = program.samples[0].facts["isa"]
        return floor if program is self.main else None, {"avx512": goal, "avx2": goal_avx2}.get(isa)

    def floors_hold(self):
        held = True
        for measure in self.measures:
            floor, _ = self.asked(self.main, measure)
            if floor and (self.ratio(self.main, measure) or 0) < floor:
                held = False
        return held

    def read_gbs(self):
        return [s.facts["read_bandwidth_gbs"] for p in self.cobords if not p.memory for s in p.samples]

    # ---- lines ----

    def row(self, program, measure):
        values = self.values(program, measure)
        name = measure if isinstance(measure, str) else f"{measure} sequence{'s' * (measure > 1)}"
        if not values:
            return [name, program.name, "-", "", "", ""]
        figure = f"{median(values):.1f} ({min(values):.1f} to {max(values):.1f})"
        ratio = self.ratio(program, measure)
        cells = [name, program.name, figure, f"{ratio:.2f} x" if ratio and program is not self.base else "", "", ""]
        if isinstance(program, Cobord) and ratio:
            for column, asked in enumerate(self.asked(program, measure), 4):
                if asked:
                    cells[column] = f"{asked:.2f} x {'held' if ratio >= asked else 'missed'}"
        return cells

    def table(self):
        rows = [["work", "program", "tokens/s", "ratio", "floor", "goal"]]
        for measure in self.measures:
            rows += [self.row(p, measure) for p in self.found if self.values(p, measure) or p in (self.base, self.main)]
        widths = [max(len(row[i]) for row in rows) for i in range(6)]
        rows.insert(1, ["-" * w for w in widths])
        return "\n".join("| " + " | ".join(c.ljust(w) for c, w in zip(row, widths)) + " |" for row in rows)

    def remarks(self):
        """What the table's columns cannot say: memory, the share of the bandwidth, the neighbours."""
        for program in self.cobords:
            peak = max(max(s.facts["peak_rss_bytes"]) for s in program.samples)
            yield f"{program.name} ({program.samples[0].facts['isa']}): peak resident memory {peak / (1 << 20):.0f} MiB"
            if program.memory:
                ratio = self.ratio(program, "decode", self.main) or 0
                yield (f"{program.name}: decode {ratio:.2f} x that of {self.main.name}, goal {BUDGET_GOAL:.2f} "
                       + ("held" if ratio >= BUDGET_GOAL else "missed"))
        yield from self.bandwidth_remarks()
        others = [s.others for p in self.found for s in p.samples]
        yield (f"others used {100 * median(others):.0f} % of the processors (at most {100 * max(others):.0f} %)"
               + ("" if max(others) <= QUIET_SHARE_MAX else ": not a quiet machine, take the figures as a sketch"))
        if self.model not in ASKED:
            yield f"nothing is asked of {self.model}: no floors, no goals"

    def bandwidth_remarks(self):
        reads = self.read_gbs()
        if not reads:
            return
        yield f"raw read {median(reads):.1f} GB/s ({min(reads):.1f} to {max(reads):.1f})"
        shares = [x.decode_tps * self.main.step_bytes * 1e-9 / x.facts["read_bandwidth_gbs"] for x in self.main.samples]
        share = median(shares)
        yield (f"a token reads {self.main.step_bytes * 1e-9:.3f} GB of weights, at {100 * share:.0f} % of raw read; "
               f"goal {100 * BANDWIDTH_GOAL:.0f} % " + ("held" if share >= BANDWIDTH_GOAL else "missed"))

    def setting(self):
        about = llama_build.about(self.base.command[0]) or "a program that was there already"
        work = f"prompt {self.args.prompt}, gen {self.args.gen}"
        return [f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC, commit {self.args.commit}",
                f"{processor_name()}, {os.cpu_count()} processors, Linux {platform.release()}",
                f"{self.args.threads} threads, {work}, {self.args.rounds} round{'s' * (self.args.rounds > 1)}",
                f"llama.cpp: {about}"]

    def text(self):
        lines = "\n".join(f"- {line}" for line in [*self.setting(), *self.remarks()])
        return f"{self.model}\n\n{lines}\n\n{self.table()}"

    # ---- the page ----

    def section(self):
        lines = "\n".join(f"- {line}" for line in [*self.setting(), *self.remarks()])
        return f"<!-- {self.model} -->\n## {self.model}\n\n{lines}\n\n{self.table()}\n<!-- end of {self.model} -->\n"

    def write(self):
        """Replaces this model's section, or adds it; the page's introduction is ours too."""
        path = os.path.join(self.root, "docs", "PERFORMANCE.md")
        old = ""
        if os.path.exists(path):
            with open(path) as f:
                old = f.read()
        sections = [(m[1], m[0]) for m in re.finditer(SECTION, old, flags=re.S)]
        kept = dict(sections)
        kept[self.model] = self.section()
        try:
            with open(path + ".part", "w") as f:
                f.write("\n".join([INTRO, *kept.values()]))
            os.replace(path + ".part", path)
        except OSError as error:
            raise BenchError(f"{path}: {error.strerror}") from error
        return path


def commit(root):
    """Short hash; "with changes" when a source differs from it."""
    def git(*words):
        return subprocess.run(["git", "-C", root, *words], capture_output=True, text=True).stdout.strip()
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
