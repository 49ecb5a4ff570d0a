#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names of requests where the coordinator is a Worker: its answers have their id, its native nodes hear of its trace,
its lines are objects."""
import json
import unittest

import _nodes as nodes
from _workers import WorkerCluster, members
from up_test import wait_until
from workers_keys_test import CHAT, COORDINATOR, HI, ask

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def objects(text):
    """The objects among the lines of a log, whatever stands before and behind them."""
    lines = (line[line.index("{"):line.rindex("}") + 1] for line in text.splitlines() if '{"time"' in line)
    return [json.loads(line) for line in lines]


class WorkersLogsTest(unittest.TestCase):
    def test_a_trace_through_both_worlds(self):
        c = WorkerCluster(nodes.Model("smollm2-135m"), ["0-end"], 1)
        self.addCleanup(c.stop)
        native = {i: c.start(i, "--log-format", "json", "--log-level", "debug") for i in members(c.file)
                  if i != COORDINATOR}
        c.start_workers([COORDINATOR], more={COORDINATOR: {"LOG_FORMAT": "json"}})
        status, headers, _ = ask(c, "POST", CHAT, HI, {"X-Request-Id": "far", "traceparent": f"00-{TRACE}-{SPAN}-01"})
        self.assertEqual((status, headers["X-Request-Id"]), (200, "far"))
        status, headers, text = ask(c, "POST", CHAT, dict(HI, stream=True))
        self.assertEqual(status, 200)
        self.assertRegex(headers["X-Request-Id"], "^req_[0-9a-f]{16}$")
        def calls(node):
            return {e["path"] for e in objects(native[node].errors()) if e.get("trace_id") == TRACE}
        wait_until(lambda: {"/forward"} <= calls("station-0"), 20)  # a line comes after the answer that it is about
        wait_until(lambda: {"/embed", "/logits"} <= calls("shard-0"), 20)
        mine = wait_until(lambda: [e for e in objects(c.runtime.errors()) if e.get("request_id") == "far"], 20)[0]
        self.assertEqual((mine["node"], mine["trace_id"], mine["parent_id"], mine["status"], mine["completion_tokens"]),
                         (COORDINATOR, TRACE, SPAN, 200, 2))
        status, _, text = ask(c, "GET", "/metrics")
        self.assertEqual(status, 200)
        self.assertIn('cobord_hop_calls_total{node="station-0"}', text)
        self.assertIn('cobord_build_info{version="', text)


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
