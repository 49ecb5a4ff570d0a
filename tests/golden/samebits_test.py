# SPDX-License-Identifier: Apache-2.0
"""One hash over all logits for every topology, chunk, thread count, instruction set, cache budget and file version."""
import sys

from support import MODELS, Checks, logits, run

VARIANTS = [[], ["--stations", 1, "--shards", 1], ["--stations", 3, "--shards", 5], ["--stations", 7, "--shards", 3],
            ["--ranges", "0-2.ffn_up,2.ffn_up-5.attn,5.attn-end"], ["--threads", 1], ["--threads", 3],
            ["--chunk", 1], ["--chunk", 7], ["--memory", "160M"], ["--memory", "400M"], ["--isa", "avx2"],
            ["--isa", "avx512"], ["--isa", "scalar", "--chunk", 5, "--threads", 2, "--stations", 5, "--shards", 7]]
TOKENS = [(i * 7919 + 13) % 40000 for i in range(18)]


def available(isa):
    done = run("logits", "smollm2-135m", "--tokens", "1", "--isa", isa)
    if done.returncode not in (0, 2):
        raise SystemExit(f"--isa {isa}: exit {done.returncode}: {done.stderr.decode()[-200:]}")
    return done.returncode == 0


def main():
    checks = Checks()
    missing = {isa for isa in ("avx2", "avx512") if not available(isa)}
    for isa in missing:
        print(f"this processor has no {isa}: its variants are left out")
    for model in MODELS:
        hashes = {}
        for variant in VARIANTS:
            if missing & set(map(str, variant)):
                continue
            found = logits(model, TOKENS, "--top", 1, "--hash", *variant)["xxh3"]
            hashes.setdefault(found, []).append(" ".join(map(str, variant)) or "default")
        checks.that(len(hashes) == 1, f"{model}: {hashes}")
        print(model, *hashes)
    other = logits("smollm2-135m", TOKENS, "--top", 1, "--hash", "--cache-type", "q8_0")["xxh3"]
    checks.that(other != logits("smollm2-135m", TOKENS, "--top", 1, "--hash")["xxh3"],
                "the cache type is part of the numbers, and the hash sees it")
    return checks.end()


sys.exit(main())
