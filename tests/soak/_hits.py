# SPDX-License-Identifier: Apache-2.0
"""Who is killed, frozen and drained in a soak, and when: from one seed. One node of each role is spared, so that there
is memory that has been there all the time; the coordinator too."""
import os
import random
import signal
import threading
import time

PAUSE_SECONDS = 6.0      # between two hits, on average
FROZEN_SECONDS_MAX = 6.0
KINDS = ("station", "shard", "layer-warden", "shard-warden")


def role_of(node):
    return next((kind for kind in KINDS if node.startswith(kind)), node.rstrip("0123456789").rstrip("-"))


def spared_of(nodes, dice):
    """One of each role that has several; wardens of which there is one are hit all the same."""
    spared = []
    for kind in KINDS:
        some = sorted(n for n in nodes if role_of(n) == kind)
        if len(some) > 1:
            spared.append(dice.choice(some))
    return spared


class Hits(threading.Thread):
    def __init__(self, cluster, seed, tally, over):
        super().__init__(daemon=True)
        self.cluster, self.tally, self.over = cluster, tally, over
        self.dice = random.Random(f"{seed} hits")
        nodes = sorted(cluster.nodes())
        self.spared = spared_of(nodes, self.dice)
        self.marks = [n for n in nodes if role_of(n) in KINDS and n not in self.spared]
        self.log = []

    def run(self):
        while True:
            role = self.dice.choice(sorted({role_of(n) for n in self.marks}))
            node = self.dice.choice([n for n in self.marks if role_of(n) == role])
            pause = self.dice.expovariate(1 / PAUSE_SECONDS)
            kind = self.dice.choice(["kill", "kill", "freeze", "drain"])
            frozen = self.dice.random() * FROZEN_SECONDS_MAX
            if self.over.wait(pause):
                return
            pid = self.cluster.nodes().get(node)
            if not pid:
                self.tally.add("hits: the node was not there")
                continue
            self.log.append((self.tally.seconds(), kind, node))
            self.tally.add(f"hits: {kind} of a {role_of(node)}")
            self.hit(node, pid, kind, frozen)

    def hit(self, node, pid, kind, frozen):
        if kind == "freeze":
            self.send(node, pid, signal.SIGSTOP)
            time.sleep(frozen)
            if self.cluster.nodes().get(node) == pid:  # else it was taken for dead, and is
                self.send(node, pid, signal.SIGCONT)
                return
            self.tally.add("hits: frozen so long that it was replaced")
        else:
            self.send(node, pid, signal.SIGKILL if kind == "kill" else signal.SIGTERM)

    def send(self, node, pid, number):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            self.tally.add("hits: the node was gone already")
