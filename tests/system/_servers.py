# SPDX-License-Identifier: Apache-2.0
"""Real servers for tests: Redis, and an S3 gateway over a directory. Each on a free port of 127.0.0.1, with its files
in a folder of its own, until stop().

    with start_redis() as redis:            redis.url == "redis://127.0.0.1:PORT"
        redis.command("SET", "key", "x")    # any command; bytes, int, None or a list comes back, RedisError is raised
    with start_s3(directory) as s3:         each folder of `directory` is a bucket, each file in it an object
        run(..., env={**os.environ, **s3.environment})

kill() and restart() are for tests of what happens then: the port stays the same. Where a server is not to be had the
test is skipped, with the reason.
"""
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from _ports import free_port

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
START_SECONDS = 30


class RealServer:
    """A process that listens on self.port."""

    def __init__(self, folder=None):
        self.port = free_port()
        self.own_folder = None if folder else tempfile.mkdtemp(prefix="cobord-server-")
        self.folder = folder or self.own_folder
        self.log = tempfile.TemporaryFile("a+")
        self.process = None

    def spawn(self):
        raise NotImplementedError

    def start(self):
        self.process = self.spawn()
        end = time.time() + START_SECONDS
        while time.time() < end:
            if self.process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return self
            except OSError:
                time.sleep(0.02)
        errors = self.errors()
        self.stop()
        raise AssertionError(f"{type(self).__name__} did not start: {errors[-2000:]}")

    def errors(self):
        self.log.seek(0)
        return self.log.read()

    def end(self, number):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)  # one that is frozen hears nothing else
            self.process.send_signal(number)
            self.process.wait(timeout=30)

    def kill(self):
        self.end(signal.SIGKILL)

    def restart(self):
        self.kill()
        return self.start()

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def stop(self):
        self.end(signal.SIGKILL)
        self.log.close()
        if self.own_folder:
            shutil.rmtree(self.own_folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class RedisError(Exception):
    pass


class Redis(RealServer):
    def __init__(self, password=None, append=False):
        super().__init__()
        self.password, self.append = password, append

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    @property
    def environment(self):
        return {"COBORD_REDIS_PASSWORD": self.password} if self.password else {}

    def spawn(self):
        # Debian's redis-tools has the same program under another name, without the service of redis-server.
        program = shutil.which("redis-server") or shutil.which("redis-check-rdb")
        if not program:
            raise unittest.SkipTest("redis-server is not installed: scripts/prepare")
        arguments = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.folder,
                     "--save", "", "--appendonly", "yes" if self.append else "no"]
        if self.password:
            arguments += ["--requirepass", self.password]
        return subprocess.Popen(arguments, executable=program, stdout=self.log, stderr=self.log,
                                stdin=subprocess.DEVNULL)

    def command(self, *words):
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as s:
            stream = s.makefile("rwb")
            for part in ([("AUTH", self.password)] if self.password else []) + [words]:
                part = [w if isinstance(w, bytes) else str(w).encode() for w in part]
                stream.write(b"*%d\r\n" % len(part) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in part))
                stream.flush()
                answer = read_answer(stream)
            return answer


def read_answer(stream):
    line = stream.readline()
    kind, rest = line[:1], line[1:].strip()
    if kind == b"-":
        raise RedisError(rest.decode())
    if kind == b"+":
        return rest
    if kind == b":":
        return int(rest)
    if kind == b"$":
        return None if int(rest) < 0 else stream.read(int(rest) + 2)[:-2]
    if kind == b"*":
        return None if int(rest) < 0 else [read_answer(stream) for _ in range(int(rest))]
    raise RedisError(f"no answer: {line!r}")


class S3(RealServer):
    """versitygw over a directory, with one pair of keys."""

    KEY, SECRET, REGION = "cobordtest", "cobord-test-secret", "us-east-1"

    def __init__(self, directory, certificate=None, sidecar=None):
        super().__init__(directory)
        self.program = None
        self.certificate, self.sidecar = certificate, sidecar

    @property
    def endpoint(self):
        return f"{'https' if self.certificate else 'http'}://127.0.0.1:{self.port}"

    @property
    def environment(self):
        return {"COBORD_S3_ENDPOINT": self.endpoint, "AWS_REGION": self.REGION, "AWS_ACCESS_KEY_ID": self.KEY,
                "AWS_SECRET_ACCESS_KEY": self.SECRET}

    def spawn(self):
        if not self.program:
            self.program = s3_program()
        env = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "VGW_", "ROOT_"))}
        env.update(ROOT_ACCESS_KEY_ID=self.KEY, ROOT_SECRET_ACCESS_KEY=self.SECRET)
        arguments = [self.program, "--port", f"127.0.0.1:{self.port}", "--region", self.REGION, "--keep-alive",
                     "--quiet"]
        if self.certificate:
            arguments += ["--cert", self.certificate[0], "--key", self.certificate[1]]
        arguments += ["posix", *(["--sidecar", self.sidecar] if self.sidecar else ["--nometa"]), self.folder]
        return subprocess.Popen(arguments, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL, env=env)


class Slowly:
    """A way to a server on which requests go at so many bytes a second until hurry(): what is to be seen in their midst
    is there to be seen, however fast the machine is. Where a request must stop at a certain byte, or break there, take
    upload_test.Wire."""

    def __init__(self, server, bytes_a_second):
        program = os.environ.get("FAULT_PROXY", os.path.join(ROOT, "build/tests/fault_proxy"))
        self.process = subprocess.Popen([program, "0", f"127.0.0.1:{server.port}", "--side", "requests", "--slow",
                                         str(bytes_a_second)], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.port = int(self.process.stdout.readline().split()[1])

    def hurry(self):
        self.process.stdin.write("clear\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "ok\n"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def s3_program():
    done = subprocess.run([os.path.join(ROOT, "scripts", "s3-server")], text=True, capture_output=True)
    if done.returncode:
        raise unittest.SkipTest(f"no S3 server: {done.stderr.strip()[-500:]}")
    return done.stdout.strip()


def start_redis(password=None, append=False):
    """`append`: what was written survives kill() and restart()."""
    return Redis(password, append).start()


def start_s3(directory, certificate=None, sidecar=None):
    """`certificate`: files of the certificate and its key; then over TLS. `sidecar`: a folder where ETags are kept,
    which uploads in parts compare; without it there are none."""
    return S3(directory, certificate, sidecar).start()
