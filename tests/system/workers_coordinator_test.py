#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The coordinator as a Worker on the real runtime, over Workers and over native nodes: the text of one process, streams
that outlive the object's memory, clients that leave, invocations that make few calls only."""
import http.client
import json
import os
import socket
import struct
import threading
import time
import unittest

import _nodes as nodes
from _workers import ISOLATE_BYTES_MAX, WorkerCluster, members, module, wait_evicted

MODEL = nodes.Model("smollm2-135m")
CHAT = "/v1/chat/completions"
COORDINATOR = "coordinator-0"
QUESTION = {"messages": [{"role": "user", "content": "Tell me about the sea."}], "temperature": 0, "max_tokens": 24}
BUDGET = 96 << 20
# Long answers: no token of it ends the text.
LONG = {**QUESTION, "max_tokens": 600, "logit_bias": {"0": -100, "2": -100}}


def solo_text(count=QUESTION["max_tokens"]):
    """What one native process answers."""
    return nodes.support.must("run", MODEL.name, QUESTION["messages"][0]["content"], "--temperature", "0",
                              "--max-tokens", str(count)).decode().rstrip("\n")


def events(text):
    """[(id, value)] of a stream."""
    out, name = [], None
    for line in text.splitlines():
        if line.startswith("id: "):
            name = line[4:]
        elif line.startswith("data: {"):
            out.append((name, json.loads(line[6:])))
    return out


def text_of(found):
    return "".join(value["choices"][0]["delta"].get("content") or "" for _, value in found)


class Shared(unittest.TestCase):
    ids = [COORDINATOR]  # the Workers; the others are native
    alone = False  # without any node
    variables = {}
    stays = True  # whatever the runtime does for ten seconds

    @classmethod
    def setUpClass(cls):
        cls.cluster = WorkerCluster(MODEL, ["0-15", "15-end"], 2, sessions=4)
        cls.native = {}
        for node_id in members(cls.cluster.file):
            if node_id not in cls.ids and not cls.alone:
                cls.native[node_id] = cls.cluster.start(node_id)
        more = {COORDINATOR: {"MEMORY_BUDGET_BYTES": str(BUDGET), **cls.variables}}
        cls.workers = cls.cluster.start_workers(cls.ids, more=more, stays=cls.stays)
        cls.coordinator = cls.workers[COORDINATOR]

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def ask(self, path, body):
        status, answer = self.coordinator.call("POST", path, json.dumps(body))
        self.assertEqual(status, 200, answer)
        return json.loads(answer)

    def text(self, body=QUESTION):
        return self.ask(CHAT, body)["choices"][0]["message"]["content"]

    def metric(self, name):
        return self.coordinator.metrics()[name]

    def stream(self, body, method="POST", headers=None):
        """A connection whose response's head was read, and the response."""
        connection = http.client.HTTPConnection(*self.cluster.runtime.address(COORDINATOR), timeout=60)
        connection.request(method, CHAT, json.dumps({**body, "stream": True}) if method == "POST" else None,
                           {"Content-Type": "application/json", **(headers or {})})
        return connection, connection.getresponse()

    def wait_for_slots(self, count):
        self.assertTrue(nodes.wait_for(lambda: self.metric("cobord_slots_active") == count, 30))


