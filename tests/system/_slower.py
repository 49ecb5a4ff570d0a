# SPDX-License-Identifier: Apache-2.0
"""Runs one test file against a program that is COBORD_TEST_SLOWER times slower than usual, for example under a
sanitizer: python3 _slower.py FILE [ARGUMENT...]. The test's own clock goes that much slower, and whatever it waits for
with a limit may take that much longer, so that no limit in a test has to be wider than it is meant to be. So may a
moment, a pause below half a second; longer pauses stay as they are: they are about limits of the program, which are
real seconds.

COBORD_TEST_LEFT_OUT names tests, as Class.test or Class, that say nothing about such a program, separated by commas."""
import os
import sys
import time

FACTOR = float(os.environ.get("COBORD_TEST_SLOWER", "1"))
MOMENT_SECONDS = 0.5


def slow_clock(clock):
    first = clock()
    return lambda: first + (clock() - first) / FACTOR


# Before the modules below are loaded: they keep the functions.
for name in ("time", "monotonic", "perf_counter"):
    setattr(time, name, slow_clock(getattr(time, name)))

import runpy  # noqa: E402
import select  # noqa: E402
import socket  # noqa: E402
import threading  # noqa: E402
import unittest  # noqa: E402


def longer(owner, name, place):
    """Argument `place` of `owner.name`, or the one called timeout, is seconds that are now FACTOR times as long."""
    usual = getattr(owner, name)

    def call(*arguments, **more):
        arguments = list(arguments)
        if len(arguments) > place and arguments[place] is not None and arguments[place] > 0:
            arguments[place] *= FACTOR
        if more.get("timeout") is not None:
            more["timeout"] *= FACTOR
        return usual(*arguments, **more)
    setattr(owner, name, call)


longer(socket.socket, "settimeout", 1)
longer(threading.Condition, "wait", 1)
longer(threading.Thread, "join", 1)
longer(select, "select", 3)
pause = time.sleep
time.sleep = lambda seconds: pause(seconds * FACTOR if seconds < MOMENT_SECONDS else seconds)


def leave_out(names):
    load = unittest.TestLoader.loadTestsFromTestCase

    def loaded(self, case):
        for name in names:
            first, _, test = name.partition(".")
            if first != case.__name__:
                continue
            if test and not hasattr(case, test):
                raise SystemExit(f"{name}, which is to be left out, is not there")
            what = unittest.skip("says nothing about a program this slow")
            if test:
                setattr(case, test, what(getattr(case, test)))
            else:
                what(case)
        return load(self, case)
    unittest.TestLoader.loadTestsFromTestCase = loaded


if __name__ == "__main__":
    leave_out(list(filter(None, os.environ.get("COBORD_TEST_LEFT_OUT", "").split(","))))
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")
