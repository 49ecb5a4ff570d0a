# SPDX-License-Identifier: Apache-2.0
"""Token ids and texts of the models' published tokenizers, through the program; and what it says to bad lines.

tokenizer-NAME.json come from outside the project. tokens-NAME.json: random strings (marks, white space of every
kind, digits, contractions, special tokens) through the PyPI package `tokenizers`, built on the models' own
vocabularies.
"""
import json
import sys
import unicodedata

import support

CASES = {"qwen2.5-coder-1.5b": ["tokenizer-qwen2", "tokens-qwen2"], "qwen2.5-coder-0.5b": ["tokenizer-qwen2"],
         "smollm2-135m": ["tokenizer-smollm", "tokens-smollm"], "gemma3-270m": ["tokenizer-gemma3"]}


def lines(key, values):
    return "".join(json.dumps({key: v}) + "\n" for v in values).encode()


def ask(verb, model, data, key, *options):
    return [json.loads(line)[key] for line in support.must(verb, model, *options, stdin=data).splitlines()]


def normal(text):
    return unicodedata.normalize("NFC", text)


def same(checks, model, name, cases):
    texts, ids = [c["text"] for c in cases], [c["ids"] for c in cases]
    got = ask("tokenize", model, lines("text", texts), "ids", "--json-lines")
    back = ask("detokenize", model, lines("ids", ids), "text")
    checks.that(len(got) == len(back) == len(cases) > 0, f"{model}, {name}: as many answers as lines")
    for text, want, given, again in zip(texts, ids, got, back):
        checks.that(given == want, f"{model}, {name}: {text!a:.80}: want {want[:12]}, got {given[:12]}")
        checks.that(normal(again) == normal(text), f"{model}, {name}: {text!a:.80}: got back {again!a:.80}")


def plain_text(checks, model):
    text = "line one\nTwo <|im_end|> \\n stays".encode()
    want = ask("tokenize", model, lines("text", [text.decode()]), "ids", "--json-lines")[0]
    checks.that(support.must("tokenize", model, stdin=text).decode() == ",".join(map(str, want)) + "\n",
                "plain text gives the same ids as JSON, on one line")
    checks.that(support.must("tokenize", model, stdin=b"") == b"\n", "an empty text gives an empty line")
    for odd in (b"\xe6\xad", b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\xf0\x9f"):
        ids = [int(x) for x in support.must("tokenize", model, stdin=odd).decode().split(",")]
        back = ask("detokenize", model, lines("ids", [ids]), "text")[0]
        checks.that(back == odd.decode(errors="replace"), f"bytes {odd!r} come back as {back!a}")


def bad_lines(checks, model):
    good_text, good_ids = lines("text", ["x"]), lines("ids", [[1]])
    for bad in (b"\n", b"x\n", b"[1]\n", b'{"text":1}\n', b'{"ids":[1]}\n', b'{"text":"\xff"}\n', b'{"text":"x"'):
        checks.refused(support.run("tokenize", model, "--json-lines", stdin=good_text + bad), 1, "line 2")
    for bad in ("[-1]", "[151936]", "[2147483648]", "[5279552648203111001]", "[1.5]", "[true]", "[null]", '"x"', "3"):
        done = support.run("detokenize", model, stdin=good_ids + good_ids + f'{{"ids":{bad}}}\n'.encode())
        checks.refused(done, 1, "line 3")
        checks.that(done.stdout.count(b"\n") == 2, f"the lines before ids {bad} were answered")
    checks.that(ask("detokenize", model, b'{"ids":[]}\n', "text") == [""], "no ids give no text")


def main():
    checks = support.Checks()
    for model, names in CASES.items():
        for name in names:
            same(checks, model, name, json.loads((support.DATA / "golden" / f"{name}.json").read_text()))
    plain_text(checks, "qwen2.5-coder-1.5b")
    bad_lines(checks, "qwen2.5-coder-1.5b")
    return checks.end()


sys.exit(main())
