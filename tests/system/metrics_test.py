#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GET /metrics of every role: what Prometheus' own parser makes of it, and whether figures say what happened."""
import pathlib
import re
import sys
import unittest

import _packages
from _cluster import Cluster, wait_until
from serve_test import CHAT, Server, greedy

_packages.need("prometheus_client", "0.26.0")
_packages.need("yaml", "6.0.3", package="PyYAML")
import yaml  # noqa: E402
from prometheus_client.parser import text_string_to_metric_families  # noqa: E402

ROOT = pathlib.Path(__file__).parents[2]
NAME = re.compile(r"\b(?:cobord|process)_[a-z0-9_]+\b")
PROCESS = {"cobord_build_info", "cobord_log_dropped_total", "cobord_memory_budget_bytes", "cobord_memory_peak_bytes",
           "process_cpu_seconds_total", "process_max_fds", "process_open_fds", "process_resident_memory_bytes",
           "process_start_time_seconds"}
SERVE = PROCESS | {"cobord_requests_total", "cobord_responses_total", "cobord_refusals_total", "cobord_request_seconds",
                   "cobord_first_token_seconds", "cobord_token_seconds", "cobord_queue_wait_seconds", "cobord_slots",
                   "cobord_queue_length", "cobord_prompt_tokens_total", "cobord_generated_tokens_total",
                   "cobord_cached_tokens_total", "cobord_draft_tokens_total", "cobord_ready", "cobord_draining"}
HOPS = {f"cobord_hop_{x}" for x in ("calls_total", "failures_total", "hedges_total", "replays_total",
                                    "sent_bytes_total", "received_bytes_total", "seconds")}
KEYS = {f"cobord_key_{x}" for x in ("requests_total", "refused_total", "prompt_tokens_total", "generated_tokens_total",
                                    "running")}
NODE = PROCESS | {"cobord_node_request_seconds", "cobord_node_queue", "cobord_node_draining"}
WARDEN = NODE | {f"cobord_warden_{x}" for x in (
    "l1_hits_total", "l1_misses_total", "l1_evictions_total", "bad_total", "store_reads_total", "store_failures_total")}


class Page:
    """A page, checked line by line and by the official parser."""

    def __init__(self, text):
        self.types, self.series = {}, {}
        helped, order = set(), []
        for line in text.splitlines():
            words = line.split(" ", 3)
            if line.startswith("# HELP "):
                assert words[2] not in helped and words[3], line
                helped.add(words[2])
            elif line.startswith("# TYPE "):
                assert words[2] in helped and words[2] not in self.types, line
                self.types[words[2]] = words[3]
            else:
                series, value = line.rsplit(" ", 1)
                assert series not in self.series, f"{series} comes twice"
                self.series[series] = float(value)
                order.append(self.family(re.match("[a-z0-9_]+", series)[0]))
        runs = [f for i, f in enumerate(order) if not i or f != order[i - 1]]
        assert len(runs) == len(set(runs)), "lines of a figure stand together"
        self.check_names()
        self.families = {f.name: f for f in text_string_to_metric_families(text)}
        assert sum(len(f.samples) for f in self.families.values()) == len(self.series)
        self.check_histograms()

    def family(self, name):
        for suffix in ("_bucket", "_sum", "_count"):
            if name.endswith(suffix) and self.types.get(name[:-len(suffix)]) == "histogram":
                return name[:-len(suffix)]
        assert name in self.types, f"{name} has no TYPE"
        return name

    def check_names(self):
        for name, kind in self.types.items():
            assert NAME.fullmatch(name), name
            assert (kind == "counter") == name.endswith("_total"), (name, kind)
            assert not re.search("_(ms|us|millis|kb|mib)(_|$)", name), f"{name}: base units"
            if kind == "histogram":
                assert name.endswith("_seconds"), name

    def check_histograms(self):
        for f in self.families.values():
            if f.type != "histogram":
                continue
            rows = {}
            for s in f.samples:
                key = tuple(sorted((k, v) for k, v in s.labels.items() if k != "le"))
                rows.setdefault(key, []).append(s)
            for samples in rows.values():
                buckets = [(float(s.labels["le"]), s.value) for s in samples if s.name.endswith("_bucket")]
                assert buckets == sorted(buckets) and buckets[-1][0] == float("inf"), f.name
                assert [v for _, v in buckets] == sorted(v for _, v in buckets), f.name
                count = next(s.value for s in samples if s.name.endswith("_count"))
                assert count == buckets[-1][1], f.name

    def grown_from(self, before):
        """No counter has gone down, no histogram has lost a call."""
        for series, value in before.series.items():
            name = re.match("[a-z0-9_]+", series)[0]
            if before.types[before.family(name)] != "gauge":
                assert self.series[series] >= value, series
        return True

    def count(self, name, **labels):
        inside = ",".join(f'{k}="{v}"' for k, v in labels.items())
        return self.series[f"{name}{{{inside}}}" if inside else name]


