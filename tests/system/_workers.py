# SPDX-License-Identifier: Apache-2.0
"""Nodes as Workers on the real runtime, beside native ones or instead of them.

    cluster = WorkerCluster(MODEL, ["0-15", "15-end"], 2)      a cluster file, as in _nodes.py
    workers = cluster.start_workers()                          {id: WorkerNode}: every station, shard and warden
    workers["station-0"].call("POST", "/forward", body)        each is a script with a port of its own
    cluster.start("coordinator-0")                             a native node among them
    cluster.runtime.heaps(), .kv_get(...), .r2_put(...)        what the runtime keeps
    cluster.stop()

`Workers(file)` starts the Workers of any cluster file's value, and writes their addresses into it. COBORD_WASM is the
folder of the built modules; without it they are built here, by scripts/build wasm."""
import base64
import functools
import hashlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import _nodes as nodes
from _packages import cache_folder, need_locked

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULES = pathlib.Path(os.environ.get("COBORD_WASM", ROOT / "build-wasm"))
HARNESS = ROOT / "tests/workers/cluster.mjs"
MIB = 1 << 20
ISOLATE_BYTES_MAX = 128_000_000  # what the platform gives an isolate
MEMORY = 96 * MIB
START_SECONDS = 120
VARIABLE_BYTES_MAX = 4800  # of the coordinator's cluster file, which goes over several
# By the word of an id: the script and its class.
KINDS = {
    "coordinator": ("coordinator.mjs", "Coordinator"), "station": ("station.mjs", "Station"),
    "shard": ("shard.mjs", "Shard"), "layer-warden": ("layer_warden.mjs", "LayerWarden"),
    "shard-warden": ("shard_warden.mjs", "ShardWarden")}

_built = []


def module(name="cobord"):
    if "COBORD_WASM" not in os.environ and not _built:
        subprocess.run([ROOT / "scripts/build", "wasm", "2"], check=True, capture_output=True, timeout=900)
        _built.append(True)
    return MODULES / f"{name}.wasm"


def kind_of(node_id):
    return node_id.rpartition("-")[0]


def members(file):
    """{id: entry}."""
    out = {file["coordinator"]["id"]: file["coordinator"]}
    for kind in ("stations", "shards", "layer_wardens", "shard_wardens"):
        for entry in file.get(kind, []):
            for node in (entry, *entry.get("replicas", [])):
                out[node["id"]] = {**entry, **node}
    return out


def entry_of(file, node_id):
    """The node's own object in the file."""
    if file["coordinator"]["id"] == node_id:
        return file["coordinator"]
    for kind in ("stations", "shards", "layer_wardens", "shard_wardens"):
        for entry in file.get(kind, []):
            for node in (entry, *entry.get("replicas", [])):
                if node["id"] == node_id:
                    return node
    raise KeyError(node_id)


def role(file, entry):
    first, last = entry["range"] == file["stations"][0]["range"], entry["range"] == file["stations"][-1]["range"]
    return "solo" if first and last else "entry" if first else "exit" if last else "middle"


def variables(file, node_id, key="", more=None):
    """What a deployment sets for a station, a shard or a warden."""
    entry = members(file)[node_id]
    memory = file.get("warden_memory" if "warden" in kind_of(node_id) else "memory", MEMORY)
    out = {"NODE_ID": node_id, "VERSION": version(), "KNOT_KEY": file["model"]["knot_key"],
           "KNOT_ID": file["model"]["knot_id"], "MEMORY_BUDGET_BYTES": str(memory), "CONTEXT": str(file["context"]),
           "SESSIONS": str(file.get("sessions", 1)), "CACHE_TYPE": file.get("cache_type", "f16")}
    if file.get("chunk"):
        out["CHUNK"] = str(file["chunk"])
    out.update(range_of(entry, "SPECIALIZATION" if "range" in entry else "VOCAB"))
    if kind_of(node_id) == "station":
        out.update(SPECIALIZATION_ROLE=role(file, entry), EMBED=str(int(entry.get("embed", False))),
                   HEAD=str(int(entry.get("head", False))))
    if entry.get("warden"):
        out.update(range_of(members(file)[entry["warden"]], "WARDEN"))
    if key:
        out["CLUSTER_KEY"] = key
    return {**out, **(more or {})}


def range_of(entry, name):
    first, last = entry["range"].split("-") if "range" in entry else map(str, entry["ids"])
    return {f"{name}_START": first, f"{name}_END": last}


@functools.cache
def version():
    return subprocess.run([nodes.COBORD, "version"], check=True, capture_output=True, text=True).stdout.split()[1]


