# SPDX-License-Identifier: Apache-2.0
"""Ollama's official client for Python against whoever answers: options by what they do, streams, forms, refusals, many
at once, leaving. tests/system/clients_test.py says against whom."""

import asyncio
import json

import ollama
from serve_test import MODEL, user

PLAIN = {"temperature": 0, "repeat_penalty": 1, "num_predict": 16}


class OllamaChecks:
    """Against self.ollama, a client; self.say() is what OpenAI's client gets there."""

    def tell(self, question="Tell me about the sea.", **more):
        given = {k: more.pop(k) for k in ("format", "keep_alive") if k in more}
        return self.ollama.chat("any", user(question), options={**PLAIN, **more}, **given)

    def told(self, **more):
        return self.tell(**more).message.content

    def test_ollama_answers(self):
        whole = self.tell()
        self.assertEqual(whole.message.content, self.say())
        self.assertEqual((whole.done_reason, whole.eval_count), ("length", 16))
        parts = list(self.ollama.chat("any", user("Tell me about the sea."), options=PLAIN, stream=True))
        self.assertEqual("".join(p.message.content for p in parts), whole.message.content)
        self.assertEqual([p.done for p in parts], [False] * (len(parts) - 1) + [True])
        self.assertEqual(self.ollama.generate("any", "Tell me about the sea.", options=PLAIN).response, self.say())
        raw = self.ollama.generate("any", "One two three", raw=True, options={**PLAIN, "num_predict": 12})
        self.assertEqual(raw.response, self.complete().choices[0].text)

    def test_ollama_options(self):
        greedy = self.told()
        hot = {"temperature": 1.7, "seed": 5, "top_p": 1, "top_k": 0}
        self.assertNotEqual(self.told(**hot), greedy)
        self.assertEqual(self.told(**hot), self.told(**hot))
        self.assertNotEqual(self.told(**hot), self.told(**{**hot, "seed": 6}))
        for sure in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1}):
            self.assertEqual(self.told(**{**hot, **sure}), greedy, sure)
        for penalty in ("repeat_penalty", "presence_penalty", "frequency_penalty"):
            self.assertNotEqual(self.told(num_predict=40, **{penalty: 2}), self.told(num_predict=40), penalty)
        self.assertEqual(self.told(repeat_penalty=2, repeat_last_n=0), greedy)
        self.assertEqual(self.tell(num_predict=3).eval_count, 3)
        word = greedy.split()[4]
        cut = self.tell(stop=[word])
        self.assertEqual((cut.message.content, cut.done_reason), (greedy[:greedy.index(word)], "stop"))

    def test_ollama_forms(self):
        schema = {"type": "object", "properties": {"kind": {"enum": ["cat", "dog"]}}, "required": ["kind"],
                  "additionalProperties": False}
        self.assertIn(json.loads(self.told(format=schema, num_predict=40))["kind"], ("cat", "dog"))
        self.assertIsInstance(json.loads(self.told(format="json", num_predict=300)), dict)

    def test_ollama_model(self):
        self.assertEqual([m.model for m in self.ollama.list().models], [MODEL])
        self.assertTrue(self.ollama.show("any").modelinfo)

    def test_ollama_refusals(self):
        for more, param in (({"temperature": 3}, "options.temperature"), ({"num_gpu": 1}, "options.num_gpu")):
            with self.assertRaises(ollama.ResponseError) as caught:
                self.tell(**more)
            error = caught.exception
            self.assertEqual((error.status_code, error.error["param"]), (400, param))
        with self.assertRaises(ollama.ResponseError) as caught:
            self.ollama.pull("another")
        self.assertEqual(caught.exception.status_code, 404)

    def test_ollama_leaving(self):
        stream = self.ollama.chat("any", user("Count."), stream=True, options={**PLAIN, "num_predict": 600},
                                  format={"type": "array", "items": {"type": "integer"}, "minItems": 300})
        left = self.disconnects()
        next(stream)
        stream.close()
        self.wait_left(left + 1)

    def test_ollama_eight_at_once(self):
        questions = [f"Tell me about the number {i}." for i in range(8)]
        alone = [self.told(question=q) for q in questions]

        async def ask():
            async with ollama.AsyncClient(host=self.base.removesuffix("/v1")) as client:
                answers = await asyncio.gather(*(client.chat("any", user(q), options=PLAIN) for q in questions))
            return [a.message.content for a in answers]

        self.assertEqual(asyncio.run(ask()), alone)