class Metrics(unittest.TestCase):
    def assert_has(self, page, names):
        self.assertEqual(names - set(page.types), set())

    def test_serve(self):
        s = Server()
        self.addCleanup(s.stop)

        def page():
            status, headers, text = s.call("GET", "/metrics")
            self.assertEqual((status, headers["Content-Type"]), (200, "text/plain; version=0.0.4; charset=utf-8"))
            return Page(text.decode())
        before = page()
        self.assert_has(before, SERVE)
        s.json(CHAT, greedy("Hello", 9))
        s.call("GET", "/nix")
        s.call("POST", CHAT, "{")
        s.events(CHAT, greedy("Hello", 5))
        answered = f'cobord_request_seconds_count{{route="{CHAT}"}}'
        other = 'cobord_request_seconds_count{route="other"}'

        def is_counted():
            series = page().series
            return (series.get(answered), series.get(other)) == (3, 1)
        wait_until(is_counted, 30)  # when the last byte has left
        after = page()
        self.assertTrue(after.grown_from(before))

        def more(name, **labels):
            return after.count(name, **labels) - before.series.get(name + "".join(
                [f'{{{",".join(f"{k}={chr(34)}{v}{chr(34)}" for k, v in labels.items())}}}'] if labels else []), 0)
        self.assertEqual(more("cobord_generated_tokens_total"), 14)
        self.assertEqual(more("cobord_answers_total"), 2)
        self.assertEqual(more("cobord_first_token_seconds_count"), 2)
        self.assertEqual(more("cobord_token_seconds_count"), 2)
        self.assertEqual(more("cobord_queue_wait_seconds_count"), 2)
        self.assertEqual(more("cobord_refusals_total", code="not_found"), 1)
        self.assertEqual(more("cobord_refusals_total", code="invalid_json"), 1)
        self.assertEqual(after.count("cobord_request_seconds_count", route=CHAT), 3)
        self.assertEqual(after.count("cobord_request_seconds_count", route="other"), 1)
        self.assertGreaterEqual(more("cobord_responses_total", **{"class": "4xx"}), 2)
        self.assertGreater(after.count("process_open_fds"), 3)
        self.assertGreater(after.count("process_cpu_seconds_total"), before.count("process_cpu_seconds_total"))
        self.assertLessEqual(after.count("process_resident_memory_bytes"), after.count("cobord_memory_peak_bytes"))

    def test_cluster_and_documents(self):
        c = Cluster("--wardens")
        self.addCleanup(c.close)

        def page(node):
            return Page(c.call_node(node, "GET", "/metrics")[1].decode())
        nodes = ("coordinator-0", "station-0", "shard-0", "layer-warden-0", "shard-warden-0")
        before = {n: page(n) for n in nodes}
        self.assertEqual(c.json(data=greedy("Hello", 6))[0], 200)
        after = {n: page(n) for n in nodes}
        for n in nodes:
            self.assertTrue(after[n].grown_from(before[n]))
        self.assert_has(after["coordinator-0"], SERVE | HOPS)
        self.assert_has(after["station-0"], NODE | {"cobord_station_rows_total"})
        self.assert_has(after["shard-0"], NODE | {"cobord_shard_logits_total"})
        self.assert_has(after["layer-warden-0"], WARDEN)
        self.assert_has(after["shard-warden-0"], WARDEN | {"cobord_warden_rows_l1_evictions_total"})
        first = after["coordinator-0"]
        calls = first.count("cobord_hop_calls_total", node="station-0")
        self.assertGreater(calls, 0)
        self.assertEqual(first.count("cobord_hop_seconds_count", node="station-0", route="/forward"), calls)
        self.assertGreater(first.count("cobord_hop_received_bytes_total", node="shard-0"), 1000)
        self.assertGreater(after["station-0"].count("cobord_node_request_seconds_count", route="/forward",
                                                    method="POST"), 0)
        self.assertEqual(first.count("cobord_memory_budget_bytes"), 128 << 20)
        self.assertEqual(c.stop(), 0)
        self.check_documents(set().union(*(p.types for p in after.values())))

    def check_documents(self, known):
        """Alerts and documentation name what there is, and the documentation all of it."""
        def base(name):
            short = re.sub("_(bucket|sum|count)$", "", name)
            return short if short in known else name
        alerts_text = (ROOT / "deploy/prometheus/alerts.yaml").read_text()
        rules = [r for group in yaml.safe_load(alerts_text)["groups"] for r in group["rules"]]
        self.assertEqual(len({r["alert"] for r in rules}), len(rules))
        for r in rules:
            self.assertIn(r["labels"]["severity"], ("warning", "critical"))
            self.assertTrue(NAME.search(r["expr"]) and r["annotations"]["summary"], r)
        alerts = {base(n) for n in NAME.findall(alerts_text)}
        self.assertGreater(len(alerts), 8)
        self.assertEqual(alerts - known, set())
        text = (ROOT / "docs/operations.md").read_text()
        told = {base(n) for n in NAME.findall(text)}
        self.assertEqual(known - told, set())
        elsewhere = {"cobord_invocations_total", "cobord_invocation_calls_max"} | KEYS  # on Workers, and with keys
        self.assertEqual(told - known - elsewhere, set())


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2, warnings="ignore"))
