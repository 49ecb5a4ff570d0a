# SPDX-License-Identifier: Apache-2.0
"""Logits against a float32 reference on the dequantized weights.

The error is |difference of log-probabilities| over the reference's 20 best tokens, mean over all positions but
the first. Limits: what an engine with these activations can reach, with a little room. The best token must
agree wherever the reference separates the best two by more than 1."""
import json
import sys

from support import DATA, Checks, logits

LIMITS = {"smollm2-135m": ("logits-smollm2-135m-q4_1.json", 0.135),
          "qwen2.5-coder-0.5b": ("logits-qwen25-coder-0.5b.json", 0.060),
          "qwen2.5-coder-1.5b": ("logits-qwen25-coder-1.5b.json", 0.052),
          "gemma3-270m": ("logits-gemma3-270m.json", 0.115)}


def compare(model, reference):
    errors, wrong, outside = [], 0, 0
    for name, ref in reference.items():
        got = logits(model, ref["tokens"], "--top", 64)["positions"]
        if len(got) != len(ref["tokens"]):
            raise SystemExit(f"{model}, {name}: {len(got)} positions for {len(ref['tokens'])} tokens")
        for mine, top, total in list(zip(got, ref["top"], ref["logsumexp"]))[1:]:
            own = {token: value - mine["logsumexp"] for token, value in mine["top"]}
            if top[0][1] - top[1][1] > 1:
                wrong += mine["top"][0][0] != top[0][0]
            for token, value in top:
                if token in own:
                    errors.append(abs(own[token] - (value - total)))
                else:
                    outside += 1
    return sum(errors) / len(errors), wrong, outside / len(errors)


def main():
    checks = Checks()
    for model, (file, limit) in LIMITS.items():
        mean, wrong, outside = compare(model, json.load(open(DATA / "golden" / file)))
        print(f"{model}: mean error {mean:.4f} (limit {limit}), {wrong} best tokens differ")
        checks.that(mean <= limit, f"{model}: mean error {mean:.4f} above {limit}")
        checks.that(wrong == 0, f"{model}: {wrong} best tokens differ where the reference is clear")
        checks.that(outside <= 0.02, f"{model}: {outside:.1%} of the reference's best are outside the top 64")
    return checks.end()


sys.exit(main())
