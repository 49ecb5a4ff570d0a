#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cobord deploy cloudflare: the plan, the configurations, what the real wrangler says of them offline and how it runs
them, the upload to a real S3 gateway, and the order of what a deployment does.

A deployment needs an account at Cloudflare. What it does there goes through wrangler, so a stand-in notes how wrangler
is called; everything else is real."""
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import _cloudflare
import _packages
import _servers
from _terminal import Terminal, environment

ROOT = pathlib.Path(__file__).resolve().parents[2]
COBORD = os.path.abspath(os.environ.get("COBORD", "build/cobord"))
MODULES = pathlib.Path(os.environ.get("COBORD_WASM", ROOT / "build-wasm"))
MODEL = "smollm2-135m"
MIB = 1 << 20
BLOCK = 256 << 10
ACCOUNT = "0123456789abcdef" * 2
SECRET_NAMES = ("AWS_", "COBORD_", "CLOUDFLARE_", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
CLASSES = {"coordinator": "Coordinator", "station": "Station", "shard": "Shard", "layer-warden": "LayerWarden",
           "shard-warden": "ShardWarden"}
SCRIPTS = {"coordinator": "coordinator.mjs", "station": "station.mjs", "shard": "shard.mjs",
           "layer-warden": "layer_warden.mjs", "shard-warden": "shard_warden.mjs"}

STAND_IN = """\
#!/usr/bin/env python3
import json, os, sys, time
state = {state!r}
with open(os.path.join(state, "calls"), "a") as f:
    f.write(json.dumps({{"arguments": sys.argv[1:], "account": os.environ.get("CLOUDFLARE_ACCOUNT_ID")}}) + "\\n")
spaces = os.path.join(state, "spaces")
words = sys.argv[1:]
def is_meant(name, wish):
    return wish in os.environ and name.endswith(os.environ[wish])
if words[:3] == ["kv", "namespace", "list"]:
    print(open(spaces).read() if os.path.exists(spaces) else "[]")
    print("a warning that is no JSON", file=sys.stderr)
if words[:3] == ["kv", "namespace", "create"]:
    with open(spaces, "w") as f:
        json.dump([{{"id": "f" * 32, "title": "another"}}, {{"id": "ab" * 16, "title": words[3]}}], f)
if words[:3] == ["r2", "bucket", "create"]:
    os.makedirs(os.path.join(state, "store", words[3]))
if words[0] == "deploy" and "--dry-run" not in words:
    config = json.load(open(words[words.index("--config") + 1]))
    if is_meant(config["name"], "STAND_IN_FAILS"):
        print("\\x1b[31m\\u2718 \\x1b[41;31m[\\x1b[41;97mERROR\\x1b[41;31m]\\x1b[0m \\x1b[1mA request to the API "
              "failed.\\x1b[0m")
        sys.exit(1)
    while is_meant(config["name"], "STAND_IN_WAITS") and not os.path.exists(os.path.join(state, "seen")):
        time.sleep(0.01)
    if config["workers_dev"]:
        print("Deployed " + config["name"] + " triggers\\n  https://" + config["name"] + ".someone.workers.dev")