class NativeNodesTest(Shared):
    """A Worker coordinator over native nodes."""

    def test_text_of_one_process(self):
        self.assertEqual(self.text(), solo_text())
        connection, response = self.stream(QUESTION)
        self.assertEqual(response.getheader("Content-Type"), "text/event-stream")
        body = response.read().decode()
        connection.close()
        self.assertTrue(body.endswith("data: [DONE]\n\n"))
        self.assertEqual(text_of(events(body)), solo_text())

    def test_other_dialects(self):
        words = self.ask("/v1/completions", {"prompt": "The sea is", "max_tokens": 8, "temperature": 0})
        self.assertEqual(words["usage"]["completion_tokens"], 8)
        self.assertEqual(len(self.ask("/v1/embeddings", {"input": "sea"})["data"][0]["embedding"]), MODEL.hidden)
        self.assertEqual(self.ask("/tokenize", {"content": "Hello world"})["ids"], [19556, 905])
        said = self.ask("/v1/responses", {"input": "Tell me about the sea.", "temperature": 0, "max_output_tokens": 24})
        self.assertEqual(said["output"][0]["content"][0]["text"], solo_text())
        told = self.ask("/api/chat", {"messages": QUESTION["messages"], "stream": False,
                                      "options": {"temperature": 0, "num_predict": 24, "repeat_penalty": 1}})
        self.assertEqual(told["message"]["content"], solo_text())

    def test_form(self):
        body = {**QUESTION, "max_tokens": 60, "response_format": {"type": "json_schema", "json_schema": {
            "name": "x", "schema": {"type": "object", "properties": {"depth": {"type": "integer"}},
                                    "required": ["depth"], "additionalProperties": False}}}}
        self.assertIsInstance(json.loads(self.text(body))["depth"], int)

    def test_four_at_once(self):
        got = [None] * 4
        threads = [threading.Thread(target=lambda i=i: got.__setitem__(i, self.text())) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(got, [solo_text()] * 4)

    def test_cluster(self):
        status, answer = self.coordinator.call("GET", "/cluster")
        value = json.loads(answer)
        self.assertEqual((status, value["ready"], value["knot_id"]), (200, True, MODEL.knot_id))
        self.assertEqual({n["id"]: n["state"] for n in value["nodes"]},
                         {i: "ready" for i in members(self.cluster.file) if i != COORDINATOR})

    def test_heads_before_bodies(self):
        """No two answers have the same id, however many heads come before the first body."""
        body = json.dumps({**QUESTION, "max_tokens": 1}).encode()
        head = (b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                % (CHAT.encode(), len(body)))
        lines = [socket.create_connection(self.cluster.runtime.address(COORDINATOR), timeout=60) for _ in range(40)]
        for line in lines:
            line.sendall(head + body[:9])
        time.sleep(0.5)
        for line in lines:
            line.sendall(body[9:])
        names = []
        for line in lines:
            response = http.client.HTTPResponse(line)
            response.begin()
            names.append(json.loads(response.read())["id"])
            line.close()
        self.assertEqual(len(set(names)), len(lines), names)

    def test_stream_of_a_client_that_leaves(self):
        connection, response = self.stream(LONG)
        response.read(200)
        self.wait_for_slots(1)
        before = self.metric("cobord_disconnects_total")
        connection.close()
        response.close()
        self.wait_for_slots(0)
        self.assertTrue(nodes.wait_for(lambda: self.metric("cobord_disconnects_total") == before + 1))
        self.assertEqual(self.text(), solo_text())

    def test_whole_answer_of_a_client_that_leaves(self):
        """The runtime takes a closed half for patience; a reset it passes on."""
        body = json.dumps(LONG).encode()
        s = socket.create_connection(self.cluster.runtime.address(COORDINATOR))
        s.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                  % (CHAT.encode(), len(body)) + body)
        self.wait_for_slots(1)
        before = self.metric("cobord_disconnects_total")
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()
        self.wait_for_slots(0)
        self.assertTrue(nodes.wait_for(lambda: self.metric("cobord_disconnects_total") == before + 1))

    def test_station_that_dies(self):
        want = self.text(LONG)
        connection, response = self.stream(LONG)
        head = response.read(300)
        self.native["station-1"].kill()
        self.native["station-1"] = self.cluster.start("station-1")
        text = (head + response.read()).decode()
        connection.close()
        self.assertEqual(text_of(events(text)), want)

    def test_shard_that_is_lost(self):
        """Without a replica its rows are zero, and the answer says so; the next one is whole again."""
        self.native["shard-1"].kill()
        try:
            self.assertTrue(self.ask(CHAT, {**QUESTION, "max_tokens": 2}).get("degraded"))
        finally:
            self.native["shard-1"] = self.cluster.start("shard-1")
        self.assertTrue(nodes.wait_for(lambda: self.coordinator.call("GET", "/ready")[0] == 200, 60))
        self.assertEqual(self.text(), solo_text())

    def test_memory_has_a_limit(self):
        """Bodies that would take more than the budget are refused, and what they took is there for others."""
        def ask(words, statuses):
            body = {**QUESTION, "messages": [{"role": "user", "content": "word " * words}]}
            statuses.append(self.coordinator.call("POST", CHAT, json.dumps(body))[0])
        statuses = []
        threads = [threading.Thread(target=ask, args=(n, statuses)) for n in (300_000, 300_000, 1_500_000, 1_500_000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertTrue(set(statuses) <= {400, 503}, statuses)
        self.assertLessEqual(self.metric("process_resident_memory_bytes"), BUDGET)
        self.assertEqual(self.text(), solo_text())

    def test_refusals(self):
        for method, path, body, status in (("GET", "/nothing", None, 404), ("GET", CHAT, None, 405),
                                           ("POST", CHAT, "{", 400), ("POST", CHAT, "{}", 400)):
            got, answer = self.coordinator.call(method, path, body)
            self.assertEqual(got, status, path)
            self.assertFalse(json.loads(answer)["error"]["retryable"])
        self.assertEqual(self.coordinator.call("POST", CHAT, b"[" * 5000)[0], 400)


class FewCallsTest(Shared):
    """An invocation may make twenty calls: a token takes four to six of them."""

    variables = {"SUBREQUESTS_MAX": "20"}

    def test_invocations(self):
        self.assertEqual(self.text(), solo_text())
        self.assertGreater(self.metric("cobord_invocations_total"), 4)
        self.assertLessEqual(self.metric("cobord_invocation_calls_max"), 20)


class OpensLaterTest(Shared):
    """The model comes into the bucket after the first requests."""

    def begin_one(self):
        s = socket.create_connection(self.cluster.runtime.address(COORDINATOR), timeout=60)
        s.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
                  % CHAT.encode())
        return s

    def test_who_came_too_early_is_not_taken_for_another(self):
        runtime, key = self.cluster.runtime, MODEL.path.name
        runtime.r2_delete(key)
        runtime.restart()
        self.assertEqual(self.coordinator.call("GET", "/ready")[0], 503)
        early = [self.begin_one() for _ in range(4)]
        time.sleep(1.5)
        runtime.r2_seed(key, MODEL.path)
        self.assertEqual(self.coordinator.call("GET", "/ready")[0], 200)
        got = []
        threads = [threading.Thread(target=lambda: got.append(self.text({**LONG, "max_tokens": 60}))) for _ in range(3)]
        for thread in threads:
            thread.start()
        self.wait_for_slots(3)
        for s in early:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.close()
        for thread in threads:
            thread.join()
        self.assertEqual(len(got), 3)
        self.assertEqual(len(set(got)), 1)


class WrongSettingsTest(Shared):
    alone = True
    variables = {"SUBREQUESTS_MAX": "3"}
    reason = "SUBREQUESTS_MAX is 3, at least 8"

    def test_requests_hear_the_reason(self):
        status, answer = self.coordinator.call("GET", "/ready")
        self.assertEqual(status, 503)
        self.assertIn(self.reason, json.loads(answer)["error"]["message"])
        self.assertEqual(self.coordinator.call("GET", "/health")[0], 200)


class LongKeyTest(WrongSettingsTest):
    """The beginning of a key is another key."""

    variables = {"CLUSTER_KEY": "k" * 513}
    reason = "CLUSTER_KEY has 513 bytes, at most 512"


class WorkersTest(Shared):
    """Nothing but Workers."""

    ids = [COORDINATOR, "station-0", "station-1", "shard-0", "shard-1"]
    stays = False

    def test_text_of_one_process(self):
        self.assertEqual(self.text(), solo_text())

    def test_memory_of_the_isolate(self):
        self.text()
        memory = self.cluster.runtime.heaps()[COORDINATOR] + self.metric("process_resident_memory_bytes")
        self.assertLess(memory, ISOLATE_BYTES_MAX)

    def test_stream_goes_on_after_a_deployment(self):
        body = {**QUESTION, "max_tokens": 200}
        want = self.text(body)
        connection, response = self.stream(body)
        head = response.read(4000).decode()
        found = events(head[:head.rindex("\n\n") + 2])
        self.assertLess(len(text_of(found)), len(want))
        self.cluster.runtime.restart()
        connection.close()
        connection, response = self.stream(body, "GET", {"Last-Event-ID": found[-1][0]})
        self.assertEqual(response.status, 200)
        rest = events(response.read().decode())
        connection.close()
        self.assertEqual(text_of(found) + text_of(rest), want)

    def test_conversation_after_an_eviction(self):
        first = self.text()
        turns = QUESTION["messages"] + [{"role": "assistant", "content": first}, {"role": "user", "content": "Why?"}]
        want = self.text({**QUESTION, "messages": turns})
        self.text()
        self.assertTrue(wait_evicted(lambda: self.metric("cobord_answers_total") == 0))
        self.assertEqual(self.text({**QUESTION, "messages": turns}), want)


class ModuleTest(unittest.TestCase):
    def test_size(self):
        for name in ("cobord", "cobord-relaxed"):
            self.assertLess(os.path.getsize(module(name)), 1 << 20, name)


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
