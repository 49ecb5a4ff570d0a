#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cobord up with real processes: one text whatever dies or freezes, budgets kept, nothing left behind."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from _nodes import give_ports
from _ports import free_port
from _signals import deliver

COBORD = os.path.abspath(os.environ.get("COBORD", "build/cobord"))
MODEL = "smollm2-135m"
MIB = 1 << 20
QUESTION = "Tell me about the sea."
TOKENS = 48


def environment(state):
    env = {k: v for k, v in os.environ.items() if not k.startswith("COBORD_") or k == "COBORD_CACHE"}
    env.update(XDG_CONFIG_HOME="/nonexistent", XDG_STATE_HOME=state)
    return env


def body(**more):
    return dict({"messages": [{"role": "user", "content": QUESTION}], "temperature": 0, "max_tokens": TOKENS}, **more)


def status(pid, name):
    with open(f"/proc/{pid}/status") as f:
        return int(re.search(rf"^{name}:\s+(\d+)", f.read(), re.M).group(1))


def wait_until(what, seconds=60):
    end = time.time() + seconds
    while time.time() < end:
        result = what()
        if result:
            return result
        time.sleep(0.05)
    raise AssertionError(f"waited {seconds} s in vain")


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


class Up:
    """A cluster until stop(): its address, its processes by id."""

    def __init__(self, *arguments, model=MODEL, wait=True, stderr=None):
        self.state = tempfile.TemporaryDirectory()
        self.err = open(os.path.join(self.state.name, "stderr"), "w+")
        self.process = subprocess.Popen(
            [COBORD, "up", *([model] if model else []), *arguments],
            stdout=subprocess.PIPE,
            stderr=self.err if stderr is None else stderr,
            text=True,
            env=environment(self.state.name),
        )
        self.line = self.process.stdout.readline() if wait else ""
        match = re.search(r" on http://127\.0\.0\.1:(\d+)$", self.line.strip())
        if wait and not match:
            code = self.process.wait(timeout=30)
            raise AssertionError(f"no address in {self.line!r}, code {code}: {self.errors()}")
        self.port = int(match.group(1)) if match else 0

    def errors(self):
        with open(self.err.name) as f:
            return f.read()

    def nodes(self):
        """{id: pid} of the processes that are there."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat") as f:
                    parent = int(f.read().rsplit(")", 1)[1].split()[1])
                with open(f"/proc/{pid}/cmdline") as f:
                    words = f.read().split("\0")
            except OSError:
                continue
            if parent == self.process.pid and "--id" in words:
                found[words[words.index("--id") + 1]] = int(pid)
        return found

    def json(self, path="/v1/chat/completions", data=None, timeout=120):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            text = json.dumps(data).encode() if data is not None else None
            connection.request("POST" if text else "GET", path, text, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def ask(self, **more):
        code, answer = self.json(data=body(**more))
        assert code == 200, (code, answer, self.errors())
        return answer["choices"][0]["message"]["content"]

    def stream(self, after, act, **more):
        """The text of a stream; act() is called when `after` tokens have come."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("POST", "/v1/chat/completions", json.dumps(body(stream=True, **more)).encode())
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        text, count = "", 0
        for line in answer:
            line = line.decode().strip()
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            event = json.loads(line[6:])
            assert "error" not in event, (event, self.errors())
            piece = event["choices"][0]["delta"].get("content")
            if piece:
                text += piece
                count += 1
                if count == after:
                    act()
        connection.close()
        return text

    def kill(self, node, number=signal.SIGKILL):
        pid = self.nodes()[node]
        os.kill(pid, number)
        return pid

    def wait_for_new(self, node, old):
        wait_until(lambda: self.nodes().get(node, old) != old)

    def stop(self, number=signal.SIGTERM):
        pids = list(self.nodes().values())
        self.process.send_signal(number)
        code = self.process.wait(timeout=90)
        self.process.stdout.close()
        self.err.close()
        left = [p for p in pids if not is_gone(p)]
        assert not left, left
        return code

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if not self.process.stdout.closed:
            self.process.stdout.close()
            self.err.close()
        self.state.cleanup()


