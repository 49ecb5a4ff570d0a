#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tokens were worth, the prompt again, embeddings and the cost of hops: compared with `cobord logits`, and between
topologies to the last byte."""

import base64
import json
import math
import struct
import subprocess
import threading
import time
import unittest

from serve_test import CHAT, COBORD, COMPLETIONS, CONTEXT, MODEL, Server, environment, events_in, greedy, user
from up_test import Up

EMBEDDINGS = "/v1/embeddings"
PROMPT = "The capital of France is Paris. The capital of Italy is"
LONG = "The sea was calm and the wind had gone to sleep behind the hills. " * 12


def single(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def logits(ids, top):
    """For each position: {id: log-probability of it as the next token}, as float32."""
    done = subprocess.run(
        [COBORD, "logits", MODEL, "--tokens", ",".join(map(str, ids)), "--top", str(top), "--json"],
        capture_output=True, text=True, check=True, env=environment())
    return [{i: single(single(logit) - p["logsumexp"]) for i, logit in p["top"]}
            for p in json.loads(done.stdout)["positions"]]


def joined(entries):
    return bytes(b for entry in entries for b in entry["bytes"])


def without_names(answer):
    """An answer without what differs from one to the next."""
    return {k: v for k, v in answer.items() if k not in ("id", "created", "usage")}


class Base(unittest.TestCase):
    arguments = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server("--context", str(CONTEXT), *cls.arguments)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def tearDown(self):
        self.server.wait_for("cobord_slots_active", 0)

    def refused(self, path, body, param, code=None):
        status, _, text = self.server.call("POST", path, body)
        error = json.loads(text)["error"]
        self.assertEqual((status, error["param"]), (400, param), error)
        if code:
            self.assertEqual(error["code"], code)

    def ids(self, text, **more):
        return self.server.json("/tokenize", {"text": text, **more})["ids"]

    def text(self, ids):
        return self.server.json("/detokenize", {"ids": ids})["text"]


class ScoresTest(Base):
    def complete(self, **more):
        body = {"prompt": PROMPT, "temperature": 0, "max_tokens": 8, **more}
        return self.server.json(COMPLETIONS, body)["choices"][0]

    def chat(self, text="Name three colours.", **more):
        body = greedy(text, 24, logprobs=True, **more)
        return self.server.json(CHAT, body)["choices"][0]

    def test_as_logits_says(self):
        choice = self.complete(logprobs=20)
        ids = self.ids(PROMPT + choice["text"])
        first = len(self.ids(PROMPT))
        figures = logits(ids, 49152)
        found = choice["logprobs"]
        self.assertEqual(len(found["tokens"]), len(ids) - first)
        for i, token in enumerate(found["tokens"]):
            at = figures[first + i - 1]
            self.assertEqual(token, self.text([ids[first + i]]))
            self.assertEqual(found["token_logprobs"][i], at[ids[first + i]])
            best = sorted(at.items(), key=lambda item: (-item[1], item[0]))[:20]
            self.assertEqual(sorted(found["top_logprobs"][i].values(), reverse=True), [v for _, v in best])
            self.assertEqual(found["token_logprobs"][i], best[0][1])

    def test_offsets_and_counts(self):
        choice = self.complete(prompt="Ünïcödé: é, ü", echo=True, logprobs=3)
        found, text = choice["logprobs"], choice["text"]
        self.assertTrue(text.startswith("Ünïcödé: é, ü"))
        for offset, token in zip(found["text_offset"], found["tokens"]):
            if not token.startswith("bytes:"):
                self.assertEqual(text[offset:offset + len(token)], token)
        for top, token in zip(found["top_logprobs"][1:], found["tokens"][1:]):
            self.assertIn(token, top)
            self.assertIn(len(top), (3, 4))
        self.assertEqual(self.complete(logprobs=0)["logprobs"]["top_logprobs"],
                         [{t: v} for t, v in zip(*map(self.complete(logprobs=1)["logprobs"].get,
                                                      ("tokens", "token_logprobs")))])
        self.assertIsNone(self.complete()["logprobs"])

    def test_echo(self):
        ids = self.ids(LONG)
        self.assertGreater(len(ids), 100)
        figures = logits(ids, 49152)
        want = [figures[i - 1][ids[i]] for i in range(1, len(ids))]
        for prompt in (LONG, ids):
            answer = self.server.json(COMPLETIONS, {"prompt": prompt, "max_tokens": 0, "echo": True, "logprobs": 0})
            choice = answer["choices"][0]
            found = choice["logprobs"]
            self.assertEqual(choice["text"], LONG)
            self.assertEqual("".join(found["tokens"]), LONG)
            self.assertEqual(found["token_logprobs"], [None] + want)
            self.assertIsNone(found["top_logprobs"][0])
            self.assertEqual(choice["finish_reason"], "length")
            self.assertEqual(answer["usage"]["completion_tokens"], 0)
            self.assertEqual(answer["usage"]["prompt_tokens"], len(ids))
        self.assertAlmostEqual(sum(found["token_logprobs"][1:]), sum(want), places=9)

    def test_echo_of_the_text(self):
        plain = self.complete()["text"]
        self.assertEqual(self.complete(echo=True)["text"], PROMPT + plain)
        two = self.server.json(COMPLETIONS, {"prompt": [PROMPT, "One"], "n": 2, "max_tokens": 2, "echo": True,
                                             "logprobs": 0, "seed": 1})["choices"]
        for choice, prompt in zip(two, (PROMPT, PROMPT, "One", "One")):
            self.assertTrue(choice["text"].startswith(prompt))
            self.assertEqual("".join(choice["logprobs"]["tokens"]), choice["text"])
        self.assertEqual(self.complete(prompt="A", echo=True, logprobs=0, max_tokens=0)["logprobs"]["token_logprobs"],
                         [None])

    def test_streams_say_the_same(self):
        for body in ({"prompt": PROMPT, "logprobs": 2}, {"prompt": LONG, "logprobs": 2, "echo": True}):
            body = dict(body, temperature=0.8, seed=5, max_tokens=12)
            whole = self.server.json(COMPLETIONS, body)["choices"][0]
            events = self.server.events(COMPLETIONS, body)
            lists = {k: [] for k in whole["logprobs"]}
            text = ""
            for event in events[:-1]:
                choice = event["choices"][0]
                for name in lists:
                    lists[name] += (choice["logprobs"] or {}).get(name, [])
                text += choice["text"]
            self.assertEqual(lists, whole["logprobs"])
            self.assertEqual(text, whole["text"])
        whole = self.chat(top_logprobs=2)
        events = self.server.events(CHAT, greedy("Name three colours.", 24, logprobs=True, top_logprobs=2))
        entries = []
        for event in events[:-1]:
            choice = event["choices"][0]
            piece = choice["delta"].get("content")
            new = choice["logprobs"]["content"] if choice["logprobs"] else []
            self.assertEqual(joined(new).decode(), piece or "")
            entries += new
        self.assertEqual(entries, whole["logprobs"]["content"])
        self.assertIsNone(whole["logprobs"]["refusal"])

    def test_parts_of_characters(self):
        choice = self.chat("Write the word cat with an emoji.", top_logprobs=3,
                           response_format=None, grammar='root ::= "a🐈b🦊"')
        entries = choice["logprobs"]["content"]
        self.assertEqual(joined(entries).decode(), "a🐈b🦊")
        self.assertIn("\N{REPLACEMENT CHARACTER}", [entry["token"] for entry in entries])
        events = self.server.events(CHAT, greedy("x", 24, logprobs=True, grammar='root ::= "a🐈b🦊"'))
        for event in events[:-1]:
            choice = event["choices"][0]
            if choice["logprobs"]:
                self.assertEqual(joined(choice["logprobs"]["content"]).decode(), choice["delta"]["content"])
        whole = self.server.json(COMPLETIONS, {"prompt": "x", "max_tokens": 24, "logprobs": 0,
                                               "grammar": 'root ::= "🐈"'})["choices"][0]
        names = whole["logprobs"]["tokens"]
        self.assertTrue(any(name.startswith("bytes:\\x") for name in names), names)

    def test_stop(self):
        whole = self.complete(max_tokens=24, logprobs=1)
        tokens = whole["logprobs"]["tokens"]
        for stop in (tokens[6] + tokens[7], tokens[5][-1] + tokens[6][:2], "".join(tokens[4:9])):
            before = whole["text"][:whole["text"].index(stop)]
            count = next(i for i in range(len(tokens) + 1) if len("".join(tokens[:i])) >= len(before))
            cut = self.complete(max_tokens=24, logprobs=1, stop=stop)
            self.assertEqual((cut["text"], cut["finish_reason"]), (before, "stop"))
            self.assertEqual(cut["logprobs"], {k: v[:count] for k, v in whole["logprobs"].items()})
            body = {"prompt": PROMPT, "temperature": 0, "max_tokens": 24, "logprobs": 1, "stop": stop}
            events = self.server.events(COMPLETIONS, body)
            streamed = [x for e in events[:-1] for x in (e["choices"][0]["logprobs"] or {"tokens": []})["tokens"]]
            self.assertEqual(streamed, tokens[:count])
        never = "".join(tokens[3:6]) + "never"  # held back for a while, then let go
        self.assertEqual(self.complete(max_tokens=24, logprobs=1, stop=never)["logprobs"], whole["logprobs"])

    def test_what_they_are_of(self):
        plain = self.complete(logprobs=5, max_tokens=1)["logprobs"]
        hot = self.complete(logprobs=5, max_tokens=1, temperature=2, top_k=1, top_p=0.1)["logprobs"]
        self.assertEqual(plain, hot)
        best = self.ids(plain["tokens"][0])[0]
        biased = self.complete(logprobs=5, max_tokens=1, logit_bias={str(best): -100})["logprobs"]
        self.assertNotIn(plain["tokens"][0], biased["top_logprobs"][0])
        more = self.complete(logprobs=5, max_tokens=1, logit_bias={str(best): 5})["logprobs"]
        self.assertGreater(more["token_logprobs"][0], plain["token_logprobs"][0])
        seen = self.complete(logprobs=5, max_tokens=1, presence_penalty=2)["logprobs"]
        self.assertNotEqual(seen["top_logprobs"], plain["top_logprobs"])
        form = self.complete(logprobs=20, max_tokens=1, grammar='root ::= " yes" | " no"')["logprobs"]
        self.assertTrue(all(" yes".startswith(t) or " no".startswith(t) for t in form["top_logprobs"][0]), form)
        self.assertAlmostEqual(sum(map(math.exp, form["top_logprobs"][0].values())), 1, places=5)
        bias = {str(self.ids(PROMPT)[-1]): -100}
        said = self.complete(echo=True, logprobs=0, max_tokens=0, logit_bias=bias, presence_penalty=2)["logprobs"]
        self.assertEqual(said, self.complete(echo=True, logprobs=0, max_tokens=0)["logprobs"])

    def test_slots_and_cache_change_nothing(self):
        body = {"prompt": LONG, "temperature": 0, "max_tokens": 6, "logprobs": 4, "echo": True}
        alone = self.server.json(COMPLETIONS, body)["choices"]
        got = [None] * 4

        def ask(i):
            got[i] = self.server.json(COMPLETIONS, dict(body, prompt=LONG if i % 2 else "Other " + LONG))["choices"]

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual([got[1], got[3]], [alone, alone])
        self.assertEqual(got[0], got[2])
        after = self.server.json(COMPLETIONS, dict(body, echo=False))
        self.assertGreater(after["usage"]["prompt_tokens_details"]["cached_tokens"], 100)
        self.assertEqual(after["choices"][0]["logprobs"]["token_logprobs"], alone[0]["logprobs"]["token_logprobs"][-6:])

    def test_refusals(self):
        many = {"prompt": LONG * 2, "logprobs": 20, "echo": True, "stream": True, "max_tokens": 1}
        self.refused(COMPLETIONS, many, "echo")
        self.assertEqual(self.server.json(COMPLETIONS, dict(many, stream=False))["usage"]["completion_tokens"], 1)
        self.refused(CHAT, greedy("Hi", 1, top_logprobs=2), "top_logprobs")
        self.refused(CHAT, greedy("Hi", 1, logprobs=True, top_logprobs=21), "top_logprobs")
        self.refused(COMPLETIONS, {"prompt": "a", "logprobs": 21}, "logprobs")
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
        self.refused(CHAT, greedy("Hi", 1, logprobs=True, tools=[tool]), "logprobs")

    def test_resumed(self):
        body = {"prompt": LONG, "temperature": 0.7, "seed": 3, "max_tokens": 10, "logprobs": 2, "echo": True,
                "presence_penalty": 1, "stream": True}
        _, _, text = self.server.call("POST", COMPLETIONS, body)
        whole = events_in(text)
        places = [i for i, (place, _) in enumerate(whole) if place]
        self.assertGreater(len(places), 10)
        for i in places[::3]:
            _, _, rest = self.server.call("POST", COMPLETIONS, "{}", {"Last-Event-ID": whole[i][0]})
            self.assertEqual(events_in(rest), whole[i + 1:], whole[i][0])

    def test_hops(self):
        usage = self.server.json(CHAT, greedy("Hi", 8, hops=True))["usage"]
        (hop,) = usage["hops"]
        self.assertEqual(hop["node"], "self")
        self.assertTrue(hop["ms"] > 0 and 1 <= hop["calls"] <= 9, hop)
        self.assertEqual((hop["bytes_sent"], hop["bytes_received"]), (0, 0))
        self.assertNotIn("hops", self.server.json(CHAT, greedy("Hi", 1))["usage"])
        events = self.server.events(CHAT, greedy("Hi", 8, hops=True, stream_options={"include_usage": True}))
        self.assertEqual(events[-2]["usage"]["hops"][0]["node"], "self")
        self.refused(CHAT, greedy("Hi", 1, hops=True, stream=True), "hops")


class EmbeddingsTest(Base):
    def embed(self, inputs, **more):
        return [x["embedding"] for x in self.server.json(EMBEDDINGS, {"input": inputs, **more})["data"]]

    def test_shape(self):
        answer = self.server.json(EMBEDDINGS, {"input": ["The sea", "Das Meer"], "model": "any", "hops": True})
        self.assertEqual((answer["object"], answer["model"], answer["pooling"]), ("list", MODEL, "mean"))
        self.assertEqual([x["index"] for x in answer["data"]], [0, 1])
        self.assertEqual(answer["data"][0]["object"], "embedding")
        tokens = len(self.ids("The sea", add_special=True)) + len(self.ids("Das Meer", add_special=True))
        self.assertEqual((answer["usage"]["prompt_tokens"], answer["usage"]["total_tokens"]), (tokens, tokens))
        self.assertEqual(answer["usage"]["hops"][0]["node"], "self")
        model = self.server.json("/v1/models")["data"][0]
        for vector in (x["embedding"] for x in answer["data"]):
            self.assertEqual(len(vector), model["embedding_length"])
            self.assertAlmostEqual(math.hypot(*vector), 1, places=6)
            self.assertEqual(vector, [single(x) for x in vector])

    def test_formats(self):
        (numbers,) = self.embed("The sea")
        (text,) = self.embed("The sea", encoding_format="base64")
        self.assertEqual(base64.b64decode(text, validate=True), struct.pack(f"<{len(numbers)}f", *numbers))
        self.assertEqual(self.embed("The sea", encoding_format="float", dimensions=len(numbers)), [numbers])
        self.refused(EMBEDDINGS, {"input": "a", "dimensions": 5}, "dimensions")

    def test_inputs(self):
        ids = self.ids("The sea", add_special=True)
        alone = self.embed("The sea")[0]
        self.assertEqual(self.embed(ids), [alone])
        texts = [f"Text number {i}." for i in range(64)]
        many = self.embed([*texts[:31], "The sea", *texts[32:]])
        self.assertEqual(many[31], alone)
        self.assertEqual(many[5], self.embed(texts[5])[0])
        self.assertEqual(self.embed([ids, self.ids(texts[5], add_special=True)]), [alone, many[5]])
        self.assertEqual(len({tuple(v) for v in many}), 64)
        control = self.ids("<|im_start|>", parse_special=True)
        self.assertNotEqual(self.embed("<|im_start|>"), self.embed(control))
        for body, param in (({"input": ""}, "input"), ({"input": []}, "input"), ({}, "input"),
                            ({"input": ["a"] * 65}, "input"), ({"input": ["a", ""]}, "input"),
                            ({"input": 5}, "input"), ({"input": "a", "n": 2}, "n"),
                            ({"input": "a", "encoding_format": "hex"}, "encoding_format")):
            with self.subTest(body=str(body)[:50]):
                self.refused(EMBEDDINGS, body, param)
        self.refused(EMBEDDINGS, {"input": ["a", LONG * 20]}, "input", "context_length_exceeded")

    def test_near_and_far(self):
        a, b, c = self.embed(["The cat sat on the mat.", "A cat is sitting on a mat.", "def f(x): return x ** 2"])
        self.assertGreater(sum(x * y for x, y in zip(a, b)), sum(x * y for x, y in zip(a, c)))

    def test_beside_answers(self):
        alone, text = self.embed(LONG), self.server.json(CHAT, greedy("Tell me of the sea.", 40))["choices"]
        got = {}
        threads = [threading.Thread(target=lambda: got.update(e=self.embed([LONG] * 3))),
                   threading.Thread(target=lambda: got.update(
                       c=self.server.json(CHAT, greedy("Tell me of the sea.", 40))["choices"]))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(got["e"], alone * 3)
        self.assertEqual(got["c"], text)

    def test_hang_up(self):
        gone = self.server.figure("cobord_disconnects_total")
        connection = self.server.connect()
        connection.request("POST", EMBEDDINGS, json.dumps({"input": [LONG * 5] * 64}).encode(),
                           {"Content-Type": "application/json"})
        time.sleep(0.3)
        connection.close()
        begin = time.time()
        self.server.wait_for("cobord_disconnects_total", gone + 1, 5)
        self.server.wait_for("cobord_slots_active", 0, 5)
        self.assertEqual(self.server.figure("cobord_queue_length"), 0)
        self.assertLess(time.time() - begin, 5)
        self.assertEqual(self.embed("The sea"), self.embed("The sea"))


class TopologyTest(unittest.TestCase):
    """Every topology says the same bytes, and so does a second time with the beginning in the cache."""

    BODIES = [
        (COMPLETIONS, {"prompt": LONG, "temperature": 0, "max_tokens": 8, "logprobs": 20}),
        (COMPLETIONS, {"prompt": LONG, "temperature": 0.9, "seed": 2, "max_tokens": 8, "logprobs": 3, "echo": True}),
        (COMPLETIONS, {"prompt": LONG, "max_tokens": 0, "logprobs": 1, "echo": True}),
        (CHAT, {"messages": user("Count to ten."), "temperature": 0, "max_tokens": 16, "logprobs": True,
                "top_logprobs": 20, "presence_penalty": 0.5}),
        (EMBEDDINGS, {"input": [LONG, "The sea", "Das Meer"]}),
        (EMBEDDINGS, {"input": LONG, "encoding_format": "base64"}),
    ]

    def answers(self, call):
        return [json.dumps(without_names(call(path, body))) for path, body in self.BODIES]

    def serve(self, *arguments):
        server = Server("--context", "1024", "--journal", "none", *arguments)
        try:
            return self.answers(server.json)
        finally:
            server.stop()

    def up(self, *arguments):
        up = Up("--listen", "127.0.0.1:0", "--context", "1024", *arguments)
        try:
            def call(path, body):
                status, answer = up.json(path, body)
                self.assertEqual(status, 200, answer)
                return answer
            answers = self.answers(call) + self.answers(call)
            hops = call(CHAT, greedy("Hi", 4, hops=True))["usage"]["hops"]
            self.assertIn("station-0", [hop["node"] for hop in hops], hops)
            for hop in hops:
                self.assertGreater(hop["calls"], 0)
                if hop["node"].startswith("station"):
                    self.assertTrue(hop["bytes_sent"] > 0 and hop["bytes_received"] > 0 and hop["ms"] > 0, hop)
            return answers
        finally:
            up.stop()

    def test_same_everywhere(self):
        one = self.serve("--stations", "1", "--shards", "1")
        self.assertEqual(self.serve("--stations", "3", "--shards", "8", "--chunk", "7", "--threads", "1"), one)
        self.assertEqual(self.serve("--stations", "2", "--shards", "5", "--slots", "1", "--drafts", "0"), one)
        self.assertEqual(self.up("--stations", "2", "--shards", "3", "--memory", "96M"), one + one)
        self.assertEqual(self.up("--stations", "3", "--shards", "0", "--chunk", "16", "--memory", "192M"), one + one)


if __name__ == "__main__":
    unittest.main(verbosity=2)
