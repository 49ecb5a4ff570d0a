# SPDX-License-Identifier: Apache-2.0
"""Ports for servers that are yet to start. The system gives a port that it has just given away to whoever connects
next, and to the next who asks for a free one: so these come from below the range that it gives from, and none comes
twice, not to another test that runs beside this one either: each is a byte of a file that this process has locked until
it ends. A server that is between two of its lives keeps its port, too."""
import fcntl
import os
import random
import socket
import tempfile

LOWEST = 15000
given = set()
places = os.open(os.path.join(tempfile.gettempdir(), f"cobord-test-ports-{os.getuid()}"),
                 os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def system_range_first():
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
            return int(f.read().split()[0])
    except OSError:
        return 32768


def is_free(port):
    with socket.socket() as s:
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def take(port):
    """Keeps a port for this process. Result: whether it is free and nobody else's."""
    if port in given or not is_free(port):
        return False
    try:
        fcntl.lockf(places, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    given.add(port)
    return True


def free_ports(count):
    end = system_range_first()
    choice = random.Random()
    ports = []
    for _ in range(20000):
        if len(ports) == count:
            return ports
        port = choice.randrange(LOWEST, end) if end > LOWEST + 2000 else choice.randrange(1024, 65536)
        if take(port):
            ports.append(port)
    raise AssertionError("no free ports")


def free_port():
    return free_ports(1)[0]