def alone(*arguments):
    p = subprocess.run(
        [COBORD, "run", MODEL, QUESTION, "--max-tokens", str(TOKENS), "--context", "1024", *arguments],
        capture_output=True,
        text=True,
        env=environment("/nonexistent"),
        check=True,
    )
    return p.stdout.rstrip("\n")


class Answers(unittest.TestCase):
    """One cluster, many mishaps."""

    @classmethod
    def setUpClass(cls):
        cls.expected = alone("--temperature", "0")
        cls.up = Up("--listen", "127.0.0.1:0", "--shards", "3", "--memory", "96M", "--context", "1024")

    @classmethod
    def tearDownClass(cls):
        try:
            code = cls.up.stop()
            assert code == 0, code
        finally:
            cls.up.close()

    def test_text_is_that_of_one_process(self):
        self.assertEqual(self.up.ask(), self.expected)
        self.assertEqual(self.up.ask(temperature=0.8, seed=7), alone("--temperature", "0.8", "--seed", "7"))

    def test_every_role_is_a_process_and_keeps_its_budget(self):
        self.up.ask(max_tokens=8)
        nodes = self.up.nodes()
        self.assertEqual(set(nodes), {"coordinator-0", "station-0", "station-1", "shard-0", "shard-1", "shard-2"})
        for node, pid in nodes.items():
            self.assertLessEqual(status(pid, "VmHWM"), 96 * 1024, node)
        self.assertLessEqual(status(self.up.process.pid, "VmHWM"), 96 * 1024)

    def test_killed_while_idle(self):
        for node in ("station-0", "station-1", "shard-0", "shard-2"):
            with self.subTest(node):
                old = self.up.kill(node)
                self.assertEqual(self.up.ask(), self.expected)
                self.up.wait_for_new(node, old)
                self.assertEqual(self.up.ask(), self.expected)

    def test_killed_in_the_midst_of_an_answer(self):
        for node in ("station-0", "station-1", "shard-0", "shard-1"):
            with self.subTest(node):
                old = []
                self.assertEqual(self.up.stream(5, lambda: old.append(self.up.kill(node))), self.expected)
                self.up.wait_for_new(node, old[0])

    def test_frozen_in_the_midst_of_an_answer(self):
        for node in ("station-1", "shard-1"):
            with self.subTest(node):
                old = []
                freeze = lambda: old.append(self.up.kill(node, signal.SIGSTOP))
                self.assertEqual(self.up.stream(5, freeze), self.expected)
                self.up.wait_for_new(node, old[0])
                wait_until(lambda: is_gone(old[0]))

    def test_the_coordinator_comes_back(self):
        old = self.up.kill("coordinator-0")
        self.up.wait_for_new("coordinator-0", old)

        def is_ready():
            try:
                return self.up.json("/ready")[0] == 200
            except OSError:
                return False

        wait_until(is_ready)
        self.assertEqual(self.up.ask(), self.expected)

    def test_several_at_once_while_one_dies(self):
        results = {}

        def one(i):
            results[i] = self.up.ask(seed=i, temperature=0.9)

        threads = [threading.Thread(target=one, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        time.sleep(0.3)
        self.up.kill("station-0")
        for t in threads:
            t.join()
        for i in range(4):
            self.assertEqual(results[i], alone("--temperature", "0.9", "--seed", str(i)))


class Lives(unittest.TestCase):
    """Beginning and end."""

    def up(self, *arguments, **more):
        cluster = Up(*arguments, **more)
        self.addCleanup(cluster.close)
        return cluster

    SMALL = ("--stations", "1", "--shards", "1", "--context", "256", "--slots", "1")

    def refuse(self, code, *words, arguments, model=MODEL):
        cluster = self.up(*arguments, model=model, wait=False)
        self.assertEqual(cluster.process.wait(timeout=60), code, cluster.errors())
        for word in words:
            self.assertIn(word, cluster.errors())
        self.assertEqual(cluster.process.stdout.read(), "")
        return cluster

    def test_interrupt_ends_everything_and_finishes_answers(self):
        cluster = self.up("--listen", "127.0.0.1:0", *self.SMALL)
        ended = []
        text = cluster.stream(3, lambda: cluster.process.send_signal(signal.SIGINT), max_tokens=20)
        self.assertEqual(text, alone("--temperature", "0", "--max-tokens", "20"))
        ended.append(cluster.process.wait(timeout=60))
        self.assertEqual(ended, [0])
        self.assertEqual(os.listdir(os.path.join(cluster.state.name, "cobord")), [])

    def test_nothing_is_left_when_it_is_killed(self):
        cluster = self.up("--listen", "127.0.0.1:0", *self.SMALL)
        pids = cluster.nodes()
        self.assertEqual(len(pids), 3)
        os.kill(pids["shard-0"], signal.SIGSTOP)
        cluster.process.kill()
        cluster.process.wait()
        wait_until(lambda: all(map(is_gone, pids.values())), 30)

    def test_second_signal_ends_at_once(self):
        cluster = self.up("--listen", "127.0.0.1:0", *self.SMALL)
        pids = cluster.nodes()
        os.kill(pids["coordinator-0"], signal.SIGSTOP)  # would take its time to drain
        for _ in range(2):
            deliver(cluster.process.pid, signal.SIGINT)
        cluster.process.wait(timeout=5)
        wait_until(lambda: all(map(is_gone, pids.values())), 10)

    def test_port_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            began = time.time()
            self.refuse(1, "in use", "--listen", arguments=("--listen", f"127.0.0.1:{port}"))
            self.assertLess(time.time() - began, 5)

    def test_two_at_once_on_one_port(self):
        where = f"127.0.0.1:{free_port()}"
        two = [self.up("--listen", where, *self.SMALL, wait=False) for _ in range(2)]
        wait_until(lambda: any(c.process.poll() is not None for c in two), 60)
        lost, won = sorted(two, key=lambda c: c.process.poll() is None)
        self.assertEqual(lost.process.wait(timeout=60), 1)
        self.assertIn("in use", lost.errors())
        self.assertIn(where, won.process.stdout.readline())
        self.assertEqual(won.stop(), 0)

    def test_a_key_beside_us(self):
        with tempfile.TemporaryDirectory() as d:
            key = os.path.relpath(os.path.join(d, "key"))
            cluster = self.up("--listen", "127.0.0.1:0", "--key-file", key, *self.SMALL)
            self.assertEqual(os.stat(os.path.join(d, "key")).st_mode & 0o777, 0o600)
            self.assertEqual(cluster.stop(), 0)

    def test_too_small_a_plan(self):
        self.refuse(1, "MiB allowed", "attention cache", arguments=("--listen", "127.0.0.1:0", "--memory", "20M"))
        large = ("--listen", "127.0.0.1:0", "--memory", "64M", "--context", "8192")
        self.refuse(1, "MiB allowed", "context 8192", arguments=large)

    def test_wrong_usage(self):
        self.refuse(2, "MODEL or --cluster", arguments=(), model=None)
        self.refuse(2, "MODEL or --cluster", arguments=("--cluster", "x.json"))
        self.refuse(2, "--stations has no effect", arguments=("--cluster", "x.json", "--stations", "4"), model=None)
        self.refuse(1, "not found", "x.json", arguments=("--cluster", "/nonexistent/x.json"), model=None)

    def test_a_directory_of_ones_own(self):
        with tempfile.TemporaryDirectory() as d:
            place = os.path.join(d, "a", "b")
            cluster = self.up("--listen", "127.0.0.1:0", "--dir", place, *self.SMALL)
            key = os.path.join(place, "key")
            self.assertEqual(os.stat(key).st_mode & 0o777, 0o600)
            with open(key) as f:
                first = f.read()
            self.refuse(1, "another `cobord up`", arguments=("--listen", "127.0.0.1:0", "--dir", place))
            with open(os.path.join(place, "cluster.json")) as f:
                station = json.load(f)["stations"][0]["address"]
            connection = http.client.HTTPConnection(station)
            connection.request("POST", "/forward", b"x" * 200)  # without the key
            self.assertEqual(connection.getresponse().status, 401)
            connection.close()
            self.assertEqual(cluster.stop(), 0)
            for name in ("cluster.json", "key", "station-0.log", "coordinator-0.log"):
                self.assertTrue(os.path.exists(os.path.join(place, name)), name)
            again = self.up("--listen", "127.0.0.1:0", "--dir", place, *self.SMALL)
            with open(key) as f:
                self.assertEqual(f.read(), first)
            self.assertEqual(again.stop(), 0)

    def test_a_cluster_file_of_plan(self):
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "cluster.json")
            subprocess.run(
                [COBORD, "plan", MODEL, "-o", path, "--listen", "127.0.0.1:0", "--ranges", "0-10.ffn_up,10.ffn_up-end",
                 "--shards", "2", "--context", "512", "--slots", "2"],
                check=True, capture_output=True, env=environment(d),
            )
            with open(path) as f:
                text = f.read()
            self.assertEqual(len(set(re.findall(r"127\.0\.0\.1:(\d+)", text))), 5)
            file = json.loads(text)
            self.assertEqual(len(give_ports(file)), 5)
            with open(path, "w") as f:
                json.dump(file, f)
            cluster = self.up("--cluster", path, model=None)
            self.assertEqual(cluster.ask(), alone("--temperature", "0"))
            self.assertEqual(cluster.stop(), 0)

    def test_a_node_that_cannot_work_ends_it_with_its_words(self):
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "cluster.json")
            subprocess.run(
                [COBORD, "plan", MODEL, "-o", path, "--listen", "127.0.0.1:0", "--shards", "2", "--context", "512"],
                check=True, capture_output=True, env=environment(d),
            )
            with open(path) as f:
                cluster = json.load(f)
            cluster["memory"] = 24 * MIB  # too little for the stations
            give_ports(cluster)
            with open(path, "w") as f:
                json.dump(cluster, f)
            ended = self.refuse(1, "again and again", "may take 24.0 MiB", arguments=("--cluster", path), model=None)
            self.assertEqual(ended.nodes(), {})

    def test_wardens_die_too(self):
        cluster = self.up("--listen", "127.0.0.1:0", "--wardens", "--shards", "2", "--context", "512", "--slots", "1")
        self.assertEqual({n for n in cluster.nodes() if "warden" in n},
                         {"layer-warden-0", "layer-warden-1", "shard-warden-0"})
        expected = alone("--temperature", "0")
        self.assertEqual(cluster.ask(), expected)
        for node in ("layer-warden-0", "shard-warden-0"):
            with self.subTest(node):
                old = []
                self.assertEqual(cluster.stream(5, lambda: old.append(cluster.kill(node))), expected)
                cluster.wait_for_new(node, old[0])
        for node, pid in cluster.nodes().items():
            self.assertLessEqual(status(pid, "VmHWM"), 128 * 1024, node)
        self.assertEqual(cluster.stop(), 0)

    def test_many_workers_hold_everything(self):
        small = ("--memory", "48M", "--context", "512", "--slots", "1")
        cluster = self.up("--listen", "127.0.0.1:0", "--workers", "9", *small)
        nodes = cluster.nodes()
        self.assertEqual(len(nodes), 10)
        self.assertEqual(cluster.ask(), alone("--temperature", "0"))
        for node, pid in nodes.items():
            self.assertLessEqual(status(pid, "VmHWM"), 48 * 1024, node)
        self.assertEqual(cluster.stop(), 0)

    def test_replicas_and_wide_addresses(self):
        cluster = Up("--listen", "0.0.0.0:0", "--replicas", "1", *self.SMALL, wait=False)
        self.addCleanup(cluster.close)
        line = cluster.process.stdout.readline()
        match = re.search(r"http://0\.0\.0\.0:(\d+)$", line.strip())
        self.assertTrue(match, (line, cluster.errors()))
        cluster.port = int(match.group(1))
        self.assertIn("anyone who reaches 0.0.0.0", cluster.errors())
        self.assertEqual(set(cluster.nodes()), {"coordinator-0", "station-0", "station-1", "shard-0", "shard-1"})
        expected = alone("--temperature", "0")
        self.assertEqual(cluster.stream(5, lambda: cluster.kill("station-0")), expected)
        self.assertEqual(cluster.stream(5, lambda: cluster.kill("station-1")), expected)
        self.assertEqual(cluster.stop(), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