def coordinator_variables(file, key="", more=None):
    text = json.dumps(file, separators=(",", ":"))
    pieces = [text[i:i + VARIABLE_BYTES_MAX] for i in range(0, len(text), VARIABLE_BYTES_MAX)]
    out = {f"CLUSTER_{i}" if i else "CLUSTER": piece for i, piece in enumerate(pieces)}
    out.update(NODE_ID=file["coordinator"]["id"], VERSION=version(), KNOT_KEY=file["model"]["knot_key"],
               KNOT_ID=file["model"]["knot_id"], MEMORY_BUDGET_BYTES=str(file.get("memory", MEMORY)),
               SUBREQUESTS_MAX="9000")
    if key:
        out["CLUSTER_KEY"] = key
    return {**out, **(more or {})}


def script(file, node_id, ids, key="", more=None):
    """A script of the harness's description, bound to those of `ids` that it calls."""
    main, name = KINDS[kind_of(node_id)]
    entry = members(file)[node_id]
    out = {"name": node_id, "main": main, "class": name, "port": int(entry["address"].rpartition(":")[2])}
    if kind_of(node_id) == "coordinator":
        services = {i.upper().replace("-", "_"): i for i in ids if i != node_id}
        return {**out, "vars": coordinator_variables(file, key, more), "services": services}
    out["vars"] = variables(file, node_id, key, more)
    if kind_of(node_id) == "shard-warden":
        out["cache"] = "embed-cache"
    if entry.get("warden"):
        place = entry["warden"] if entry["warden"] in ids else members(file)[entry["warden"]]["address"]
        out["services"] = {"LAYER_WARDEN" if "range" in entry else "VOCAB_WARDEN": place}
    return out


# ---- The bucket, filled once ----

def bucket_of(packages, objects):
    """A folder with these objects in the runtime's R2, in the user's cache. A knot goes in at some 30 MB/s only."""
    facts = [(o["key"], os.stat(o["path"]).st_size, os.stat(o["path"]).st_mtime_ns) for o in objects]
    name = hashlib.sha256(repr((facts, packages)).encode()).hexdigest()[:16]
    place = os.path.join(cache_folder(), "workers-r2", name)
    if not os.path.isdir(place):
        os.makedirs(os.path.dirname(place), exist_ok=True)
        making = tempfile.mkdtemp(dir=os.path.dirname(place))
        harness = Harness({"packages": packages, "persist": making, "objects": objects, "scripts": []}, 600)
        harness.stop()
        try:
            os.rename(making, place)
        except OSError:  # somebody else was faster
            shutil.rmtree(making)
    return place


def link_bucket(place, to):
    """A copy that shares what never changes: the objects' bytes."""
    def copy(source, target):
        if f"{os.sep}blobs{os.sep}" in source:
            try:
                os.link(source, target)
                return target
            except OSError:
                pass
        return shutil.copy2(source, target)
    shutil.copytree(os.path.join(place, "r2"), os.path.join(to, "r2"), copy_function=copy)


# ---- The process ----