"""


def kind_of(node_id):
    return node_id.rpartition("-")[0]


def wrangler():
    """The real one."""
    return os.path.join(_packages.need_locked(ROOT / "tests/workers"), "node_modules", ".bin", "wrangler")


def built_modules(folder):
    """The scripts and the modules, in one folder, as they would be installed."""
    if "COBORD_WASM" not in os.environ:
        subprocess.run([ROOT / "scripts/build", "wasm", "2"], check=True, capture_output=True, timeout=900)
    os.makedirs(folder)
    for path in [*(ROOT / "workers").glob("*.mjs"), *MODULES.glob("cobord*.wasm")]:
        shutil.copy(path, folder)


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.mkdtemp(prefix="cobord-deploy-")
        cls.addClassCleanup(shutil.rmtree, cls.shared)
        cls.modules = os.path.join(cls.shared, "modules")
        built_modules(cls.modules)

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="cobord-deploy-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.out = os.path.join(self.folder, "out")
        self.program = os.path.join(self.folder, "wrangler")
        with open(self.program, "w") as f:
            f.write(STAND_IN.format(state=self.folder))
        os.chmod(self.program, 0o755)

    def run_cobord(self, *arguments, program=COBORD, stdin=None, **environment):
        env = {k: v for k, v in os.environ.items() if not k.startswith(SECRET_NAMES) or k == "COBORD_CACHE"}
        env.update(XDG_CONFIG_HOME=os.path.join(self.folder, "config"), **environment)
        return subprocess.run([program, "deploy", "cloudflare", *map(str, arguments)], capture_output=True, text=True,
                              env=env, timeout=300, cwd=self.folder)

    def deploy(self, *arguments, model=MODEL, code=0, modules=True, wrangler_program=None, **environment):
        words = [model, "-o", self.out, "--wrangler", wrangler_program or self.program, *arguments]
        words += ["--modules", self.modules] if modules else []
        done = self.run_cobord(*words, **environment)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def plan(self, *arguments, **how):
        return json.loads(self.deploy("--json", *arguments, **how).stdout)

    def refuse(self, word, *arguments, code=1, **how):
        done = self.deploy(*arguments, code=code, **how)
        self.assertRegex(done.stderr, r"\Acobord: [^\n]+\n\Z")
        self.assertIn(word, done.stderr)
        self.assertEqual(done.stdout, "")
        return done.stderr

    def configuration(self, node_id):
        with open(os.path.join(self.out, node_id, "wrangler.json")) as f:
            return json.load(f)

    def configurations(self):
        return {p.parent.name: json.loads(p.read_text()) for p in pathlib.Path(self.out).glob("*/wrangler.json")}

    def cluster(self):
        with open(os.path.join(self.out, "cluster.json")) as f:
            return json.load(f)

    def calls(self):
        with open(os.path.join(self.folder, "calls")) as f:
            return [json.loads(line) for line in f]


class Plans(Case):
    def check_bindings(self, plan):
        """Who is who, in every configuration."""
        all_, cluster = self.configurations(), self.cluster()
        self.assertEqual(sorted(all_), sorted(s["id"] for s in plan["scripts"]))
        names = {s["id"]: s["script"] for s in plan["scripts"]}
        for node_id, c in all_.items():
            kind = kind_of(node_id)
            self.assertEqual(c["name"], names[node_id])
            self.assertRegex(c["name"], r"\A[a-z0-9-]{1,63}\Z")
            self.assertEqual(os.path.basename(c["main"]), SCRIPTS[kind])
            self.assertTrue(os.path.isfile(os.path.join(self.out, node_id, c["main"])))
            self.assertEqual(c["durable_objects"]["bindings"], [{"name": "NODE", "class_name": CLASSES[kind]}])
            self.assertEqual(c["migrations"][0]["new_sqlite_classes"], [CLASSES[kind]])
            self.assertEqual(c["r2_buckets"], [{"binding": "KNOT_BUCKET", "bucket_name": plan["bucket"]}])
            v = c["vars"]
            self.assertEqual((v["NODE_ID"], v["KNOT_KEY"]), (node_id, plan["knot_key"]))
            self.assertEqual(v["KNOT_ID"], cluster["model"]["knot_id"])
            self.assertIn(v["KNOT_ID"], v["KNOT_KEY"])
            self.assertNotIn("CLUSTER_KEY", v)  # a secret, not a variable
            for name, value in v.items():
                self.assertIsInstance(value, str, name)
                self.assertLessEqual(len(value), 5000, name)
            for service in c["services"]:
                self.assertIn(service["service"], names.values())
            self.assertEqual("kv_namespaces" in c, kind == "shard-warden")
        return all_, cluster

    def coordinator_of(self, all_, cluster):
        c = all_["coordinator-0"]
        text = c["vars"]["CLUSTER"]
        for i in range(1, 1000):
            text += c["vars"].get(f"CLUSTER_{i}", "")
        same = {**cluster, "key_file": ""}
        self.assertEqual(json.loads(text), same)
        bound = {s["binding"]: s["service"] for s in c["services"]}
        entries = [e for kind in ("stations", "shards", "layer_wardens", "shard_wardens") for e in cluster[kind]]
        nodes = [n for e in entries for n in [e, *e.get("replicas", [])]]
        self.assertEqual(sorted(bound), sorted(n["id"].upper().replace("-", "_") for n in nodes))
        for n in nodes:
            self.assertTrue(bound[n["id"].upper().replace("-", "_")].endswith("-" + n["id"]))
        return c

    def test_all_weights_stay(self):
        plan = self.plan("--dry-run")
        all_, cluster = self.check_bindings(plan)
        self.coordinator_of(all_, cluster)
        self.assertEqual((plan["r2_bytes_per_token"], plan["r2_reads_per_token"]), (0, 0))
        self.assertEqual(plan["memory_bytes"], 96 * MIB)
        for s in plan["scripts"]:
            self.assertEqual(s.get("streamed_bytes", 0), 0)
            self.assertTrue(s.get("keeps_rows", True))
        ranges = [(all_[s["id"]]["vars"]["SPECIALIZATION_START"], all_[s["id"]]["vars"]["SPECIALIZATION_END"])
                  for s in cluster["stations"]]
        self.assertEqual(["-".join(r) for r in ranges], [s["range"] for s in cluster["stations"]])
        roles = [all_[s["id"]]["vars"]["SPECIALIZATION_ROLE"] for s in cluster["stations"]]
        self.assertEqual(roles, ["entry"] + ["middle"] * (len(roles) - 2) + ["exit"])
        for s in cluster["shards"]:
            v = all_[s["id"]]["vars"]
            self.assertEqual([int(v["VOCAB_START"]), int(v["VOCAB_END"])], s["ids"])
        self.assertFalse(any(c["workers_dev"] for i, c in all_.items() if i != "coordinator-0"))
        self.assertTrue(all_["coordinator-0"]["workers_dev"])
        fewer = self.plan("--dry-run", "--stations", plan["stations"] - 1, "--shards", plan["shards"])
        self.assertGreater(fewer["r2_bytes_per_token"], 0)  # it took no more than it needed

    def test_streamed(self):
        plan = self.plan("--dry-run", "--stations", 2, "--shards", 2, "--memory", "64M")
        all_, _ = self.check_bindings(plan)
        streamed = reads = 0
        for s in plan["scripts"]:
            if "pinned_bytes" not in s:
                continue
            self.assertEqual(int(all_[s["id"]]["vars"]["PINNED_BYTES"]), s["pinned_bytes"])
            if s["streamed_bytes"]:
                self.assertEqual((s["pinned_bytes"] % BLOCK, s["streamed_bytes"] % BLOCK), (0, 0))
                self.assertGreater(s["reads"], 0)
            streamed, reads = streamed + s["streamed_bytes"], reads + s["reads"]
        self.assertGreater(streamed, 0)
        self.assertEqual((plan["r2_bytes_per_token"], plan["r2_reads_per_token"]), (streamed, reads))

    def test_wardens(self):
        plan = self.plan("--dry-run", "--stations", 2, "--shards", 3, "--wardens", "--memory", "64M")
        all_, cluster = self.check_bindings(plan)
        self.coordinator_of(all_, cluster)
        for s in cluster["stations"] + cluster["shards"]:
            kind = "LAYER_WARDEN" if "range" in s else "VOCAB_WARDEN"
            name = all_[s["warden"]]["name"]
            self.assertEqual(all_[s["id"]]["services"], [{"binding": kind, "service": name}])
        for kind, first, last in (("layer_wardens", "SPECIALIZATION_START", "SPECIALIZATION_END"),
                                  ("shard_wardens", "VOCAB_START", "VOCAB_END")):
            for w in cluster[kind]:
                v = all_[w["id"]]["vars"]
                self.assertEqual(int(v["MEMORY_BUDGET_BYTES"]), 64 * MIB)
                expected = w["range"].split("-") if "range" in w else list(map(str, w["ids"]))
                self.assertEqual([v[first], v[last]], expected)
        self.assertGreater(plan["warden_calls_per_token"], 0)
        self.assertLess(plan["r2_bytes_per_token"], plan["streamed_bytes_per_token"])

    def test_without_shards_and_replicas(self):
        plan = self.plan("--dry-run", "--stations", 3, "--shards", 0, "--replicas", 1)
        all_, cluster = self.check_bindings(plan)
        self.coordinator_of(all_, cluster)
        self.assertEqual(all_["station-0"]["vars"]["EMBED"], "1")
        self.assertEqual(all_["station-2"]["vars"]["HEAD"], "1")
        self.assertIn("LOGIT_ROWS", all_["station-5"]["vars"])
        self.assertNotIn("LOGIT_ROWS", all_["station-0"]["vars"])

    def test_many_nodes(self):
        """A cluster file that no single variable holds."""
        plan = self.plan("--dry-run", "--stations", 30, "--shards", 60)
        all_, cluster = self.check_bindings(plan)
        c = self.coordinator_of(all_, cluster)
        self.assertIn("CLUSTER_1", c["vars"])
        self.assertEqual(all_["station-7"]["vars"]["SPECIALIZATION_ROLE"], "middle")

    def test_the_cost_is_the_sum_of_the_units(self):
        prices = {"object_requests": 0.15, "object_gb_s": 12.5, "r2_reads": 0.36, "kv_reads": 0.5, "kv_writes": 5,
                  "cpu_ms": 0.02}
        for arguments in ([], ["--stations", 2, "--shards", 2, "--memory", "64M"], ["--stations", 2, "--wardens"]):
            plan = self.plan("--dry-run", *arguments)
            for kind in ("written", "prompt"):
                use = plan[kind]
                usd = sum(use[name] * price for name, price in prices.items())
                self.assertAlmostEqual(use["usd_per_million"], usd, delta=0.001 * usd + 0.001)
            calls = plan["stations"] + plan["shards"] + 1
            self.assertEqual(plan["calls_per_token"], calls)
            self.assertEqual(plan["written"]["object_requests"], calls + plan["warden_calls_per_token"])
            self.assertEqual(plan["written"]["r2_reads"], plan["r2_reads_per_token"])
            self.assertEqual(plan["tokens_per_invocation"], plan["calls_per_invocation"] // calls)
            self.assertLess(plan["prompt"]["usd_per_million"], plan["written"]["usd_per_million"])
        self.assertIn("they change", self.deploy("--dry-run").stdout)

    def test_larger_models(self):
        """As many scripts as its weights need, and no more: a gigabyte in isolates of 96 MiB."""
        plan = self.plan("--dry-run", model="qwen2.5-coder-1.5b")
        self.assertEqual(plan["r2_bytes_per_token"], 0)
        self.assertTrue(all(s.get("keeps_rows", True) for s in plan["scripts"]))
        self.assertGreater(plan["stations"], 8)
        self.assertLess(plan["stations"], 16)
        self.assertEqual(self.check_bindings(plan)[1]["model"]["name"], "qwen2.5-coder-1.5b")

    def test_native_nodes_among_them(self):
        plan = self.plan("--dry-run", "--subdomain", "someone", "--account", ACCOUNT)
        all_, cluster = self.check_bindings(plan)
        self.assertTrue(all(c["workers_dev"] and c["account_id"] == ACCOUNT for c in all_.values()))
        self.assertEqual(cluster["stations"][0]["address"], f"{MODEL}-station-0.someone.workers.dev:443")
        self.assertEqual((cluster["key_file"], cluster["tls"]["certificate"]), ("key", "node.pem"))

    def test_folders_that_are_not_of_a_deployment_stay(self):
        mine = pathlib.Path(self.out, "station-7", "mine")
        mine.parent.mkdir(parents=True)
        mine.write_text("x")
        self.plan("--dry-run")
        self.assertEqual(mine.read_text(), "x")

    def test_nothing_is_left_of_a_larger_plan(self):
        self.deploy("--dry-run", "--stations", 5)
        self.assertIn("station-4", os.listdir(self.out))
        self.deploy("--dry-run", "--stations", 2)
        self.assertEqual(sorted(f for f in os.listdir(self.out) if f.startswith("station")), ["station-0", "station-1"])

    def test_the_key(self):
        self.deploy("--dry-run")
        key = pathlib.Path(self.out, "key")
        secrets = pathlib.Path(self.out, "secrets.json")
        first = key.read_text().strip()
        self.assertEqual(json.loads(secrets.read_text()), {"CLUSTER_KEY": first})
        for path in (key, secrets):
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        for path in pathlib.Path(self.out).rglob("*"):
            if path.is_file() and path not in (key, secrets):
                self.assertNotIn(first.encode(), path.read_bytes())
        self.deploy("--dry-run", "--stations", 2)
        self.assertEqual(key.read_text().strip(), first)


class Refusals(Case):
    def test_usage(self):
        for word, arguments in (("--memory", ["--memory", "120M"]), ("--name", ["--name", "Bad_Name"]),
                                ("--bucket", ["--bucket", "x"]), ("--account", ["--account", "abc"]),
                                ("--subdomain", ["--subdomain", "a.b"])):
            self.refuse(word, "--dry-run", *arguments, code=2)
        self.assertEqual(self.run_cobord().returncode, 2)
        other = subprocess.run([COBORD, "deploy", "elsewhere", MODEL], capture_output=True, text=True)
        self.assertEqual(other.returncode, 2)
        self.assertIn("cloudflare", other.stderr)

    def test_plans_that_do_not_fit(self):
        self.refuse("MiB allowed", "--dry-run", "--memory", "12M", "--stations", 2, "--shards", 2)
        self.refuse("attention cache", "--dry-run", "--context", 8192, "--stations", 2, "--slots", 16)
        self.refuse("45", "--dry-run", "--free", "--stations", 10, "--shards", 9)
        self.refuse("may have 100", "--dry-run", "--free", "--stations", 20, "--shards", 20, "--replicas", 2)
        self.assertFalse(os.path.exists(self.out))

    def test_free_plan(self):
        plan = self.plan("--dry-run", "--free")
        self.assertEqual(plan["calls_per_invocation"], 45)
        self.assertEqual(self.configuration("coordinator-0")["vars"]["SUBREQUESTS_MAX"], "45")
        self.assertNotIn("limits", self.configuration("station-0"))

    def test_without_modules(self):
        empty = os.path.join(self.folder, "empty")
        os.makedirs(empty)
        for arguments in (["--modules", empty], ["--modules", "/no"]):
            self.assertIn("`make wasm`", self.refuse("make wasm", "--dry-run", *arguments, modules=False))
        bare = os.path.join(self.folder, "bare", "bin")
        os.makedirs(bare)
        shutil.copy(COBORD, bare)
        words = [MODEL, "-o", self.out, "--wrangler", self.program, "--dry-run"]
        done = self.run_cobord(*words, program=os.path.join(bare, "cobord"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("`make wasm`", done.stderr)
        shutil.copytree(self.modules, os.path.join(self.folder, "bare", "share", "cobord", "workers"))
        done = self.run_cobord(*words, program=os.path.join(bare, "cobord"))
        self.assertEqual(done.returncode, 0, done.stderr)
        tree = os.path.join(self.folder, "tree")
        os.makedirs(os.path.join(tree, "build"))
        shutil.copy(COBORD, os.path.join(tree, "build"))
        shutil.copytree(self.modules, os.path.join(tree, "workers"), ignore=shutil.ignore_patterns("*.wasm"))
        shutil.copytree(self.modules, os.path.join(tree, "build-wasm"), ignore=shutil.ignore_patterns("*.mjs"))
        done = self.run_cobord(*words, program=os.path.join(tree, "build", "cobord"))
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_without_wrangler(self):
        line = self.refuse("npm install", "--dry-run", wrangler_program="/no/wrangler")
        self.assertIn("/no/wrangler", line)

    def test_without_keys(self):
        self.refuse("--account", code=2)
        self.refuse("AWS_ACCESS_KEY_ID", "--account", ACCOUNT)
        self.assertFalse(os.path.exists(self.out))


class Deployments(Case):
    def setUp(self):
        super().setUp()
        os.makedirs(os.path.join(self.folder, "store", "cobord"))
        os.makedirs(os.path.join(self.folder, "sidecar"))
        self.server = _servers.start_s3(os.path.join(self.folder, "store"),
                                        sidecar=os.path.join(self.folder, "sidecar"))
        self.addCleanup(self.server.stop)

    def stored(self, plan, bucket="cobord"):
        return os.path.join(self.folder, "store", bucket, plan["knot_key"])

    def deployed(self):
        """Ids in the order in which their scripts were deployed."""
        return [os.path.basename(os.path.dirname(c["arguments"][2])) for c in self.calls()
                if c["arguments"][0] == "deploy" and "--dry-run" not in c["arguments"]]

    def test_whole(self):
        plan = self.plan("--wardens", "--account", ACCOUNT, "--stations", 2, "--shards", 2, **self.server.environment)
        knot = os.path.expanduser(os.path.join(os.environ.get("COBORD_CACHE", "~/.cache/cobord"), "models",
                                               f"{MODEL}.knot"))
        with open(self.stored(plan), "rb") as a, open(knot, "rb") as b:
            self.assertEqual(a.read(), b.read())
        order = ["layer-warden", "shard-warden", "shard", "station", "coordinator"]
        kinds = [order.index(kind_of(i)) for i in self.deployed()]
        self.assertEqual((kinds, len(kinds)), (sorted(kinds), len(plan["scripts"])))
        self.assertEqual({c["account"] for c in self.calls()}, {ACCOUNT})
        self.assertEqual([c["arguments"][0] for c in self.calls()][:2], ["--version", "whoami"])
        secrets = os.path.join(self.out, "secrets.json")
        for c in self.calls():
            if c["arguments"][0] == "deploy":
                self.assertEqual(c["arguments"][3:], ["--secrets-file", secrets])
        self.assertEqual(self.configuration("shard-warden-0")["kv_namespaces"],
                         [{"binding": "EMBED_CACHE", "id": "ab" * 16}])
        self.assertEqual(plan["url"], f"https://{MODEL}-coordinator-0.someone.workers.dev")
        # once more: nothing is sent, nothing is made
        before = os.stat(self.stored(plan)).st_mtime_ns
        done = self.deploy("--wardens", "--stations", 2, "--shards", 2, **self.server.environment)
        self.assertIn("there already", done.stderr)
        self.assertIn(plan["url"], done.stdout)
        self.assertEqual(os.stat(self.stored(plan)).st_mtime_ns, before)
        self.assertEqual(sum(c["arguments"][:3] == ["kv", "namespace", "create"] for c in self.calls()), 1)

    def test_a_damaged_object_is_replaced(self):
        plan = self.plan("--dry-run")
        with open(self.stored(plan), "wb") as f:
            f.truncate(int(self.configuration("station-0")["vars"]["KNOT_BYTES"]))
        self.deploy(**self.server.environment)
        with open(self.stored(plan), "rb") as f:
            self.assertEqual(f.read(4), b"KNOT")

    def test_a_bucket_is_made(self):
        plan = self.plan("--bucket", "another-one", **self.server.environment)
        self.assertTrue(os.path.isfile(self.stored(plan, "another-one")))

    def test_wrong_keys(self):
        wrong = {**self.server.environment, "AWS_SECRET_ACCESS_KEY": "not-the-secret"}
        line = self.refuse("AWS_ACCESS_KEY_ID", **wrong)
        self.assertNotIn("not-the-secret", line)
        self.assertEqual(self.deployed(), [])

    def test_a_script_that_fails(self):
        """Its name, wrangler's words without its colours, and nothing of what comes after it."""
        done = self.deploy("--stations", 2, "--shards", 2, code=1, STAND_IN_FAILS="station-0",
                           **self.server.environment)
        last = done.stderr.splitlines()[-1]
        self.assertRegex(last, r"station-0: \[ERROR\] A request to the API failed\..*station-0/wrangler\.log")
        self.assertNotIn("\x1b", last)
        self.assertEqual(self.deployed(), ["shard-0", "shard-1", "station-0"])

    def slowly(self):
        """The way to the store takes ten seconds for the file, and is in the environment's address."""
        way = self.enterContext(_servers.Slowly(self.server, 9 << 20))
        return way, {**self.server.environment, "COBORD_S3_ENDPOINT": f"http://127.0.0.1:{way.port}"}

    def begin(self, stderr, store, **how):
        env = {**{k: v for k, v in os.environ.items() if not k.startswith(SECRET_NAMES) or k == "COBORD_CACHE"},
               **store, "XDG_CONFIG_HOME": os.path.join(self.folder, "config")}
        words = [COBORD, "deploy", "cloudflare", MODEL, "-o", self.out, "--wrangler", self.program, "--modules",
                 self.modules]
        return subprocess.Popen(words, stderr=stderr, stdout=subprocess.PIPE, env=env, **how)

    def test_a_bar_on_a_terminal(self):
        way, store = self.slowly()
        env = {**environment(), **store, "XDG_CONFIG_HOME": os.path.join(self.folder, "config"),
               "STAND_IN_WAITS": "station-0"}
        words = [COBORD, "deploy", "cloudflare", MODEL, "-o", self.out, "--wrangler", self.program, "--modules",
                 self.modules]
        with Terminal(words, columns=80, env=env) as t:
            t.wait(r"^upload  \[=*>? *\] +\d+ %  \d+ MB of \d+ MB")
            way.hurry()
            t.wait(r"^deployed 2 of \d+: station-0")
            pathlib.Path(self.folder, "seen").touch()
            self.assertEqual(t.code(), 0)
            self.assertNotRegex(t.screen(), r"upload  \[")
            self.assertRegex(t.screen(), r"(?m)^cobord: deployed: \d+ scripts$")

    def test_ctrl_c(self):
        """In the middle of the upload: nothing has the final name, and the next run goes on."""
        way, store = self.slowly()
        p = self.begin(subprocess.PIPE, store, text=True)
        parts = pathlib.Path(self.folder, "store", "cobord")
        end = time.time() + 60
        while time.time() < end and not any(f.is_file() and f.stat().st_size >= 8 * MIB for f in parts.rglob("*")):
            time.sleep(0.01)
        p.send_signal(signal.SIGINT)
        _, errors = p.communicate(timeout=60)
        self.assertEqual(p.returncode, 128 + signal.SIGINT, errors)
        self.assertIn("goes on from there", errors)
        self.assertEqual([f.name for f in parts.iterdir() if f.name.endswith(".knot")], [])
        way.hurry()
        done = self.deploy(**store)
        self.assertIn("an upload that was begun goes on", done.stderr)


