# SPDX-License-Identifier: Apache-2.0
"""What is counted in a soak, and what must not be: thread-safe, printed at the end."""
import collections
import threading
import time

SHOWN_MAX = 40


class Tally:
    def __init__(self):
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.times = collections.defaultdict(list)  # what -> seconds
        self.violations = []
        self.begun = time.monotonic()

    def add(self, what, count=1):
        with self.lock:
            self.counts[what] += count

    def took(self, what, seconds):
        with self.lock:
            self.times[what].append(seconds)

    def seconds(self):
        return time.monotonic() - self.begun

    def violation(self, kind, text):
        """One of these, and the soak has failed."""
        with self.lock:
            self.counts[f"VIOLATION {kind}"] += 1
            self.violations.append(f"{self.seconds():.1f} s: {kind}: {text}")
            if len(self.violations) <= SHOWN_MAX:
                print(f"soak: {self.violations[-1][:2000]}", flush=True)

    def lines(self):
        with self.lock:
            for what, count in sorted(self.counts.items()):
                yield f"{what}: {count}"
            for what, seconds in sorted(self.times.items()):
                yield (f"{what}: p50 {quantile(seconds, 0.5):.2f} s, p99 {quantile(seconds, 0.99):.2f} s, "
                       f"at most {max(seconds):.2f} s")


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
