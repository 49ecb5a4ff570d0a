# SPDX-License-Identifier: Apache-2.0
"""Ports for servers that are yet to start. The system gives a port that it has just given away to whoever connects
next, and to the next who asks for a free one: so these come from below the range that it gives from, and none comes
twice."""
import random
import socket

LOWEST = 15000
given = set()


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


def free_ports(count):
    end = system_range_first()
    choice = random.Random()
    ports = []
    for _ in range(20000):
        if len(ports) == count:
            return ports
        port = choice.randrange(LOWEST, end) if end > LOWEST + 2000 else choice.randrange(1024, 65536)
        if port not in given and is_free(port):
            given.add(port)
            ports.append(port)
    raise AssertionError("no free ports")


def free_port():
    return free_ports(1)[0]
