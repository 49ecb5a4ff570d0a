#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The official OpenAI clients for Python and JavaScript (tests/clients/openai_suite.mjs) against a server and a cluster:
each parameter by what it does, shapes by the clients' own types, errors by their classes."""

import asyncio
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
import unittest
import urllib.request

from _packages import need
from serve_test import LONG, MODEL, Server, user
from up_test import Up

need("openai", "3.57.0")
import openai  # noqa: E402

JAVASCRIPT_VERSION = "6.49.0"
SUITE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "clients", "openai_suite.mjs")
QUESTION = user("Tell me about the sea.")
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Paris", "Oslo"]},
                           "days": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}
PET = {
    "type": "object",
    "properties": {"kind": {"enum": ["cat", "dog"]}, "age": {"type": "integer"}},
    "required": ["kind", "age"],
    "additionalProperties": False,
}


def javascript_package():
    """The folder with node_modules/openai, in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    place = os.path.join(cache, "cobord-tests", f"openai-js-{JAVASCRIPT_VERSION}")
    if not os.path.isdir(os.path.join(place, "node_modules", "openai")):
        os.makedirs(place, exist_ok=True)
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", place,
                        f"openai@{JAVASCRIPT_VERSION}"], check=True)
    return place


class Checks:
    """Against self.client, whoever answers."""

    def chat(self, messages=QUESTION, **more):
        given = dict({"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 16}, **more)
        return self.client.chat.completions.create(**{k: v for k, v in given.items() if v is not None})

    def say(self, **more):
        return self.chat(**more).choices[0].message.content

    def complete(self, **more):
        return self.client.completions.create(
            **dict({"model": MODEL, "prompt": "One two three", "temperature": 0, "max_tokens": 12}, **more))

    def refused(self, kind, call, param=None, code=None):
        with self.assertRaises(kind) as caught:
            call()
        if param:
            self.assertEqual(caught.exception.param, param)
        if code:
            self.assertEqual(caught.exception.code, code)
        return caught.exception

    # ---- models, whole answers, streams

    def test_models(self):
        self.assertEqual([m.id for m in self.client.models.list()], [MODEL])
        self.assertEqual(self.client.models.retrieve(MODEL).object, "model")
        self.refused(openai.NotFoundError, lambda: self.client.models.retrieve("other"), code="model_not_found")

    def test_chat_answer(self):
        answer = self.chat()
        self.assertEqual((answer.object, answer.model), ("chat.completion", MODEL))
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)
        self.assertEqual(self.chat(model="another").model, MODEL)
        self.assertEqual(self.chat(user="me").choices[0].message.content, answer.choices[0].message.content)

    def test_chat_stream(self):
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.completion_tokens, 16)
        reasons = [c.choices[0].finish_reason for c in chunks[:-1]]
        self.assertEqual(reasons, [None] * (len(reasons) - 1) + ["length"])
        text = "".join(c.choices[0].delta.content or "" for c in chunks[:-1])
        self.assertEqual(text, self.say())
        self.assertTrue(all(c.usage is None for c in self.chat(stream=True)))

    def test_completions(self):
        whole = self.complete()
        self.assertEqual(whole.usage.completion_tokens, 12)
        text = "".join(c.choices[0].text for c in self.complete(stream=True))
        self.assertEqual(text, whole.choices[0].text)
        two = self.complete(prompt=["One two three", "Red, green and"]).choices
        self.assertEqual([c.index for c in two], [0, 1])
        self.assertEqual(two[0].text, whole.choices[0].text)
        echoed = self.complete(echo=True).choices[0].text
        self.assertEqual(echoed, "One two three" + whole.choices[0].text)

    # ---- parameters, by their effect

    def test_sampling(self):
        greedy = self.say()
        hot = {"temperature": 1.7, "seed": 5}
        self.assertNotEqual(self.say(**hot), greedy)
        self.assertEqual(self.say(**hot), self.say(**hot))
        self.assertNotEqual(self.say(**hot), self.say(**dict(hot, seed=6)))
        self.assertEqual(self.say(**hot, top_p=1e-6), greedy)
        self.assertEqual(self.say(**hot, extra_body={"top_k": 1}), greedy)
        self.assertEqual(self.say(**hot, extra_body={"min_p": 1}), greedy)

    def test_penalties(self):
        song = user("Repeat exactly: la la la la la la la la")
        plain = self.say(messages=song, max_tokens=40)
        for more in ({"presence_penalty": 2}, {"frequency_penalty": 2}, {"extra_body": {"repetition_penalty": 2}}):
            other = self.say(messages=song, max_tokens=40, **more)
            self.assertNotEqual(other, plain, more)
            self.assertLess(other.count("your day"), plain.count("your day"), more)

    def test_logit_bias(self):
        first = self.complete(max_tokens=1).choices[0].text
        (token,) = self.client.post("/../tokenize", body={"text": first}, cast_to=object)["ids"]
        self.assertNotEqual(self.complete(max_tokens=1, logit_bias={str(token): -100}).choices[0].text, first)
        self.assertEqual(self.complete(prompt="Something else", max_tokens=3, logit_bias={str(token): 100})
                         .choices[0].text, first * 3)

    def test_stop(self):
        text = self.say(max_tokens=24)
        word = text.split()[4]
        answer = self.chat(max_tokens=24, stop=word).choices[0]
        self.assertEqual((answer.message.content, answer.finish_reason), (text[:text.index(word)], "stop"))
        sixteen = [f"never{i}" for i in range(15)] + [word]
        self.assertEqual(self.say(max_tokens=24, stop=sixteen), text[:text.index(word)])
        self.refused(openai.BadRequestError, lambda: self.chat(stop=sixteen + ["x"]), "stop")

    def test_n(self):
        three = self.chat(n=3, temperature=1.5, seed=7).choices
        self.assertEqual([c.index for c in three], [0, 1, 2])
        self.assertEqual(len({c.message.content for c in three}), 3)
        self.assertEqual(three[1].message.content, self.say(temperature=1.5, seed=8))

    def test_token_limits(self):
        for limit in (1, 7):
            self.assertEqual(self.chat(max_tokens=limit).usage.completion_tokens, limit)
            self.assertEqual(self.chat(max_tokens=None, max_completion_tokens=limit).usage.completion_tokens, limit)
        self.assertEqual(self.chat(max_tokens=0).choices[0].message.content, "")

    def test_forms(self):
        self.assertIsInstance(json.loads(self.say(response_format={"type": "json_object"}, max_tokens=300)), dict)
        form = {"type": "json_schema", "json_schema": {"name": "pet", "strict": True, "schema": PET}}
        for seed in range(3):
            pet = json.loads(self.say(response_format=form, max_tokens=60, temperature=1.2, seed=seed))
            self.assertEqual(sorted(pet), ["age", "kind"])
            self.assertIn(pet["kind"], ("cat", "dog"))
            self.assertIsInstance(pet["age"], int)
        self.assertIn(self.say(extra_body={"grammar": 'root ::= "yes" | "no"'}), ("yes", "no"))
        broken = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "not": {}}}}
        self.refused(openai.BadRequestError, lambda: self.chat(response_format=broken))

    def test_pydantic(self):
        from pydantic import BaseModel

        class Pet(BaseModel):
            name: str
            age: int

        parsed = self.client.chat.completions.parse(
            model=MODEL, messages=user("Rex, a dog of 4 years."), response_format=Pet, temperature=0, max_tokens=200)
        self.assertIsInstance(parsed.choices[0].message.parsed, Pet)

    # ---- scores

    def test_logprobs(self):
        choice = self.chat(logprobs=True, top_logprobs=3).choices[0]
        parts = choice.logprobs.content
        self.assertEqual(len(parts), 16)
        self.assertEqual(b"".join(bytes(p.bytes) for p in parts).decode(), choice.message.content)
        for p in parts:
            self.assertEqual(len(p.top_logprobs), 3)
            self.assertEqual((p.top_logprobs[0].token, p.top_logprobs[0].logprob), (p.token, p.logprob))
            self.assertLess(sum(math.exp(t.logprob) for t in p.top_logprobs), 1 + 1e-6)
        streamed = []
        for chunk in self.chat(logprobs=True, top_logprobs=3, stream=True):
            if chunk.choices[0].logprobs:
                streamed += chunk.choices[0].logprobs.content
        self.assertEqual(streamed, parts)
        self.assertIsNone(self.chat().choices[0].logprobs)
        self.refused(openai.BadRequestError, lambda: self.chat(logprobs=True, top_logprobs=21), "top_logprobs")

    def test_completion_logprobs(self):
        scored = self.complete(logprobs=2).choices[0]
        self.assertEqual("".join(scored.logprobs.tokens), scored.text)
        self.assertEqual(len(scored.logprobs.token_logprobs), 12)
        prompt = self.complete(max_tokens=0, echo=True, logprobs=1).choices[0]
        self.assertEqual((prompt.text, prompt.finish_reason), ("One two three", "length"))
        self.assertEqual("".join(prompt.logprobs.tokens), "One two three")
        self.assertIsNone(prompt.logprobs.token_logprobs[0])
        self.assertTrue(all(x < 0 for x in prompt.logprobs.token_logprobs[1:]))

    # ---- tools

    def test_tools(self):
        ask = dict(messages=user("What is the weather in Oslo?"), tools=[WEATHER], max_tokens=120,
                   parallel_tool_calls=False)
        choice = self.chat(**ask, tool_choice="required").choices[0]
        self.assertEqual((choice.finish_reason, choice.message.content), ("tool_calls", None))
        call = choice.message.tool_calls[0]
        self.assertEqual((call.type, call.function.name), ("function", "get_weather"))
        given = json.loads(call.function.arguments)
        self.assertIn(given["city"], ("Paris", "Oslo"))
        self.assertIn(given["days"], range(1, 10))
        named = self.chat(**ask, tool_choice={"type": "function", "function": {"name": "get_weather"}})
        self.assertEqual(named.choices[0].message.tool_calls[0].function.name, "get_weather")
        self.assertIsNone(self.chat(**ask, tool_choice="none").choices[0].message.tool_calls)
        after = ask["messages"] + [choice.message.model_dump(exclude_none=True),
                                   {"role": "tool", "tool_call_id": call.id, "content": '{"sky":"clear"}'}]
        self.assertTrue(self.say(messages=after, tools=[WEATHER], tool_choice="none"))
        parts = [c.choices[0].delta.tool_calls for c in self.chat(**ask, tool_choice="required", stream=True)]
        parts = [p for calls in parts if calls for p in calls]
        self.assertEqual(parts[0].function.name, "get_weather")
        self.assertEqual("".join(p.function.arguments or "" for p in parts), call.function.arguments)
        self.refused(openai.BadRequestError, lambda: self.chat(tool_choice="required"), "tool_choice")

    # ---- embeddings, responses

    def embed(self, text, **more):
        return self.client.embeddings.create(**dict({"model": MODEL, "input": text}, **more))

    def test_embeddings(self):
        both = self.embed(["The cat sleeps.", "Stocks fell today."])
        self.assertEqual([d.index for d in both.data], [0, 1])
        first, second = (d.embedding for d in both.data)
        self.assertAlmostEqual(sum(x * x for x in first), 1, 4)
        self.assertNotEqual(first, second)
        self.assertEqual(self.embed("The cat sleeps.", encoding_format="float").data[0].embedding, first)
        self.assertGreater(both.usage.prompt_tokens, 4)
        self.refused(openai.BadRequestError, lambda: self.embed("x", dimensions=7), "dimensions")
        self.refused(openai.BadRequestError, lambda: self.embed(""), "input")

    def test_responses(self):
        ask = dict(model=MODEL, input="Tell me about the sea.", temperature=0, max_output_tokens=16)
        whole = self.client.responses.create(**ask)
        self.assertEqual(whole.output_text, self.say())
        events = list(self.client.responses.create(**ask, stream=True))
        self.assertEqual((events[0].type, events[-1].type), ("response.created", "response.incomplete"))
        self.assertEqual("".join(e.delta for e in events if e.type == "response.output_text.delta"),
                         whole.output_text)

    # ---- errors, leaving, many at once

    def test_errors(self):
        bad = openai.BadRequestError
        self.refused(bad, lambda: self.chat(temperature=3), "temperature", "invalid_value")
        self.refused(bad, lambda: self.chat(extra_body={"nonsense": 1}), "nonsense", "unknown_parameter")
        self.refused(bad, lambda: self.chat(messages=[]), "messages")
        self.refused(bad, lambda: self.chat(messages=user("word " * 2000)), code="context_length_exceeded")
        self.refused(openai.NotFoundError, lambda: self.client.get("/nowhere", cast_to=object))
        error = self.refused(openai.APIStatusError, lambda: self.chat(messages=user("x" * (9 << 20))))
        self.assertEqual(error.status_code, 413)
        error = self.refused(openai.APIStatusError, lambda: self.client.post(
            "/chat/completions", body={}, cast_to=object, options={"headers": {"Content-Type": "text/plain"}}))
        self.assertEqual(error.status_code, 415)
        self.assertTrue(self.say())

    def wait_idle(self):
        end = time.time() + 10
        while self.active_slots():
            self.assertLess(time.time(), end, "a slot stays busy")
            time.sleep(0.02)

    def disconnects(self):
        with urllib.request.urlopen(self.base[:-2] + "metrics") as answer:
            return int(re.search(rb"^cobord_disconnects_total (\d+)$", answer.read(), re.M).group(1))

    def active_slots(self):
        return self.client.get("/../ready", cast_to=object)["active"]

    def test_close_frees_the_slot(self):
        left = self.disconnects()
        with self.chat(**dict(LONG, temperature=1.5), stream=True) as stream:
            next(iter(stream))
        self.wait_idle()
        self.assertEqual(self.disconnects(), left + 1)

    def test_timeout(self):
        self.refused(openai.APITimeoutError, lambda: self.client.with_options(timeout=0.05).chat.completions.create(
            model=MODEL, **dict(LONG, max_tokens=600)))
        self.wait_idle()
        self.assertTrue(self.say())

    def test_eight_at_once(self):
        prompts = [user(f"Tell me about the number {i}.") for i in range(8)]
        alone = [self.say(messages=p) for p in prompts]

        async def ask():
            async with openai.AsyncOpenAI(base_url=self.base, api_key="none", max_retries=0) as client:
                answers = await asyncio.gather(*(client.chat.completions.create(
                    model=MODEL, messages=p, temperature=0, max_tokens=16) for p in prompts))
            return [a.choices[0].message.content for a in answers]

        self.assertEqual(asyncio.run(ask()), alone)

    def test_hops(self):
        usage = self.chat(extra_body={"hops": True}).usage
        hops = usage.model_extra["hops"]
        self.assertTrue(all(h["calls"] > 0 and h["ms"] >= 0 for h in hops), hops)
        self.assertEqual({h["node"] for h in hops} >= self.nodes, True, hops)
        self.assertNotIn("hops", self.chat().usage.model_extra or {})

    # ---- the other language

    def test_javascript(self):
        node = shutil.which("node")
        self.assertTrue(node, "node is not installed: scripts/prepare")
        done = subprocess.run([node, SUITE, self.base, MODEL], cwd=javascript_package(), capture_output=True, text=True,
                              timeout=300, env={**os.environ, "OPENAI_PACKAGE": javascript_package()})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("all passed", done.stdout)

    @classmethod
    def connect(cls):
        cls.base = f"http://127.0.0.1:{cls.server.port}/v1"
        cls.client = openai.OpenAI(base_url=cls.base, api_key="none", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.server.stop()


class ServerTest(Checks, unittest.TestCase):
    nodes = {"self"}

    @classmethod
    def setUpClass(cls):
        cls.server = Server("--context", "1024", "--slots", "4")
        cls.connect()

    def test_full_queue(self):
        narrow = Server("--context", "1024", "--slots", "1", "--queue", "1")
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{narrow.port}/v1", api_key="none", max_retries=0)

        async def ask():
            url = f"http://127.0.0.1:{narrow.port}/v1"
            async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as many:
                return await asyncio.gather(*(many.chat.completions.create(
                    model=MODEL, **dict(LONG, max_tokens=60)) for _ in range(6)), return_exceptions=True)

        results = asyncio.run(ask())
        errors = [r for r in results if isinstance(r, Exception)]
        self.assertTrue(errors and all(isinstance(e, openai.RateLimitError) for e in errors), results)
        self.assertTrue(all("retry-after" in e.response.headers for e in errors))
        self.assertGreaterEqual(len(results) - len(errors), 2)
        client.close()
        narrow.stop()


class UpTest(Checks, unittest.TestCase):
    nodes = {"station-0", "station-1", "shard-0"}

    @classmethod
    def setUpClass(cls):
        cls.server = Up("--stations", "2", "--shards", "2", "--context", "1024", "--listen", "127.0.0.1:0")
        cls.connect()


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