class RealWrangler(Case):
    """Offline: it reads the configurations, and runs them."""

    def test_every_configuration(self):
        for arguments in (["--account", ACCOUNT], ["--stations", 2, "--shards", 2, "--wardens", "--memory", "64M"],
                          ["--stations", 2, "--shards", 0, "--free", "--subdomain", "someone"]):
            plan = self.plan("--dry-run", *arguments, wrangler_program=wrangler())
            for s in plan["scripts"]:
                log = pathlib.Path(self.out, s["id"], "wrangler.log").read_text()
                self.assertIn("--dry-run: exiting now", log)
                self.assertNotIn("WARNING", log)
                self.assertIn("env.NODE", log)

    def test_it_would_find_faults(self):
        """What the stand-in cannot: a script that imports what is not there."""
        broken = os.path.join(self.folder, "broken")
        shutil.copytree(self.modules, broken)
        with open(os.path.join(broken, "shard.mjs"), "a") as f:
            f.write('\nimport "./nothing.mjs";\n')
        line = self.refuse("shard-0", "--dry-run", "--modules", broken, modules=False, wrangler_program=wrangler())
        self.assertIn("nothing.mjs", pathlib.Path(self.out, "shard-0", "wrangler.log").read_text())
        self.assertIn("ERROR", line)


