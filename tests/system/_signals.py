# SPDX-License-Identifier: Apache-2.0
"""Signals of which none is lost: two of a kind are one to a process that has not had its turn between them."""
import os
import re
import time

DELIVER_SECONDS = 30


def waits(pid, number):
    """Whether a signal was sent that the process has not taken yet; one that is gone has none."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
            masks = re.findall(r"^(?:Sig|Shd)Pnd:\s+([0-9a-f]+)", f.read(), re.M)
    except OSError:
        return False
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


def deliver(pid, number):
    """Sends it, and returns when the process has taken it."""
    os.kill(pid, number)
    end = time.monotonic() + DELIVER_SECONDS
    while waits(pid, number):
        assert time.monotonic() < end, f"signal {number} is not taken"
        time.sleep(0.005)
