#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Helm chart: lint, what it renders with several values against Kubernetes' schemas, what it refuses, and that the
rendered pods run: the real program with the rendered arguments, files and users."""
import copy
import http.client
import json
import pathlib
import subprocess
import tempfile
import time
import unittest

import _installed as installed
import _kubelet as kubelet
import _packages as packages
from _nodes import environment, support, wait_for

CHART = installed.ROOT / "deploy/helm/cobord"
KUBERNETES = "1.31.0"
MODEL = "smollm2-135m"
SMALL = ["cluster.stations=2", "cluster.shards=2", "cluster.context=512"]
VALUES = {
    "as it is": [],
    "small": SMALL,
    "without shards": ["cluster.shards=0", "cluster.stations=3"],
    "replicas": ["cluster.replicas=2", *SMALL],
    "wardens": ["cluster.wardens=true", "model.store=s3://models/knots", "model.storeSecret=bucket",
                "model.storeEnv.AWS_REGION=auto", *SMALL],
    "everything": ["cluster.wardens=true", "model.store=/srv/models", "model.volume.hostPath.path=/srv",
                   "cache.persistence=true", "cache.storageClass=fast", "coordinator.persistence.enabled=true",
                   "apiKeys.value=keys", "tls.existingSecret=tls", "clusterKey.existingSecret=key",
                   "priorityClassName=high", "nodeSelector.disk=ssd", "podLabels.team=a",
                   "podAnnotations.note=b", "image.tag=v1", "imagePullSecrets[0].name=pull",
                   "tolerations[0].operator=Exists", "coordinator.threads=2", "station.threads=2",
                   "networkPolicy.clients[0].podSelector.matchLabels.app=web", "service.type=LoadBalancer",
                   "service.annotations.a=b", "coordinator.extraArgs[0]=--isa=scalar",
                   "station.extraEnv[0].name=A", "station.extraEnv[0].value=b"],
}


def setUpModule():
    global yaml, kubernetes_validate, HELM
    done = subprocess.run([installed.ROOT / "scripts/helm"], capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise unittest.SkipTest(f"helm cannot be built here: {done.stderr[-300:]}")
    HELM = done.stdout.strip()
    packages.need("kubernetes_validate", "1.37.0")
    import kubernetes_validate
    import yaml


def helm(*arguments):
    return subprocess.run([HELM, *map(str, arguments)], capture_output=True, text=True, timeout=60)


def settings(values):
    return [word for v in values for word in ("--set-string" if v.endswith("=b") else "--set", v)]


def render(values, *more):
    done = helm("template", "t", CHART, "--kube-version", KUBERNETES, *settings(values), *more)
    assert done.returncode == 0, done.stderr
    return [o for o in yaml.safe_load_all(done.stdout) if o]


def cluster_of(objects):
    return json.loads(next(o for o in objects if o["kind"] == "ConfigMap")["data"]["cluster.json"])


def pods_of(objects):
    return [o for o in objects if o["kind"] in ("StatefulSet", "Deployment")]


class Rendered(unittest.TestCase):
    def test_lint(self):
        for name, values in VALUES.items():
            with self.subTest(name):
                done = helm("lint", "--strict", CHART, "--kube-version", KUBERNETES, *settings(values))
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertNotIn("WARNING", done.stdout)

    def test_objects_are_kubernetes_own(self):
        for name, values in VALUES.items():
            for o in render(values):
                with self.subTest(name, kind=o["kind"]):
                    kubernetes_validate.validate(o, "1.31", strict=True)
        broken = copy.deepcopy(pods_of(render([]))[0])
        broken["spec"]["replica"] = 2
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(broken, "1.31", strict=True)

    def test_names_agree(self):
        for name, values in VALUES.items():
            with self.subTest(name):
                self.check_names(render(values))

    def check_names(self, objects):
        labels = [o["spec"]["template"]["metadata"]["labels"] for o in pods_of(objects)]
        self.assertEqual(len({(o["kind"], o["metadata"]["name"]) for o in objects}), len(objects))
        for o in objects:
            selector = o["spec"].get("selector") if "spec" in o else None
            wanted = selector and selector.get("matchLabels", selector)
            if wanted:
                self.assertEqual(sum(wanted.items() <= have.items() for have in labels), 1, o["metadata"]["name"])
        for o in pods_of(objects):
            spec = o["spec"]["template"]["spec"]
            claims = [c["metadata"]["name"] for c in o["spec"].get("volumeClaimTemplates", [])]
            volumes = {v["name"] for v in spec["volumes"]} | set(claims)
            for c in spec["containers"] + spec.get("initContainers", []):
                self.assertLessEqual({m["name"] for m in c["volumeMounts"]}, volumes)
                self.assertTrue(c["securityContext"]["readOnlyRootFilesystem"])
            # Each address of the file is a pod of this set, by the name that its Service gives it.
            role = o["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]
            ids = [n["id"] for n in self.members(cluster_of(objects), role)]
            self.assertEqual(sorted(ids), sorted(f"{role}-{i}" for i in range(o["spec"]["replicas"])))

    def members(self, file, role):
        if role == "coordinator":
            return [file["coordinator"]]
        nodes = file[role.replace("-", "_") + "s"]
        return [n for node in nodes for n in (node, *node.get("replicas", []))]

    def test_limits_follow_the_budget(self):
        for o in pods_of(render(["cluster.memory=256Mi", "cluster.wardens=true", "model.store=/m",
                                 "memoryOverhead=16Mi"])):
            warden = "warden" in o["metadata"]["name"]
            limit = int(o["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"])
            self.assertEqual(limit, (144 if warden else 272) << 20)

    def test_one_key_is_kept_out_of_sight(self):
        text = json.dumps([o for o in render(["clusterKey.value=0123456789"]) if o["kind"] != "Secret"])
        self.assertNotIn("0123456789", text)

    def test_what_is_refused(self):
        for values, word in ([["cluster.stations=0"], "stations"], [["model.knotId=XYZ"], "knotId"],
                             [["cluster.stationRanges={0-15}"], "1 ranges for 2 stations"],
                             [["cluster.wardens=true"], "model.store"], [["no.such=1"], "no"],
                             [["cluster.plan=nonsense"], "cobord plan"], [["cluster.memory=1e9"], "memory"]):
            with self.subTest(values):
                done = helm("template", "t", CHART, "--kube-version", KUBERNETES, *settings(values))
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(word, done.stderr)


class Accepted(unittest.TestCase):
    """The program reads the files that are rendered."""

    def test_files_of_all_values(self):
        for name, values in VALUES.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / "cluster.json"
                path.write_text(json.dumps(cluster_of(render(values))))
                done = subprocess.run([installed.BUILD / "cobord", "node", "--cluster", path, "--id", "station-999"],
                                      capture_output=True, text=True, timeout=30, env=environment())
                # It got as far as looking for the id.
                self.assertIn("station-999; the file has coordinator-0 station-0", done.stderr)

    def test_what_comes_without_values_fits(self):
        file = cluster_of(render([]))
        support.must("plan", MODEL, "--stations", len(file["stations"]), "--shards", len(file["shards"]), "--slots",
                     file["sessions"], "--context", file["context"], "--memory", file["memory"])

    def test_a_plan_goes_through(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "plan.json"
            support.must("plan", MODEL, "--hosts", "10.0.0.1,10.0.0.2", "--replicas", "1", "--context", "700",
                         "--key-file", path.with_name("key"), "-o", path)
            planned = json.loads(path.read_text())
            objects = render([], "--set-file", f"cluster.plan={path}")
        file = cluster_of(objects)
        for member in ("memory", "context", "sessions", "chunk", "element"):
            self.assertEqual(file[member], planned[member])
        for kind, range_name in (("stations", "range"), ("shards", "ids")):
            self.assertEqual([n[range_name] for n in file[kind]], [n[range_name] for n in planned[kind]])
        self.assertEqual({o["metadata"]["name"]: o["spec"]["replicas"] for o in pods_of(objects)},
                         {"t-cobord-station": 4, "t-cobord-shard": 4, "t-cobord-coordinator": 1})


class Running(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        kubelet.need()
        kubelet.own_network()

    def begin(self, values, *more, key=None):
        pods = kubelet.Kubelet(render(values, *more), list(support.models_folder().glob(f"{MODEL}.knot*")))
        self.addCleanup(pods.stop)
        if cluster_of(pods.objects)["model"]["store"]:
            pods.bring_model(pods.share("models"), "")
        for pod in pods.pods:
            pods.start(pod)
        for pod in pods.pods[:-1]:
            self.assertTrue(wait_for(lambda: pods.probe(pod) == 0, 60), pods.log(pod))
        coordinator = pods.pods[-1]
        self.assertTrue(wait_for(lambda: self.ask(coordinator, "/ready")[0] == 200, 60), pods.log(coordinator))
        status, answer = self.ask(coordinator, "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Say yes."}], "max_tokens": 4, "temperature": 0}, key=key)
        self.assertEqual((status, answer["usage"]["completion_tokens"]), (200, 4))
        return pods

    def test_the_pods_answer(self):
        pods = self.begin(SMALL)
        station = pods.pod("station-0")
        self.assertNotIn("chmod", pods.log(station))  # the mounted key is nobody else's
        self.assertNotIn("resumed", pods.log(pods.pods[-1]))  # the journal has its place
        station.process.kill()
        station.process.wait()
        self.assertEqual(pods.probe(station), 1)

    def test_keys_of_clients(self):
        key = "a-key-of-this-test"
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            json.dump({"keys": [{"name": "a", "key": key}]}, f)
            f.flush()
            pods = self.begin(SMALL, "--set-file", f"apiKeys.value={f.name}", key=key)
        self.assertEqual(self.ask(pods.pods[-1], "/v1/models")[0], 401)
        self.assertNotIn("chmod", pods.log(pods.pods[-1]))

    def test_pods_with_a_store_and_wardens(self):
        pods = self.begin(["cluster.wardens=true", "model.store=/srv/models", "model.volume.hostPath.path=/srv",
                           *SMALL])
        roles = [p.name.removeprefix("t-cobord-") for p in pods.pods]
        self.assertEqual(sorted(roles), ["coordinator-0", "layer-warden-0", "layer-warden-1", "shard-0", "shard-1",
                                         "shard-warden-0", "station-0", "station-1"])

    def ask(self, pod, path, body=None, host="127.0.0.1", key=None):
        # The coordinator listens on all addresses; only its port is in the file.
        connection = http.client.HTTPConnection(host, 8080, timeout=30)
        try:
            connection.request("POST" if body else "GET", path, json.dumps(body) if body else None,
                               {"Authorization": "Bearer " + key} if key else {})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError):
            time.sleep(0.05)
            return 0, None
        finally:
            connection.close()


if __name__ == "__main__":
    unittest.main()