class RealDeployment(Case):
    """The real wrangler, the real upload; in Cloudflare's place one that refuses bindings to what is not there."""

    def setUp(self):
        super().setUp()
        os.makedirs(os.path.join(self.folder, "store", "cobord"))
        os.makedirs(os.path.join(self.folder, "sidecar"))
        self.server = _servers.start_s3(os.path.join(self.folder, "store"),
                                        sidecar=os.path.join(self.folder, "sidecar"))
        self.addCleanup(self.server.stop)
        self.api = _cloudflare.Api(buckets=["cobord"])
        self.addCleanup(self.api.stop)

    def test_everything_arrives(self):
        words = ["--account", _cloudflare.ACCOUNT, "--stations", 2, "--shards", 2, "--wardens", "--memory", "64M"]
        environment = {**self.server.environment, **self.api.environment}
        plan = self.plan(*words, wrangler_program=wrangler(), **environment)
        self.assertEqual(self.api.refused, [])
        self.assertEqual(sorted(self.api.scripts), sorted(s["script"] for s in plan["scripts"]))
        self.assertEqual(list(self.api.scripts)[-1], f"{MODEL}-coordinator-0")
        self.assertEqual(self.api.addresses, {f"{MODEL}-coordinator-0"})
        self.assertEqual(plan["url"], f"https://{MODEL}-coordinator-0.someone.workers.dev")
        key = pathlib.Path(self.out, "key").read_text().strip()
        module = pathlib.Path(self.modules, "cobord-relaxed.wasm").read_bytes()
        for script in self.api.scripts.values():
            bindings = {b["name"]: b for b in script["metadata"]["bindings"]}
            self.assertEqual((bindings["CLUSTER_KEY"]["type"], bindings["CLUSTER_KEY"]["text"]), ("secret_text", key))
            self.assertEqual(bindings["KNOT_KEY"]["text"], plan["knot_key"])
            self.assertEqual(bindings["NODE"]["type"], "durable_object_namespace")
            self.assertIn(module, script["modules"].values())
        self.assertEqual([n["title"] for n in self.api.namespaces], [f"{MODEL}-rows"])
        # once more: the same scripts, nothing new beside them
        self.plan(*words, wrangler_program=wrangler(), **environment)
        self.assertEqual((len(self.api.scripts), len(self.api.namespaces)), (len(plan["scripts"]), 1))

    def test_a_wrong_token(self):
        environment = {**self.server.environment, **self.api.environment, "CLOUDFLARE_API_TOKEN": "wrong"}
        done = self.deploy("--account", _cloudflare.ACCOUNT, code=1, wrangler_program=wrangler(), **environment)
        last = done.stderr.splitlines()[-1]
        self.assertRegex(last, r"shard-0: \[ERROR\] .* Authentication error \[code: 10000\]\. All it said is in ")
        self.assertEqual(self.api.scripts, {})

    def test_who_is_not_logged_in(self):
        """Is told before anything is sent."""
        environment = {**self.server.environment, "HOME": self.folder,
                       "COBORD_CACHE": os.environ.get("COBORD_CACHE", os.path.expanduser("~/.cache/cobord"))}
        line = self.refuse("wrangler login", "--account", _cloudflare.ACCOUNT, wrangler_program=wrangler(),
                           **environment)
        self.assertIn("CLOUDFLARE_API_TOKEN", line)
        self.assertEqual(os.listdir(os.path.join(self.folder, "store", "cobord")), [])


