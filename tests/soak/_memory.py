# SPDX-License-Identifier: Apache-2.0
"""Memory, descriptors and threads of processes over the time of a soak, and whether they grow.

What is compared is like with like. A process that lived all the time: the median of the first quarter behind the
warm-up with that of the last quarter. Nodes that were started again: what a node had least in the same window of its
age, in any of its lives of the first half, with that of the second (who stands by has half of what the active one
has, so the least is what repeats); over the nodes of a role, the median of these ratios."""
import os
import re
import threading
import time
from statistics import median

from _hits import role_of

DRIFT_MAX = 0.02
JUDGED_SECONDS_MIN = 480   # behind the warm-up; in less, what is used for the first time looks like growth
SAMPLE_SECONDS = 2.0
AGE_SECONDS = 15.0, 60.0   # the window in which lives are compared
LIVES_MIN = 2              # of a node, in each half
COUNTS_MORE = {"descriptors": 8, "threads": 0}  # connections come and go, of clients and between nodes
FIELDS = "Rss", "Pss", "Private_Dirty"


def sample(pid):
    """{Rss, Pss, Private_Dirty in KiB; descriptors, threads}; None when it is gone."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as f:
            text = f.read()
        found = {field: int(re.search(rf"^{field}:\s+(\d+)", text, re.M).group(1)) for field in FIELDS}
        found["descriptors"] = len(os.listdir(f"/proc/{pid}/fd"))
        found["threads"] = len(os.listdir(f"/proc/{pid}/task"))
        return found
    except (OSError, AttributeError):
        return None


class Memory(threading.Thread):
    """Samples of every process of `pids()`, which gives {name: pid}."""

    def __init__(self, pids, tally, over):
        super().__init__(daemon=True)
        self.pids, self.tally, self.over = pids, tally, over
        self.lives = {}   # (name, pid) -> [(seconds, sample)]

    def run(self):
        while not self.over.wait(SAMPLE_SECONDS):
            self.look()

    def look(self):
        now = time.monotonic()
        for name, pid in self.pids().items():
            found = sample(pid)
            if found:
                self.lives.setdefault((name, pid), []).append((now, found))

    # What it says in the end.

    def longest(self, begin, end):
        """(name, samples of the first quarter, of the last) of those that were there all the time."""
        quarter = (end - begin) / 4
        for (name, _), samples in sorted(self.lives.items()):
            first = [s for at, s in samples if begin <= at < begin + quarter]
            last = [s for at, s in samples if end - quarter <= at <= end]
            if first and last and samples[0][0] <= begin + 3 * SAMPLE_SECONDS:
                yield name, first, last

    def lives_of_nodes(self, begin, end):
        """{name: (the least of each life of the first half, of the second)}, in KiB resident."""
        middle, nodes = (begin + end) / 2, {}
        for (name, _), samples in self.lives.items():
            born = samples[0][0]
            window = [s["Rss"] for at, s in samples if AGE_SECONDS[0] <= at - born <= AGE_SECONDS[1]]
            if born > begin + 3 * SAMPLE_SECONDS and len(window) >= 3:
                nodes.setdefault(name, ([], []))[born >= middle].append(min(window))
        return nodes

    def new_lives(self, begin, end):
        """{role: [(least before, least after, lives)] of its nodes with enough lives}"""
        roles = {}
        for name, (first, last) in self.lives_of_nodes(begin, end).items():
            if min(len(first), len(last)) >= LIVES_MIN:
                roles.setdefault(role_of(name), []).append((min(first), min(last), len(first) + len(last)))
        return roles

    def judge(self, begin, end, alive):
        """Rows; what grew is a violation. `alive`: who has to be among those that lived all the time."""
        self.judged = end - begin >= JUDGED_SECONDS_MIN
        yield ("process", "resident KiB, first quarter", "last quarter", "drift", "PSS drift", "private, KiB",
               "descriptors", "threads")
        seen = set()
        for name, first, last in self.longest(begin, end):
            seen.add(name)
            yield self.row(name, first, last)
        for name in sorted(set(alive) - seen if self.judged else ()):
            self.tally.violation("not alive", f"{name} was not there from the beginning to the end")
        for role, nodes in sorted(self.new_lives(begin, end).items()):
            yield self.role_row(role, nodes)

    def row(self, name, first, last):
        def both(field):
            return median(s[field] for s in first), median(s[field] for s in last)
        rss, pss, own = both("Rss"), both("Pss"), both("Private_Dirty")
        drift = rss[1] / rss[0] - 1
        self.limit(name, *rss)
        for field, more in COUNTS_MORE.items():
            before, after = both(field)
            if self.judged and after > before + more:
                self.tally.violation(field, f"{name}: first {before:.0f}, later {after:.0f}")
        counts = [own, both("descriptors"), both("threads")]
        return (name, f"{rss[0]:.0f}", f"{rss[1]:.0f}", f"{100 * drift:+.2f} %",
                f"{100 * (pss[1] / pss[0] - 1):+.2f} %", *(f"{a:.0f} to {b:.0f}" for a, b in counts))

    def limit(self, name, before, after):
        if self.judged and after / before - 1 > DRIFT_MAX:
            self.tally.violation("memory", f"{name}: first {before:.0f} KiB, later {after:.0f} KiB")

    def role_row(self, role, nodes):
        before, after = (median(node[i] for node in nodes) for i in (0, 1))
        ratio = median(node[1] / node[0] for node in nodes)
        self.limit("a new " + role, before, ratio * before)
        lives = sum(node[2] for node in nodes)
        return (f"new {role}s: {len(nodes)} nodes, {lives} lives", f"{before:.0f}", f"{after:.0f}",
                f"{100 * (ratio - 1):+.2f} %", "", "", "", "")
