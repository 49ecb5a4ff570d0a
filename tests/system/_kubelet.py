# SPDX-License-Identifier: Apache-2.0
"""Runs what a Helm chart renders, without Kubernetes: each pod's program as a process in a mount namespace of its own
that has the pod's volumes in their places, with its user, environment and arguments. Names of pods are addresses of the
loopback network, in an /etc/hosts that only these processes see.

Does not do: images, limits, network policies."""
import base64
import ctypes
import fcntl
import os
import pathlib
import shlex
import shutil
import socket
import struct
import subprocess
import tempfile
import unittest

import _installed as installed


def need():
    for tool in ("unshare", "setpriv"):
        if not shutil.which(tool):
            raise unittest.SkipTest(f"{tool} is missing")
    if os.geteuid() != 0:
        raise unittest.SkipTest("mounts are made by root only")
    done = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, text=True)
    if done.returncode:
        raise unittest.SkipTest(f"no mount namespaces here: {done.stderr.strip()}")


def own_network():
    """From here on this process and its children have a loopback network of their own, with every port free."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x40000000):
        raise unittest.SkipTest(f"no network namespaces here: {os.strerror(ctypes.get_errno())}")
    with socket.socket() as s:
        fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"lo", 0x41))  # up and running


class Pod:
    def __init__(self, name, spec, index, address, hostname):
        self.name, self.spec, self.index, self.address, self.hostname = name, spec, index, address, hostname
        self.container = spec["containers"][0]
        self.process = None

    def environment(self):
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
        for entry in self.container.get("env", []):
            env[entry["name"]] = entry.get("value", str(self.index))  # the one that is no value is the pod's number
        return env

    def arguments(self):
        env = self.environment()
        out = []
        for argument in self.container["args"]:
            for name, value in env.items():
                argument = argument.replace(f"$({name})", value)
            out.append(argument)
        return out


class Kubelet:
    """Everything of a list of rendered objects."""

    def __init__(self, objects, models):
        self.objects, self.models = objects, models
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.root.chmod(0o755)
        self.pods = list(self.find_pods())
        self.write_hosts()

    def write_hosts(self):
        lines = ["127.0.0.1 localhost", *(f"{p.address} {p.hostname}" for p in self.pods if p.hostname)]
        (self.root / "hosts").write_text("\n".join(lines) + "\n")

    def of(self, kind):
        return [o for o in self.objects if o["kind"] == kind]

    def named(self, kind, name):
        return next(o for o in self.of(kind) if o["metadata"]["name"] == name)

    def find_pods(self):
        number = 1
        for o in self.of("StatefulSet") + self.of("Deployment"):
            for index in range(o["spec"]["replicas"]):
                number += 1
                name, service = f"{o['metadata']['name']}-{index}", o["spec"].get("serviceName")
                hostname = f"{name}.{service}.default.svc.cluster.local" if service else None
                if service:
                    assert self.named("Service", service)["spec"]["clusterIP"] == "None"
                yield Pod(name, o["spec"]["template"]["spec"], index, f"127.0.0.{number}", hostname)

    def pod(self, end):
        return next(p for p in self.pods if p.name.endswith(end))

    def fill(self, pod, volume):
        """A folder with what a volume holds."""
        place = self.root / pod.name / volume["name"]
        if volume.get("shared"):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(self.share(volume["name"]))
            return place
        if "hostPath" in volume:  # a folder with the models
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(self.share("models"))
            return place
        place.mkdir(parents=True)
        if "configMap" in volume:
            for name, text in self.named("ConfigMap", volume["configMap"]["name"])["data"].items():
                (place / name).write_text(text)
        elif "secret" in volume:
            self.fill_secret(pod, volume["secret"], place)
        else:
            os.chown(place, 10001, pod.spec["securityContext"]["fsGroup"])
        return place

    def share(self, name):
        """The folder of a volume that several have."""
        place = self.root / f"shared-{name}"
        if not place.exists():
            place.mkdir()
            self.give(place)
        return place

    def give(self, path):
        own = self.pods[0].spec["securityContext"]
        os.chown(path, own["runAsUser"], own["runAsGroup"])

    def fill_secret(self, pod, secret, place):
        found = self.named("Secret", secret["secretName"])
        data = {k: v.encode() for k, v in found.get("stringData", {}).items()}
        data.update({k: base64.b64decode(v) for k, v in found.get("data", {}).items()})
        for name, value in data.items():
            path = place / name
            path.write_bytes(value)
            path.chmod(secret["defaultMode"])
            os.chown(path, 0, pod.spec["securityContext"]["fsGroup"])

    def script(self, pod, command):
        """A shell's lines that make the pod's mounts and become its program."""
        lines = ["set -e", "mount -t tmpfs none /mnt", "mkdir /mnt/new /mnt/work", "mount -t overlay -o "
                 "lowerdir=/etc,upperdir=/mnt/new,workdir=/mnt/work none /etc",
                 f"mount --bind {self.root}/hosts /etc/hosts"]
        volumes = {v["name"]: os.path.realpath(self.root / pod.name / v["name"]) for v in pod.spec["volumes"]}
        for mount in pod.container["volumeMounts"]:
            path = shlex.quote(mount["mountPath"])
            lines.append(f"mkdir -p {path} && mount --bind {volumes[mount['name']]} {path}")
            if mount.get("readOnly"):
                lines.append(f"mount -o remount,bind,ro {path}")
        own = pod.spec["securityContext"]
        lines.append(f"exec setpriv --reuid {own['runAsUser']} --regid {own['runAsGroup']} --groups {own['fsGroup']} "
                     f"--no-new-privs --inh-caps=-all --bounding-set=-all {shlex.join(command)}")
        return "\n".join(lines)

    def enter(self, pod, command, **more):
        return subprocess.Popen(["unshare", "-m", "sh", "-c", self.script(pod, command)], env=pod.environment(),
                                text=True, **more)

    def start(self, pod):
        if not (self.root / pod.name).exists():
            for volume in pod.spec["volumes"]:
                place = self.fill(pod, volume)
                if volume["name"] == "cache" and self.models and "initContainers" in pod.spec:
                    self.bring_model(place)  # what the init container would fetch
        pod.log = open(self.root / f"{pod.name}.log", "w+")
        program = str(self.root / "cobord")
        if not os.path.exists(program):
            shutil.copy(installed.BUILD / "cobord", program)
        pod.process = self.enter(pod, [program, *pod.arguments()], stdout=pod.log, stderr=subprocess.STDOUT)

    def bring_model(self, place, folder="models"):
        place = place / folder
        place.mkdir(exist_ok=True)
        for path in self.models:
            shutil.copy(path, place)
        for path in (place, *place.iterdir()):
            os.chown(path, 10001, 10001)

    def probe(self, pod):
        """The exit code of the container's own readiness probe."""
        command = [c.replace("cobord ready", f"{self.root}/cobord ready")
                   for c in pod.container["readinessProbe"]["exec"]["command"]]
        process = self.enter(pod, command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        process.communicate(timeout=20)
        return process.returncode

    def log(self, pod):
        pod.log.seek(0)
        return pod.log.read()

    def stop(self):
        for pod in self.pods:
            if pod.process and pod.process.poll() is None:
                pod.process.terminate()
        for pod in self.pods:
            if pod.process:
                try:
                    pod.process.wait(20)
                except subprocess.TimeoutExpired:
                    pod.process.kill()
                    pod.process.wait()
                pod.log.close()
        self.folder.cleanup()