class RunsHere(Case):
    """What was written runs on the real runtime, all scripts together, by the guide's own commands."""

    def guide(self):
        """The commands of docs/cloudflare.md that run the folder on this machine, and the call to it."""
        text = (ROOT / "docs/cloudflare.md").read_text()
        block = re.search(r"offline:\n\n((?:    .*\n|\n)+)", text)[1]
        return [line[4:] for line in block.splitlines() if line.strip()]

    def start(self, first):
        """`first` answers; the others are called by it."""
        port, inspector = _servers.free_port(), _servers.free_port()
        enter, key, put, dev, _ = self.guide()
        self.assertRegex(enter, r"\Acd cloudflare\Z")
        os.rename(self.out, os.path.join(self.folder, "cloudflare"))
        self.out = os.path.join(self.folder, "cloudflare")
        knot = os.path.join(os.path.expanduser(os.environ.get("COBORD_CACHE", "~/.cache/cobord")), "models")
        put = put.replace("~/.cache/cobord/models", knot)
        ids = sorted(self.configurations())
        self.assertEqual(ids[0], "coordinator-0")  # so it is the first of */wrangler.json
        dev = dev.replace("8787", str(port))
        if first != ids[0]:
            ids.remove(first)
            dev = dev.replace("*/wrangler.json", " ".join(f"{i}/wrangler.json" for i in [first, *ids]))
        script = f"set -e\n{enter}\n{key}\n{put}\nexec {dev} --inspector-port {inspector}\n"
        env = {k: v for k, v in os.environ.items() if not k.startswith(SECRET_NAMES)}
        env.update(CI="1", WRANGLER_SEND_METRICS="false", XDG_CONFIG_HOME=os.path.join(self.folder, "config"),
                   PATH=f"{os.path.dirname(wrangler())}:{os.environ['PATH']}")
        log = open(os.path.join(self.folder, "dev.log"), "w+")
        process = subprocess.Popen(["bash", "-c", script], cwd=self.folder, stdout=log, stderr=log, env=env,
                                   stdin=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(log.close)
        self.addCleanup(self.end, process)
        self.base = f"http://127.0.0.1:{port}"
        end = time.time() + 90
        while time.time() < end and process.poll() is None:
            try:
                return self.get("/health")
            except OSError:
                time.sleep(0.2)
        log.seek(0)
        self.fail(log.read()[-3000:])

    @staticmethod
    def end(process):
        """It and the runtime that it started: a group of their own."""
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def get(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self.base + path, data), timeout=120) as answer:
            return json.loads(answer.read())

    def test_a_node_is_what_the_plan_says(self):
        plan = self.plan("--dry-run", "--stations", 2, "--shards", 2, "--memory", "56M", "--wardens")
        by_id = {s["id"]: s for s in plan["scripts"]}
        self.start("station-1")
        ready = self.get("/ready")
        self.assertEqual((ready["id"], ready["knot_id"]), ("station-1", self.cluster()["model"]["knot_id"]))
        self.assertEqual(ready["weights"]["pinned_bytes"], by_id["station-1"]["pinned_bytes"])
        self.assertGreater(by_id["station-1"]["streamed_bytes"], 0)
        self.assertLessEqual(ready["memory"]["need_bytes"], by_id["station-1"]["memory_bytes"])
        self.assertLessEqual(ready["memory"]["peak_bytes"], 56 * MIB)
        self.assertEqual((ready["context"], ready["chunk"]), (plan["context"], plan["chunk"]))

    def test_the_whole_cluster_answers(self):
        self.plan("--dry-run")
        self.start("coordinator-0")
        prompt = "The capital of France is"
        alone = subprocess.run([COBORD, "run", MODEL, prompt, "--raw", "--temperature", "0", "--max-tokens", "12"],
                               capture_output=True, text=True, check=True).stdout
        answer = self.get("/v1/completions", {"prompt": prompt, "max_tokens": 12, "temperature": 0})
        self.assertEqual(answer["choices"][0]["text"].strip(), alone.strip())
        call = self.guide()[-1]
        body = json.loads(re.search(r"-d '(.*)'", call)[1])
        path = re.search(r"localhost:8787(\S+)", call)[1]
        self.assertTrue(self.get(path, {**body, "max_tokens": 4})["choices"][0]["message"]["content"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
