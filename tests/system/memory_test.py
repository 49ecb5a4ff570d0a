# SPDX-License-Identifier: Apache-2.0
"""--memory is a promise: the peak resident memory of the process stays below it, file pages counted, and a plan
that cannot keep it is refused with its sum. Also the counters of fluid weights: 4 loads and 4 evictions per layer
and pass."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "golden"))
from support import COBORD, Checks, logits, must, run  # noqa: E402

MIB = 1 << 20


def peak_of(*args):
    """(exit code, VmHWM in bytes, standard output) of a run; the high-water mark is read while the process lives."""
    process = subprocess.Popen([COBORD, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    peak = 0

    def watch():
        nonlocal peak
        while process.poll() is None:
            try:
                status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
                peak = max(peak, int(status.split("VmHWM:")[1].split()[0]) * 1024)
            except (OSError, IndexError):
                pass
            time.sleep(0.005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, _ = process.communicate(timeout=900)
    watcher.join()
    return process.returncode, peak, out


def budgets(checks):
    for memory in (64, 128, 160):
        code, peak, out = peak_of("run", "qwen2.5-coder-1.5b", "Say hello.", "--memory", f"{memory}M",
                                  "--max-tokens", 4, "--temperature", 0)
        print(f"run in {memory} MiB: peak {peak / MIB:.1f} MiB")
        checks.that(code == 0 and out.strip(), f"run in {memory} MiB: exit {code}")
        checks.that(0 < peak <= memory * MIB, f"run in {memory} MiB: peak {peak / MIB:.1f} MiB")
    code, peak, _ = peak_of("run", "qwen2.5-coder-1.5b", "Say hello. " * 600, "--memory", "128M", "--max-tokens", 4)
    print(f"long prompt in 128 MiB: peak {peak / MIB:.1f} MiB")
    checks.that(code == 0 and peak <= 128 * MIB, f"long prompt in 128 MiB: exit {code}, peak {peak / MIB:.1f} MiB")


def counters(checks):
    for tokens, chunk in ((1, 1), (5, 2)):
        found = logits("qwen2.5-coder-1.5b", range(1, tokens + 1), "--memory", "128M", "--chunk", chunk, "--top", 1)
        c = found["counters"]
        passes = -(-tokens // chunk)
        checks.that(c["passes"] == passes, f"{c['passes']} passes, {passes} expected")
        checks.that(c["phase_loads"] == 4 * 28 * passes, f"{c['phase_loads']} loads")
        checks.that(c["phase_evictions"] == 4 * 28 * passes, f"{c['phase_evictions']} evictions")
        checks.that(0 < c["resident_weight_bytes_max"] <= c["window_bytes"],
                    f"resident weights {c['resident_weight_bytes_max']} above the window {c['window_bytes']}")
        checks.that(c["window_bytes"] <= 32 * MIB, f"a window of {c['window_bytes']} is above a quarter of the budget")


def more_memory_reads_less(checks):
    dropped = [logits("qwen2.5-coder-1.5b", [1, 2], "--chunk", 1, "--top", 1, "--memory", m)["counters"]
               ["weight_bytes_dropped"] for m in ("100M", "400M", "800M", "3G")]
    print("bytes dropped with 100M, 400M, 800M, 3G:", dropped)
    checks.that(all(a > b for a, b in zip(dropped, dropped[1:])), f"a larger budget does not keep more: {dropped}")
    checks.that(dropped[-1] == 0, f"everything fits in 3G, yet {dropped[-1]} bytes were dropped")


def refusals(checks):
    checks.refused(run("run", "qwen2.5-coder-1.5b", "hi", "--memory", "20M"), 1, "attention cache", "20.0 MiB allowed")
    checks.refused(run("run", "qwen2.5-coder-1.5b", "hi", "--memory", "128M", "--context", 8192), 1, "context 8192")
    checks.refused(run("plan", "qwen2.5-coder-1.5b", "--memory", "12M"), 1, "MiB allowed")
    plan = json.loads(must("plan", "qwen2.5-coder-1.5b", "--memory", "128M", "--json"))
    checks.that(len(plan["roles"]) == 10, f"{len(plan['roles'])} roles")
    checks.that(all(r["total_bytes"] <= 128 * MIB for r in plan["roles"]), "a role of the plan is above the budget")
    ids = [(r["id_first"], r["id_last"]) for r in plan["roles"] if "id_first" in r]
    checks.that(ids == [(i * 18992, (i + 1) * 18992) for i in range(8)], f"shards {ids}")


def seven_billion(checks):
    """A model of 4.8 GB in 128 MiB; two tokens are enough to go through every phase and shard."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("COBORD_TEST_SPACE")) as folder:
        knot = os.path.join(folder, "7b.knot")
        must("synth", "--shape", "qwen2.5-coder-7b", "-o", knot, timeout=1500)
        code, peak, out = peak_of("logits", knot, "--tokens", "1,2", "--memory", "128M", "--json", "--top", 1)
        print(f"7B in 128 MiB: peak {peak / MIB:.1f} MiB")
        checks.that(code == 0 and 0 < peak <= 128 * MIB, f"7B in 128 MiB: exit {code}, peak {peak / MIB:.1f} MiB")
        checks.that(code == 0 and json.loads(out)["counters"]["phase_loads"] == 4 * 28, "7B: phase loads")
        plan = json.loads(must("plan", knot, "--memory", "128M", "--context", 2048, "--json"))
        checks.that(all(r["total_bytes"] <= 128 * MIB for r in plan["roles"]), "7B: 2,048 positions do not fit 128 MiB")
        plan = json.loads(must("plan", knot, "--memory", "64M", "--context", 1024, "--cache-type", "q8_0", "--json"))
        checks.that(all(r["total_bytes"] <= 64 * MIB for r in plan["roles"]), "7B: 1,024 positions do not fit 64 MiB")


def main():
    checks = Checks()
    budgets(checks)
    counters(checks)
    more_memory_reads_less(checks)
    refusals(checks)
    if "--long" in sys.argv:
        seven_billion(checks)
    return checks.end()


sys.exit(main())