class Harness:
    """node tests/workers/cluster.mjs with a description, until stop()."""

    def __init__(self, description, seconds=START_SECONDS):
        self.folder = tempfile.TemporaryDirectory(prefix="cobord-workers-")
        self.lock = threading.Lock()
        path = os.path.join(self.folder.name, "description.json")
        with open(path, "w") as f:
            json.dump({"workers": str(ROOT / "workers"), **description}, f)
        self.log = open(os.path.join(self.folder.name, "stderr"), "w+")
        self.process = subprocess.Popen(["node", str(HARNESS), path], text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.log)
        timer = threading.Timer(seconds, self.process.kill)
        timer.start()
        line = self.process.stdout.readline()
        timer.cancel()
        if not line:
            self.process.wait(30)
            errors = self.errors()
            self.stop()
            raise AssertionError(f"workerd did not start: {errors[-3000:]}")
        self.ports = json.loads(line)["ready"]

    def errors(self):
        """What scripts wrote to their consoles, and what the runtime says."""
        with open(self.log.name) as f:
            return f.read()

    def do(self, name, **arguments):
        with self.lock:
            self.process.stdin.write(json.dumps({"do": name, **arguments}) + "\n")
            self.process.stdin.flush()
            answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise AssertionError(answer["error"])
        return answer["result"]

    def stop(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()
        self.log.close()
        self.folder.cleanup()


class Workers:
    """The Workers of a cluster file's value. Nodes of the file that are none of `ids` stay where the file has them."""

    def __init__(self, file, ids=None, key="", paths=None, name="cobord", more=None, services=None, stays=False):
        """`paths`: files for the bucket by object key, else the knot of the local model folder; `more`: variables by
        id; `services`: bindings by id, each to another script's id or to HOST:PORT; `name`: of the module, cobord or
        cobord-relaxed; `stays`: objects keep their memory, and what they count, also when the runtime has had no turn
        for ten seconds."""
        self.file = file
        coordinator = file["coordinator"]["id"]
        self.ids = list(ids if ids is not None else [i for i in members(file) if i != coordinator])
        self.packages = need_locked(ROOT / "tests/workers")
        self.persist = tempfile.TemporaryDirectory(prefix="cobord-workers-state-")
        knot = file["model"]["knot_key"]
        paths = paths or {knot: nodes.support.models_folder() / knot}
        objects = [{"key": key_, "path": str(path)} for key_, path in paths.items()]
        link_bucket(bucket_of(self.packages, objects), self.persist.name)
        self.description = {"packages": self.packages, "module": str(module(name)), "persist": self.persist.name,
                            "objects": [], "scripts": [], "stays": stays}
        for node_id in self.ids:
            entry = script(file, node_id, self.ids, key, (more or {}).get(node_id))
            entry["services"] = {**entry.get("services", {}), **(services or {}).get(node_id, {})}
            self.description["scripts"].append(entry)
        self.harness = None
        self.start()

    def start(self):
        self.harness = Harness(self.description)
        for node_id, port in self.harness.ports.items():
            entry_of(self.file, node_id)["address"] = f"127.0.0.1:{port}"

    def restart(self):
        """As a deployment does: every object loses its memory, storage stays. The ports too."""
        self.harness.stop()
        for entry in self.description["scripts"]:
            entry["port"] = self.harness.ports[entry["name"]]
        self.start()

    def address(self, node_id):
        host, _, port = members(self.file)[node_id]["address"].rpartition(":")
        return host, int(port)

    def errors(self):
        return self.harness.errors()

    def stop(self):
        self.harness.stop()
        self.persist.cleanup()

    # What the runtime keeps.

    def heaps(self):
        """{id: bytes of JavaScript}; a node's module says in its metrics what WebAssembly has."""
        return self.harness.do("heaps")

    def kv_list(self, prefix="", cache="embed-cache"):
        return self.harness.do("kv_list", cache=cache, prefix=prefix)

    def kv_get(self, key, cache="embed-cache"):
        value = self.harness.do("kv_get", cache=cache, key=key)
        return None if value is None else base64.b64decode(value)

    def kv_put(self, key, value, cache="embed-cache"):
        self.harness.do("kv_put", cache=cache, key=key, value=base64.b64encode(value).decode())

    def kv_delete(self, key, cache="embed-cache"):
        self.harness.do("kv_delete", cache=cache, key=key)

    def r2_put(self, key, value):
        self.harness.do("r2_put", key=key, value=base64.b64encode(value).decode())

    def r2_seed(self, key, path):
        self.harness.do("r2_seed", key=key, path=str(path))

    def r2_delete(self, key):
        self.harness.do("r2_delete", key=key)


class WorkerNode(nodes.Node):
    """A Worker, to tests that know nodes."""

    def __init__(self, cluster, node_id):
        self.cluster, self.id = cluster, node_id
        self.host, self.port = cluster.runtime.address(node_id)

    def call(self, method, path, body=None, connection=None, **more):
        """workerd closes connections that were idle for five seconds: one that is kept is opened again then."""
        try:
            return super().call(method, path, body, connection=connection, **more)
        except (BrokenPipeError, ConnectionResetError, http.client.RemoteDisconnected):
            if not connection:
                raise
            connection.close()
            return super().call(method, path, body, connection=connection, **more)

    def errors(self):
        return self.cluster.runtime.errors()

    def memory(self, name=None):
        """Bytes of the isolate."""
        return self.cluster.runtime.heaps()[self.id] + int(self.metrics()["cobord_node_memory_bytes"])

    def alive(self):
        return self.cluster.runtime.harness.process.poll() is None

    def kill(self, number=signal.SIGKILL):
        raise AssertionError("a Worker is not a process")


class WorkerCluster(nodes.Cluster):
    """A cluster file; its Workers are in one runtime, `runtime`, once start_workers was called."""

    runtime = None

    def start_workers(self, ids=None, **options):
        key = nodes.KEY if self.file.get("key_file") else ""
        self.runtime = Workers(self.file, ids, key, **options)
        self.write()
        return {i: WorkerNode(self, i) for i in self.runtime.ids}

    def entry(self, node_id):
        return entry_of(self.file, node_id)

    def stop(self):
        super().stop()
        if self.runtime:
            self.runtime.stop()


def wait_evicted(lost=lambda: True, seconds=12):
    """Objects that nobody asks anything for ten seconds lose their memory: some seconds later on a busy machine. `lost`
    says whether they have. Result: it."""
    for _ in range(3):
        time.sleep(seconds)
        if lost():
            return True
    return False
