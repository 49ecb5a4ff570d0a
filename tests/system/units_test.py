#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The systemd units: what systemd says of them, how little they may do, and that the program really works so, under a
systemd that runs in a container."""
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

import _booted as booted
import _installed as installed
from _nodes import give_ports, members, support, wait_for
from _ports import free_port

UNITS = ["cobord.service", "cobord-node@.service", "cobord-pull@.service"]
EXPOSURE_MAX = 2.0
MODEL = "smollm2-135m"
QUESTION = {"messages": [{"role": "user", "content": "Say yes."}], "max_tokens": 8, "temperature": 0}


def analyze(*arguments):
    return subprocess.run(["systemd-analyze", *map(str, arguments)], capture_output=True, text=True, timeout=60)


@unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is missing: apt-get install systemd")
class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        installed.install("", prefix=str(self.root))  # so that the program is where the units say
        self.units = self.root / "lib/systemd/system"

    def with_examples(self, unit):
        """The unit as it is with every example that is for it."""
        for example in (self.root / "share/doc/cobord/examples/systemd").glob("*.conf"):
            if ("cobord-node@" in example.read_text()) == (unit == UNITS[1]):
                folder = self.units / f"{unit}.d"
                folder.mkdir(exist_ok=True)
                shutil.copy(example, folder)

    def test_verify_has_nothing_to_say(self):
        for unit in UNITS:
            for examples in (False, True):
                with self.subTest(unit, examples=examples):
                    if examples:
                        self.with_examples(unit)
                    path = self.units / unit.replace("@", "@station-0")
                    if path.name != unit:
                        path.symlink_to(unit) if not path.exists() else None
                    done = analyze("verify", "--man=no", path)
                    self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_they_may_do_little(self):
        for unit in UNITS:
            with self.subTest(unit):
                done = analyze("security", "--offline=true", self.units / unit)
                level = float(re.search(r"exposure level for \S+: (\S+)", done.stdout).group(1))
                self.assertLessEqual(level, EXPOSURE_MAX, done.stdout)

    def test_the_filter_names_what_systemd_knows(self):
        text = (self.units / UNITS[0]).read_text()
        sets = re.findall(r"^SystemCallFilter=~?(.*)$", text, re.M)
        for name in " ".join(sets).split():
            self.assertEqual(analyze("syscall-filter", name).returncode, 0, name)


class Booted(unittest.TestCase):
    """One container for all: each test brings its own unit."""

    @classmethod
    def setUpClass(cls):
        booted.need()
        cls.machine = booted.Booted(support.models_folder().glob(f"{MODEL}.*")).__enter__()
        cls.addClassCleanup(cls.machine.__exit__)
        cls.port = free_port()
        (cls.machine.root / "etc/default/cobord").write_text(
            f"COBORD_MODEL={MODEL}\nCOBORD_LISTEN=127.0.0.1:{cls.port}\nCOBORD_CONTEXT=512\n")

    def ask(self, path, body=None, port=None, key=None):
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=60)
        headers = {"Authorization": "Bearer " + key} if key else {}
        try:
            connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def text(self, port=None):
        status, answer = self.ask("/v1/chat/completions", QUESTION, port)
        self.assertEqual(status, 200, answer)
        return json.loads(answer)["choices"][0]["message"]["content"]

    def wait_ready(self, port=None):
        self.assertTrue(wait_for(lambda: self.ask("/ready", port=port)[0] == 200, 90), self.machine.journal())

    def is_said(self, word, unit="cobord*"):
        """The journal takes a line when it has its turn."""
        self.assertTrue(wait_for(lambda: word in self.machine.journal(unit), 60), self.machine.journal(unit))

    def drop_in(self, unit, text):
        folder = self.machine.root / f"etc/systemd/system/{unit}.d"
        folder.mkdir(exist_ok=True)
        (folder / "test.conf").write_text(text)
        self.machine.run("systemctl", "daemon-reload")

        def undo():
            shutil.rmtree(folder)
            self.machine.run("systemctl", "daemon-reload")
        self.addCleanup(undo)

    def start(self, *units):
        self.addCleanup(self.machine.enter, "systemctl", "stop", *units)
        self.machine.run("systemctl", "start", *units)

    def confined(self, unit):
        pid, status = self.machine.status_of(unit)
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"], int(status["CapEff"], 16)), ("1", "2", 0))
        self.assertNotEqual(status["Uid"].split()[0], "0")
        return pid

    def test_serve(self):
        self.start("cobord")
        self.wait_ready()
        self.confined("cobord")
        self.assertTrue(self.text())
        self.assertTrue((self.machine.root / "var/lib/private/cobord/journal.db").exists())
        self.assertNotIn("cannot be resumed", self.machine.journal())
        # The service sees no /proc/meminfo; its budget is the machine's memory at most all the same.
        budgets = [int(n) for n in re.findall(r'"budget_bytes": ?(\d+)', self.ask("/cluster")[1])]
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self.assertTrue(budgets and max(budgets) <= machine, budgets)

    def test_reload_keeps_what_runs(self):
        self.start("cobord")
        self.wait_ready()
        before, _ = self.machine.status_of("cobord")
        self.machine.run("systemctl", "reload", "cobord")
        time.sleep(0.5)
        self.assertEqual(self.machine.status_of("cobord")[0], before)
        self.assertEqual(self.ask("/health")[0], 200)

    def test_keys_that_only_root_can_read(self):
        file = self.machine.root / "etc/cobord/api-keys.json"
        key = support.must("keys", "new", "ops", "--admin", "--file", file).decode().split()[0]
        examples = self.machine.root.parent / "stage/usr/local/share/doc/cobord/examples/systemd"
        self.drop_in("cobord.service", (examples / "keys.conf").read_text())
        self.start("cobord")
        self.wait_ready()
        self.assertEqual(self.ask("/v1/models")[0], 401)
        self.assertEqual(self.ask("/v1/models", key=key)[0], 200)
        self.machine.run("systemctl", "reload", "cobord")
        self.assertEqual(self.ask("/v1/models", key=key)[0], 200)

    def test_a_stop_finishes_what_was_begun(self):
        self.start("cobord")
        self.wait_ready()
        body = dict(QUESTION, stream=True, max_tokens=60, logit_bias={"2": -100, "0": -100})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        answer = connection.getresponse()
        answer.readline()
        stop = threading.Thread(target=self.machine.run, args=("systemctl", "stop", "cobord"))
        stop.start()
        text = answer.read().decode()
        connection.close()
        stop.join()
        self.assertTrue(text.rstrip().endswith("data: [DONE]"), text[-300:])
        self.assertIn('"finish_reason":"length"', text)
        self.assertEqual(self.machine.run("systemctl", "show", "-p", "Result", "--value", "cobord").strip(), "success")

    def test_what_dies_comes_back(self):
        self.drop_in("cobord.service", "[Service]\nRestartSec=100ms\n")
        self.start("cobord")
        self.wait_ready()
        pid, _ = self.machine.status_of("cobord")
        self.machine.run("kill", f"-{signal.SIGKILL.value}", pid)

        def main_pid():
            return self.machine.run("systemctl", "show", "-p", "MainPID", "--value", "cobord").strip()
        self.assertTrue(wait_for(lambda: self.ask("/health")[0] == 200 and main_pid() not in ("0", pid), 60))

    def test_a_wrong_setting_is_said_once(self):
        self.drop_in("cobord.service", "[Service]\nRestartSec=100ms\nExecStart=\n"
                                       "ExecStart=/usr/local/bin/cobord serve smollm2-135m --slots many\n")
        self.machine.enter("systemctl", "start", "cobord")
        self.assertTrue(wait_for(lambda: self.machine.enter("systemctl", "is-failed", "cobord").returncode == 0, 60))
        time.sleep(0.5)
        self.assertEqual(self.machine.run("systemctl", "show", "-p", "NRestarts", "--value", "cobord").strip(), "0")
        self.is_said("--slots")
        self.machine.run("systemctl", "reset-failed")

    def test_pull_where_the_others_look(self):
        self.machine.run("systemctl", "start", f"cobord-pull@{MODEL}")
        self.is_said("is ready", "cobord-pull@*")

    def test_nodes(self):
        units = self.write_cluster()
        # This station finds no model, and has its weights from the warden's memory by the socket.
        (self.machine.root / "etc/default/cobord-station-0").write_text("COBORD_CACHE=/var/lib/cobord/none\n")
        self.start(*units)
        self.wait_ready(self.ports[0])
        for unit in units:
            self.confined(unit)
        self.assertTrue(self.text(self.ports[0]))
        pid, _ = self.machine.status_of("cobord-node@station-0")
        shared = self.machine.run("sh", "-c", f"ls -l /proc/{pid}/fd /proc/{pid}/map_files")
        self.assertRegex(shared, rf"memfd:|{MODEL}\.knot")
        self.assertFalse(list((self.machine.root / "var/lib/private/cobord/none").glob("slices/*/station-0.knot")))
        self.assertNotIn("chmod", self.machine.journal("cobord-node@*"))

    def write_cluster(self):
        etc = self.machine.root / "etc/cobord"
        support.must("plan", MODEL, "--stations", 2, "--shards", 2, "--context", 512, "--wardens", "--key-file",
                     etc / "cluster.key", "-o", etc / "cluster.json")
        file = json.loads((etc / "cluster.json").read_text())
        file["key_file"] = "cluster.key"
        nodes = members(file)
        self.ports = give_ports(file)
        for node in file["layer_wardens"]:
            node["socket"] = f"/run/cobord/{node['id']}"
        (etc / "cluster.json").write_text(json.dumps(file))
        os.chmod(etc / "cluster.json", 0o600)
        return [f"cobord-node@{n['id']}" for n in [*nodes[5:], *nodes[:5]]]


if __name__ == "__main__":
    unittest.main()
