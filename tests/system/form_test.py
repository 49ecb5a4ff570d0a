#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Answers with a form through real servers: what is valid, what is cut, what is refused, and the memory they take."""

import concurrent.futures
import json
import re
import sys
import unittest

from _packages import need
from _schemas import ACCEPTED
from schema_test import checker
from serve_test import CHAT, COMPLETIONS, CONTEXT, Server, content, greedy, user

need("jsonschema", "4.26.0")
import jsonschema  # noqa: E402

MIB = 1 << 20


def form(schema, **more):
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, **more}}


def peak(process):
    with open(f"/proc/{process.pid}/status") as f:
        return int(re.search(r"VmHWM:\s+(\d+)", f.read()).group(1)) * 1024


def without_strings(text):
    return re.sub(r'"(\\.|[^"\\])*("|$)', '""', text)


class FormTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--context", str(CONTEXT), "--slots", "8")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def tearDown(self):
        self.server.wait_for("cobord_slots_active", 0)
        self.assertEqual(self.server.json(CHAT, greedy("Hi", 1))["usage"]["completion_tokens"], 1)

    def ask(self, schema, seed, tokens=220):
        body = {"messages": user("Give me an example."), "temperature": 1, "seed": seed, "max_tokens": tokens,
                "response_format": form(schema, strict=seed % 2 == 0)}
        return self.server.json(CHAT, body)["choices"][0]

    def test_every_schema_with_several_seeds(self):
        cases = [(schema, seed) for schema in ACCEPTED for seed in (1, 2, 3)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            choices = list(pool.map(lambda case: self.ask(*case), cases))
        whole = {}
        for (schema, seed), choice in zip(cases, choices):
            text, key = choice["message"]["content"], json.dumps(schema)
            if choice["finish_reason"] == "length":
                self.assertTrue(text, schema)
                continue
            self.assertEqual(choice["finish_reason"], "stop")
            whole[key] = whole.get(key, 0) + 1
            try:
                jsonschema.Draft202012Validator(schema, format_checker=checker).validate(json.loads(text))
            except (ValueError, jsonschema.ValidationError) as fault:
                self.fail(f"{schema}, seed {seed}: {text!r}: {fault}")
        print(f"{sum(whole.values())} of {len(cases)} answers came to their end, of {len(whole)} schemas")
        self.assertGreaterEqual(len(whole), len(ACCEPTED) * 9 // 10)

    def test_cut_by_max_tokens(self):
        numbers = {"type": "array", "items": {"type": "integer"}, "minItems": 20}
        schema = {"type": "object", "properties": {"a": numbers}, "required": ["a"]}
        for tokens in (0, 1, 5, 9):
            choice = self.ask(schema, 1, tokens)
            self.assertEqual(choice["finish_reason"], "length")
            self.assertTrue('{"a":['.startswith(choice["message"]["content"].translate({32: None, 10: None})[:6]))

    def test_json_object_and_strict(self):
        for seed in range(4):
            body = {"messages": user("Describe a cat as JSON."), "temperature": 1, "seed": seed, "max_tokens": 300,
                    "response_format": {"type": "json_object"}}
            choice = self.server.json(CHAT, body)["choices"][0]
            self.assertNotRegex(without_strings(choice["message"]["content"]), r"\s{42}")
            if choice["finish_reason"] == "stop":
                self.assertIsInstance(json.loads(choice["message"]["content"]), dict)
        for strict, status in ((True, 200), (False, 200), (None, 200), (1, 400)):
            body = {**greedy("Hi", 5), "response_format": form({"type": "integer"}, strict=strict)}
            self.server.json(CHAT, body, status)

    def test_white_space_has_an_end(self):
        """The model that would only write spaces and line ends has to go on."""
        spaces = [i for text in (" ", "\n", "  ", "\n\n", "    ") for i in self.tokens(text)]
        body = {**greedy("Hi", 200), "response_format": {"type": "json_object"},
                "logit_bias": {str(i): 100 for i in spaces}}
        text = content(self.server.json(CHAT, body))
        self.assertRegex(text, r"\s{8}")
        self.assertNotRegex(without_strings(text), r"\s{42}")

    def tokens(self, text):
        return self.server.json("/tokenize", {"text": text})["ids"]

    def test_streams_say_the_same(self):
        body = {**greedy("A person.", 120), "temperature": 0.9, "seed": 11, "response_format": form(ACCEPTED[-3])}
        events = self.server.events(CHAT, body)
        text = "".join(e["choices"][0]["delta"].get("content") or "" for e in events[:-1])
        self.assertEqual(text, content(self.server.json(CHAT, body)))
        body = {"prompt": "Two digits:", "max_tokens": 9, "n": 3, "grammar": "root ::= [0-9]{2}", "temperature": 1}
        for choice in self.server.json(COMPLETIONS, body)["choices"]:
            self.assertRegex(choice["text"], r"^[0-9]{2}$")
            self.assertEqual(choice["finish_reason"], "stop")

    def test_stop_strings_cut(self):
        body = {**greedy("Hi", 50), "grammar": 'root ::= "one two three"', "stop": "tw"}
        choice = self.server.json(CHAT, body)["choices"][0]
        self.assertEqual((choice["message"]["content"], choice["finish_reason"]), ("one ", "stop"))

    def assert_refused(self, body, param, *words):
        error = self.server.json(CHAT, body, 400)["error"]
        self.assertEqual((error["param"], error["retryable"]), (param, False))
        for word in words:
            self.assertIn(word, error["message"])
        return error["message"]

    def test_begins_in_too_many_ways(self):
        for ways in (" | ".join(f'"{i}"' for i in range(5000)), "[a-z]? " * 3000):
            self.assert_refused({**greedy("Hi", 9), "grammar": "root ::= " + ways}, "grammar", "more ways")
        self.assertTrue(self.server.json(CHAT, greedy("Hi", 2), 200)["choices"])

    def test_no_token_left(self):
        """logit_bias forbids what the grammar allows."""
        yes = [i for text in ("y", "ye", "yes") for i in self.tokens(text)]
        body = {**greedy("Hi", 9), "grammar": 'root ::= "yes"', "logit_bias": {str(i): -100 for i in yes}}
        self.assert_refused(body, "logit_bias", "forbids every token that grammar allows after 0")
        body = {**greedy("Hi", 9), "response_format": form({"const": 17}), "logit_bias": {
            str(i): -100 for text in ("7", "17") for i in self.tokens(text)}}
        self.assert_refused(body, "logit_bias", "that response_format allows")

    def test_error_inside_a_stream(self):
        yes = [i for text in ("s", "es") for i in self.tokens(text)]
        body = {**greedy("Hi", 9), "grammar": 'root ::= "y" "es"',
                "logit_bias": {**{str(i): -100 for i in yes + self.tokens("yes")}}}
        events = self.server.events(CHAT, body)
        self.assertEqual(events[-1]["error"]["param"], "logit_bias")
        self.assertEqual("".join(e["choices"][0]["delta"]["content"] for e in events[:-1]), "ye")


class MemoryTest(unittest.TestCase):
    def serve(self, memory, *more):
        return Server("--context", "512", "--slots", "2", "--memory", memory, *more)

    def test_refused_when_there_is_no_room(self):
        server = self.serve("72M")
        try:
            for more in ({"response_format": {"type": "json_object"}}, {"grammar": "root ::= [a-z]+"}):
                error = server.json(CHAT, {**greedy("Hi", 5), **more}, 400)["error"]
                self.assertEqual((error["param"], error["code"]), (next(iter(more)), "unsupported_parameter"))
                self.assertIn("--memory", error["message"])
            server.json(CHAT, greedy("Hi", 5))
            self.assertLessEqual(peak(server.process), 72 * MIB)
        finally:
            self.assertEqual(server.stop(), 0)

    def test_never_above_the_ceiling(self):
        server = self.serve("128M")
        words = {"enum": [f"word number {i} of many" for i in range(8000)]}
        wide = {"type": "object", "properties": {f"name {i}": {"type": "string", "maxLength": 50} for i in range(500)}}
        try:
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                bodies = [{**greedy("Hi", 12), "response_format": form(s)} for s in (words, wide, {}, words) * 4]
                answers = list(pool.map(lambda b: server.call("POST", CHAT, b), bodies))
            for status, _, text in answers:
                self.assertIn(status, (200, 503), text)
                if status == 503:
                    self.assertIn("try again later", json.loads(text)["error"]["message"])
            self.assertGreaterEqual(sum(status == 200 for status, _, _ in answers), 4)
            print(f"peak {peak(server.process) / MIB:.1f} MiB of 128")
            self.assertLessEqual(peak(server.process), 128 * MIB)
            server.json(CHAT, {**greedy("Hi", 5), "response_format": {"type": "json_object"}})
        finally:
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
