#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workers whose warden lies, or is gone: each bad piece is found out, told of and read from the bucket, so that the
text is that of one process. (Bad values and a bad bucket: workers_warden_test.py.)"""
import time
import unittest

import _nodes as nodes
import _wardens as wardens
import _workers as workers
from _wardens import KNOT, MIB, MODEL, wait_for

NODES = ["station-0", "station-1", "shard-0", "shard-1"]


class Liars(unittest.TestCase):
    def start(self, services):
        """Worker nodes below wardens at these addresses."""
        cluster = workers.WorkerCluster(MODEL, ["0-15", "15-end"], 2, chunk=64, sessions=4, memory=96 * MIB)
        self.addCleanup(cluster.stop)
        return cluster.start_workers(NODES, services=services, stays=True)

    def text_is_right(self, some, session=1):
        stations, shards = ([some[f"{kind}-{i}"] for i in range(2)] for kind in ("station", "shard"))
        self.assertEqual(wardens.greedy(stations, shards, session=session), wardens.expected())

    def steady(self, count):
        """A count, once it has not grown for a second: what is told goes out beside the answers."""
        end = time.monotonic() + 30
        while time.monotonic() < end:
            before = count()
            time.sleep(1)
            if count() == before:
                return before
        return self.fail("they are told over and over")

    def test_text_is_right(self):
        """A station and a shard below liars, the others below honest wardens; all wardens are processes."""
        cluster = wardens.Cluster()
        self.addCleanup(cluster.stop)
        native = {f"{kind}-warden-{i}": cluster.start(f"{kind}-warden-{i}") for kind in ("layer", "shard")
                  for i in range(2)}
        place = lambda name: f"127.0.0.1:{native[name].port}"  # noqa: E731
        # What they say of the tables of hashes, behind all tensors, is true: who lies there is not asked again.
        last = KNOT.payload + max(t["offset"] + t["length"] for t in KNOT.tensors.values())
        with wardens.Liar(native["layer-warden-0"], last) as liar, wardens.Liar(native["shard-warden-0"],
                                                                                        last) as other:
            some = self.start({"station-0": {"LAYER_WARDEN": liar.address},
                               "station-1": {"LAYER_WARDEN": place("layer-warden-1")},
                               "shard-0": {"VOCAB_WARDEN": other.address},
                               "shard-1": {"VOCAB_WARDEN": place("shard-warden-1")}})
            self.text_is_right(some)
            wait_for("the liars to be told", lambda: liar.posts and other.posts)
            told = self.steady(lambda: len(liar.posts) + len(other.posts))
            self.text_is_right(some, 2)
            self.assertLessEqual(len(liar.posts) + len(other.posts), told + 8)  # not over and over
            for node in ("station-0", "shard-0"):
                self.assertGreater(some[node].metrics()["cobord_node_store_bytes_total"], MIB, node)
            before = {n: some[n].metrics()["cobord_node_store_bytes_total"] for n in ("station-1", "shard-1")}
            self.text_is_right(some, 3)
            for node, count in before.items():
                self.assertEqual(some[node].metrics()["cobord_node_store_bytes_total"], count, node)

    def test_warden_is_gone(self):
        """Nobody at its address: the bucket is read, the text is right."""
        nobody = f"127.0.0.1:{nodes.free_ports(1)[0]}"
        self.text_is_right(self.start({"station-0": {"LAYER_WARDEN": nobody}, "shard-1": {"VOCAB_WARDEN": nobody}}))


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
