# SPDX-License-Identifier: Apache-2.0
"""From samples to a table: medians, ranges, ratios to llama.cpp, and what is asked of them.

A floor must hold, or the comparison fails; a goal is where the work goes. Both are ratios to llama.cpp in the same run,
except those of the remarks, which are ratios to Cobord's own figures or to the bandwidth.
"""
import os
from statistics import median

import llama_build
import page
from options import size_bytes
from page import verdict
from programs import Cobord, spinning

# Per model: measure -> (floor, goal with AVX-512, goal with AVX2).
ASKED = {
    "qwen2.5-coder-1.5b": {"prefill": (0.80, 2.0, 1.3), "decode": (0.85, 1.0, 1.0), "4 sequences": (None, 2.6, None),
                           "8 sequences": (None, 4.0, None), "decode at 4096": (None, 1.35, 1.35),
                           "decode beside 2 spinning": (None, 2.0, 2.0)},
    "qwen2.5-coder-0.5b": {"prefill": (None, 2.8, None), "decode": (None, 1.3, None)},
    "smollm2-135m": {"prefill": (None, 3.3, None), "decode": (None, 1.4, None)},
}
BUDGET_GOAL = 0.90     # decode within a memory budget, to Cobord's own without one
BANDWIDTH_GOAL = 0.95  # bytes of weights read while decoding, to what a plain read of them reaches
LOAD_GOAL = 0.85       # decode beside spinning processes, to the fair share of the quiet speed
QUIET_SHARE_MAX = 0.05


class Report:
    def __init__(self, model, found, args):
        self.model, self.found, self.args = model, found, args
        self.base = found[0]
        self.cobords = [p for p in found if isinstance(p, Cobord)]
        self.main = self.cobords[0]

    # ---- figures ----

    def middle(self, program, measure):
        values = program.values(measure)
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
        for measure in self.main.work.measures():
            floor, _ = self.asked(self.main, measure)
            if floor and (self.ratio(self.main, measure) or 0) < floor:
                held = False
        return held

    # ---- lines ----

    def row(self, program, measure):
        values = program.values(measure)
        if not values:
            return [measure, program.name, "-", "", "", ""]
        ratio = self.ratio(program, measure)
        cells = [measure, program.name, figure(values), "", "", ""]
        if ratio and program is not self.base:
            cells[3] = f"{ratio:.2f} x"
        if isinstance(program, Cobord) and ratio:
            for column, asked in enumerate(self.asked(program, measure), 4):
                if asked:
                    cells[column] = f"{asked:.2f} x {verdict(ratio >= asked)}"
        return cells

    def table(self):
        rows = [["work", "program", "tokens/s", "ratio", "floor", "goal"]]
        for measure in self.main.work.measures():
            rows += [self.row(p, measure) for p in self.found if p.values(measure) or p in (self.base, self.main)]
        return page.table(rows)

    def remarks(self):
        """What the table's columns cannot say: memory, the share of the bandwidth, the neighbours."""
        for program in self.cobords:
            yield from self.memory_remarks(program)
        yield from self.load_remarks()
        yield from self.bandwidth_remarks()
        yield others_remark(self.found)
        if self.model not in ASKED:
            yield f"nothing is asked of {self.model}: no floors, no goals"

    def memory_remarks(self, program):
        peak = max(s.facts["peak_rss_bytes"][0] for s in program.samples)
        line = f"{program.name} ({program.samples[0].facts['isa']}): peak resident memory {peak / (1 << 20):.1f} MiB"
        if not program.memory:
            yield line
            return
        yield line + f", goal {program.memory} {verdict(peak <= size_bytes(program.memory))}"
        shares = [s.facts["large_page_share"] for s in program.samples if "large_page_share" in s.facts]
        if shares:
            yield f"{program.name}: {100 * median(shares):.0f} % of the model's file lies in large pages"
        ratio = self.ratio(program, "decode", self.main) or 0
        yield (f"{program.name}: decode {ratio:.2f} x that of {self.main.name}, goal {BUDGET_GOAL:.2f} x "
               + verdict(ratio >= BUDGET_GOAL))

    def load_remarks(self):
        load = self.main.work.load
        if not load:
            return
        fair = min(1.0, (os.cpu_count() or 1) / (self.main.work.threads + load))
        share = self.middle(self.main, spinning(load)) / (fair * self.middle(self.main, "decode"))
        yield (f"{self.main.name} beside {load} spinning: {100 * share:.0f} % of its fair share, {fair:.2f} of the "
               f"quiet decode; goal {100 * LOAD_GOAL:.0f} % {verdict(share >= LOAD_GOAL)}")

    def bandwidth_remarks(self):
        reads = [s.facts["read_bandwidth_gbs"] for p in self.cobords if not p.memory for s in p.samples]
        yield f"raw read {figure(reads)} GB/s"
        share = median(bandwidth_shares(self.main))
        yield (f"a token reads {self.main.step_bytes * 1e-9:.3f} GB of weights, at {100 * share:.0f} % of raw read; "
               f"goal {100 * BANDWIDTH_GOAL:.0f} % " + verdict(share >= BANDWIDTH_GOAL))

    def body(self):
        args = self.args
        work = (f"{args.threads} threads, prompt {args.prompt}, gen {args.gen}, "
                f"{args.rounds} round{'s' * (args.rounds > 1)}")
        about = llama_build.about(self.base.command[0]) or "a program that was there already"
        lines = [*page.setting(args.commit, work), f"llama.cpp: {about}", *self.remarks()]
        return f"{page.items(lines)}\n\n{self.table()}"


def figure(values, digits=1):
    return f"{median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def bandwidth_shares(program):
    """Of each sample: the bytes of weights that decoding reads, to what the plain read of the same run reached."""
    return [s.tps["decode"] * program.step_bytes * 1e-9 / s.facts["read_bandwidth_gbs"] for s in program.samples]


def others_remark(found):
    others = [s.others for p in found for s in p.samples]
    return (f"others used {100 * median(others):.0f} % of the processors (at most {100 * max(others):.0f} %)"
            + ("" if max(others) <= QUIET_SHARE_MAX else ": not a quiet machine, take the figures as a sketch"))
