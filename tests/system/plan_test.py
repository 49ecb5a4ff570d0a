#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cobord plan: cluster files, machines of different speed and memory, what a token costs, and what is refused."""

import json
import os
import subprocess
import tempfile
import threading
import unittest
from http.server import BaseHTTPRequestHandler, HTTPServer

COBORD = os.path.abspath(os.environ.get("COBORD", "build/cobord"))
MODEL = "smollm2-135m"
LAYERS, VOCABULARY = 30, 49152
MIB = 1 << 20


def environment():
    env = {k: v for k, v in os.environ.items() if not k.startswith("COBORD_") or k == "COBORD_CACHE"}
    env.update(XDG_CONFIG_HOME="/nonexistent")
    return env


def plan(*arguments):
    return subprocess.run([COBORD, "plan", MODEL, *arguments], capture_output=True, text=True, env=environment())


def bound(text):
    """Layers, in quarters: "5.ffn_down" is 5.75."""
    if text == "end":
        return LAYERS
    layer, _, phase = text.partition(".")
    return int(layer) + {"": 0, "attn": 0, "ffn_gate": 0.25, "ffn_up": 0.5, "ffn_down": 0.75}[phase]


def layers(text):
    first, last = text.split("-")
    return bound(last) - bound(first)


class Plan(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.path = os.path.join(place.name, "cluster.json")
        self.place = place.name

    def fine(self, *arguments):
        p = plan(*arguments, "--json")
        keyless = "--hosts" in arguments and "-o" in arguments
        warning = "cobord: without --key-file anyone who reaches a node can use it\n" if keyless else ""
        self.assertEqual((p.returncode, p.stderr), (0, warning), p.stderr)
        return json.loads(p.stdout)

    def cluster(self, *arguments):
        made = self.fine(*arguments, "-o", self.path)
        self.assertEqual(made["cluster_file"], self.path)
        with open(self.path) as f:
            return made, json.load(f)

    def hosts(self, value):
        path = os.path.join(self.place, "hosts.json")
        with open(path, "w") as f:
            f.write(value if isinstance(value, str) else json.dumps(value))
        return path

    def refuse(self, code, word, *arguments):
        p = plan(*arguments, "-o", self.path)
        self.assertEqual(p.returncode, code, p.stderr)
        self.assertRegex(p.stderr, r"\Acobord: [^\n]+\n\Z")
        self.assertIn(word, p.stderr)
        self.assertEqual(os.listdir(self.place).count("cluster.json"), 0)

    def test_the_file_says_what_the_plan_says(self):
        given = ("--listen 127.0.0.1:7000 --stations 3 --shards 2 --memory 100M --context 512 --slots 3 --element int8 "
                 "--pipeline 5 --cache-type q8_0 --chunk 64 --warden-memory 80M")
        made, cluster = self.cluster(*given.split())
        self.assertEqual(cluster["memory"], 100 * MIB)
        self.assertEqual(cluster["warden_memory"], 80 * MIB)
        for name, value in (("context", 512), ("sessions", 3), ("element", "int8"), ("pipeline", 5), ("chunk", 64),
                            ("cache_type", "q8_0")):
            self.assertEqual(cluster[name], value, name)
        self.assertEqual([s["range"] for s in cluster["stations"]], [r["range"] for r in made["roles"] if "range" in r])
        self.assertEqual([s["ids"] for s in cluster["shards"]],
                         [[r["id_first"], r["id_last"]] for r in made["roles"] if "id_first" in r])
        nodes = [cluster["coordinator"]] + cluster["stations"] + cluster["shards"]
        addresses = [n["address"] for n in nodes]
        self.assertEqual(addresses, [f"127.0.0.1:{7000 + i}" for i in range(6)])
        for role in made["roles"] + [made["coordinator"]]:
            self.assertLessEqual(role["total_bytes"], 100 * MIB)
        self.assertEqual(os.listdir(self.place), ["cluster.json"])  # nothing temporary

    def test_replicas_and_wardens(self):
        made, cluster = self.cluster("--replicas", "2", "--wardens", "--stations", "2", "--shards", "3")
        self.assertEqual([r["id"] for r in cluster["stations"][1]["replicas"]], ["station-3", "station-5"])
        self.assertEqual([s["warden"] for s in cluster["stations"]], ["layer-warden-0", "layer-warden-1"])
        self.assertEqual({s["warden"] for s in cluster["shards"]}, {"shard-warden-0"})
        for warden in made["wardens"]:
            self.assertLessEqual(warden["total_bytes"], made["warden_memory_bytes"])

    def test_speed_decides_who_gets_how_much(self):
        hosts = self.hosts([{"address": "10.0.0.1", "speed_gbs": 40}, {"address": "10.0.0.2", "speed_gbs": 20},
                            {"address": "10.0.0.3", "bench": {"read_bandwidth_gbs": 20.0, "decode_tps": 1}}])
        made, cluster = self.cluster("--hosts", hosts, "--memory", "400M")
        shares = [layers(s["range"]) for s in cluster["stations"]]
        self.assertEqual(sum(shares), LAYERS)
        self.assertAlmostEqual(shares[0], LAYERS / 2, delta=1)
        self.assertAlmostEqual(shares[1], LAYERS / 4, delta=1)
        ids = [last - first for first, last in (s["ids"] for s in cluster["shards"])]
        self.assertEqual(sum(ids), VOCABULARY)
        self.assertAlmostEqual(ids[0], VOCABULARY / 2, delta=VOCABULARY / 50)
        self.assertEqual([s["address"] for s in cluster["stations"]],
                         ["10.0.0.1:8081", "10.0.0.2:8080", "10.0.0.3:8080"])
        self.assertEqual(made["cost"]["alone_machine"], 0)
        self.assertEqual([m["bandwidth_measured"] for m in made["machines"]], [True] * 3)

    def test_memory_limits_who_gets_how_much(self):
        hosts = self.hosts([{"address": "a", "memory": "160M", "speed_gbs": 100},
                            {"address": "b", "memory": "2G", "speed_gbs": 1}])
        made, cluster = self.cluster("--hosts", hosts, "--context", "2048", "--slots", "1")
        self.assertEqual(made["memory_bytes"], 53 * MIB)  # a third of the smallest machine
        self.assertEqual(made["cost"]["streamed_bytes"], 0)
        where = {role: m["address"] for m in made["machines"] for role in m["roles"]}
        of_a = sum(layers(r["range"]) for r in made["roles"] if "range" in r and where[r["id"]] == "a")
        self.assertLess(of_a, LAYERS / 2)  # fast, and full
        self.assertEqual(sum(layers(s["range"]) for s in cluster["stations"]), LAYERS)
        for role in made["roles"]:
            self.assertLessEqual(role["total_bytes"], made["memory_bytes"])

    def test_a_list_and_replicas_elsewhere(self):
        made, cluster = self.cluster("--hosts", "10.0.0.1,10.0.0.2:9000,[fd00::3]", "--replicas", "1")
        first = cluster["stations"][0]
        self.assertEqual(first["address"].rsplit(":", 1)[0], "10.0.0.1")
        self.assertEqual(first["replicas"][0]["address"].rsplit(":", 1)[0], "10.0.0.2")
        self.assertEqual(cluster["stations"][2]["address"].rsplit(":", 1)[0], "[fd00::3]")
        self.assertEqual(cluster["stations"][2]["replicas"][0]["address"].rsplit(":", 1)[0], "10.0.0.1")
        ports = [int(n["address"].rsplit(":", 1)[1]) for n in cluster["stations"] + cluster["shards"]
                 if n["address"].startswith("10.0.0.2:")]
        self.assertGreaterEqual(min(ports), 9000)

    def test_the_way_is_measured(self):
        class Health(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.send_response(200 if self.path == "/health" else 404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        server = HTTPServer(("127.0.0.1", 0), Health)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        made = self.fine("--hosts", f"127.0.0.1:{server.server_port},127.0.0.2:1")
        here, nowhere = made["machines"]
        self.assertTrue(here["hop_measured"] and 1 < here["hop_us"] < 1e6, here)
        self.assertFalse(nowhere["hop_measured"])

    def test_a_key_is_made(self):
        key = os.path.join(self.place, "key")
        p = plan("--key-file", key, "-o", self.path)
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertIn("made a key", p.stderr)
        self.assertEqual(os.stat(key).st_mode & 0o777, 0o600)
        with open(key) as f:
            first = f.read()
        self.assertEqual(plan("--key-file", key, "-o", self.path).stderr, "")
        with open(key) as f:
            self.assertEqual(f.read(), first)

    def test_the_cost_adds_up(self):
        made = self.fine("--stations", "4", "--shards", "2")
        cost = made["cost"]
        self.assertEqual(cost["weight_bytes"], sum(r["weight_bytes"] for r in made["roles"]))
        self.assertEqual(cost["streamed_bytes"], sum(r["weight_bytes"] - r["pinned_bytes"] for r in made["roles"]))
        self.assertEqual((cost["calls"], cost["hops"]), (7, 6))
        self.assertGreater(cost["alone_tokens_per_s"], cost["tokens_per_s"])
        self.assertTrue(cost["alone_is_faster"])
        small = self.fine("--stations", "4", "--shards", "2", "--element", "int8")["cost"]
        self.assertLess(small["moved_bytes"], cost["moved_bytes"])

    def test_eighty_columns(self):
        cuts = "0-25.ffn_gate,25.ffn_gate-27.ffn_down,27.ffn_down-end"
        for arguments in ((), ("--wardens", "--replicas", "1"), ("--ranges", cuts)):
            p = plan(*arguments)
            self.assertEqual(p.returncode, 0, p.stderr)
            self.assertLessEqual(max(map(len, p.stdout.splitlines())), 80)

    def test_what_is_refused(self):
        self.refuse(1, "MiB allowed", "--memory", "20M")
        self.refuse(1, "warden", "--wardens", "--warden-memory", "16M")
        self.refuse(2, "--hosts chooses", "--hosts", "a,b", "--workers", "3")
        self.refuse(2, "either --workers", "--stations", "2", "--workers", "3")
        self.refuse(2, "no address", "--hosts", "10.0.0.1,")
        self.refuse(2, "no address", "--hosts", "x y,b")
        self.refuse(1, "twice", "--hosts", "a,b,a")
        self.refuse(2, "HOST:PORT", "--listen", "1:2:3")
        self.refuse(1, "from port", "--listen", "127.0.0.1:65530")

    def test_hosts_files_that_are_refused(self):
        for text, word in (
            ("{", "no JSON"), ("[]", "at least one"), ("{}", "at least one"), ("[1]", "no object"),
            ('[{"memory": 1}]', "address"), ('[{"address": 7}]', "address"),
            ('[{"address": "a", "memory": "much"}]', "memory"), ('[{"address": "a", "memory": 5}]', "memory"),
            ('[{"address": "a", "memory": -1}]', "memory"), ('[{"address": "a", "speed_gbs": 0}]', "speed_gbs"),
            ('[{"address": "a", "speed": 1}]', "speed"), ('[{"address": "a", "bench": 4}]', "bench"),
            ('[{"address": "a", "bench": {"read_bandwidth_gbs": "x"}}]', "read_bandwidth_gbs"),
            ('[{"address": "a", "address": "b"}]', "address"), ('[{"address": "a"}, {"address": "a:9"}]', "twice"),
        ):
            with self.subTest(text):
                self.refuse(1, word, "--hosts", self.hosts(text))
                os.remove(os.path.join(self.place, "hosts.json"))
        self.refuse(1, "not found", "--hosts", "/nonexistent/hosts.json")
        self.refuse(1, "fewer than", "--hosts", self.hosts([{"address": "a", "memory": "100M"}]), "--memory", "50M")


if __name__ == "__main__":
    unittest.main(verbosity=2)
