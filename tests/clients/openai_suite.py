# SPDX-License-Identifier: Apache-2.0
"""The official OpenAI client for Python against whoever answers: each parameter by what it does, shapes by the client's
own types, errors by their classes. tests/system/clients_test.py says against whom."""

import asyncio
import json
import math
import re
import time
import urllib.request

import openai
from serve_test import LONG, MODEL, user

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

    def ids(self, text):
        return self.client.post("/../tokenize", body={"text": text}, cast_to=object)["ids"]

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
        page = self.client.models.list()
        self.assertEqual(([m.id for m in page], page.has_next_page()), ([MODEL], False))
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

    def test_typed_events(self):
        """The client's helper makes its own events of ours, and every chunk is what its type says."""
        with self.client.chat.completions.stream(model=MODEL, messages=QUESTION, temperature=0, max_tokens=16,
                                                 logprobs=True) as stream:
            events = list(stream)
        types = [event.type for event in events]
        done = next(event for event in events if event.type == "content.done")
        self.assertEqual(done.content, self.say())
        self.assertEqual(set(types), {"chunk", "content.delta", "content.done", "logprobs.content.delta",
                                      "logprobs.content.done"})
        for chunk in self.chat(stream=True):
            type(chunk).model_validate(chunk.to_dict(), strict=True)
        with self.client.chat.completions.with_streaming_response.create(
                model=MODEL, messages=QUESTION, temperature=0, max_tokens=2, stream=True) as raw:
            lines = list(raw.iter_lines())
        self.assertTrue(raw.headers["content-type"].startswith("text/event-stream"))
        self.assertIn("data: [DONE]", lines)

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
        """What a token that has occurred is worth: its logit is lower, once or for each time; a ratio as asked."""
        first = self.complete(max_tokens=1).choices[0].text
        (token,) = self.ids(first)

        def scores(bias, **more):
            return self.complete(max_tokens=3, logprobs=5, logit_bias={str(token): bias}, **more).choices[0].logprobs

        bias = 1 + next(b for b in range(4, 60) if scores(b).tokens[:2] == [first] * 2)

        def worth(**more):
            """Log-probability of that token where it has been written 0, 1 and, as long as it is, 2 times."""
            found = scores(bias, **more)
            self.assertEqual(found.tokens[0], first, more)
            return [top[first] for top in found.top_logprobs[:3 if found.tokens[1] == first else 2]]

        def lowered(before, by):
            odds = math.exp(before - by)
            return math.log(odds / (1 - math.exp(before) + odds))

        plain = worth()
        for name, times in (("presence_penalty", (0, 1, 1)), ("frequency_penalty", (0, 1, 2))):
            for value in (0.5, -0.5):
                for before, after, n in zip(plain, worth(**{name: value}), times, strict=True):
                    self.assertAlmostEqual(after, lowered(before, value * n), 3, (name, value))
        less = worth(extra_body={"repetition_penalty": 1.1})
        more = worth(extra_body={"repetition_penalty": 0.9})
        self.assertTrue(less[1] < plain[1] < more[1], (less, plain, more))

    def test_cuts(self):
        """Among what a token was drawn from: the k likeliest, those that reach p, those not far from the likeliest."""
        def drawn(**more):
            for seed in (1, 2, 3):
                scores = self.complete(temperature=1, seed=seed, logprobs=20, **more).choices[0].logprobs
                for token, own, top in zip(scores.tokens, scores.token_logprobs, scores.top_logprobs):
                    yield own, sorted(top.values(), reverse=True)

        self.assertTrue(any(own < top[1] for own, top in drawn()))
        self.assertTrue(all(own >= top[1] for own, top in drawn(extra_body={"top_k": 2})))
        self.assertTrue(all(own >= top[0] + math.log(0.5) - 1e-5 for own, top in drawn(extra_body={"min_p": 0.5})))
        for own, top in drawn(top_p=0.5):
            self.assertLess(sum(math.exp(x) for x in top if x > own), 0.5)

    def test_logit_bias(self):
        first = self.complete(max_tokens=1).choices[0].text
        (token,) = self.ids(first)
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

    def wait_left(self, count):
        """Until so many have left in all and no slot is busy: who leaves the queue was never in one."""
        end = time.time() + 10
        while self.disconnects() < count:
            self.assertLess(time.time(), end, "nobody noticed that a client left")
            time.sleep(0.02)
        self.assertEqual(self.disconnects(), count)
        self.wait_idle()

    def active_slots(self):
        return self.client.get("/../ready", cast_to=object)["active"]

    def test_close_frees_the_slot(self):
        left = self.disconnects()
        with self.chat(**dict(LONG, temperature=1.5), stream=True) as stream:
            next(iter(stream))
        self.wait_left(left + 1)

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
