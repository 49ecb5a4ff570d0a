#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What clients have done to other servers: strange bodies, strange values, strange bytes. Each is
answered by one defined result, in one shape of errors, and the next request works."""

import concurrent.futures
import json
import sys
import unittest

import _packages
from _schemas import REFUSED_KEYWORDS
from serve_test import CHAT, COMPLETIONS, Server, content, events_in, greedy, user

_packages.need("jsonschema", "4.26.0")
import jsonschema  # noqa: E402

VOCABULARY = 49152
GENERATING = (CHAT, COMPLETIONS)
BAD_IDS = [[-1], [[-1]], [VOCABULARY], [2**31], [5279552648203111001], [1.5], [True], [None], [[]], [{}]]


def nested(depth, kind):
    return "[" * depth + "1" + "]" * depth if kind == "arrays" else '{"a":' * depth + "1" + "}" * depth


class Cases(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--context", "1024", "--slots", "4")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def tearDown(self):
        self.works()

    def works(self):
        self.server.wait_for("cobord_slots_active", 0)
        self.assertEqual(self.server.json(CHAT, greedy("Hi", 1))["usage"]["completion_tokens"], 1)

    def error(self, path, body, *codes, headers=None, method="POST"):
        """The error of a request that must be refused; nothing of the request's bytes is in it as it came."""
        status, got, text = self.server.call(method, path, body, headers)
        self.assertIn(status, codes, text)
        self.assertEqual(got["Content-Type"], "application/json")
        self.assertTrue(text.isascii(), text)
        self.assertLess(len(text), 900)
        error = json.loads(text)["error"]
        self.assertLessEqual({"message", "type", "param", "code", "retryable"}, set(error))
        self.assertTrue(error["message"] and error["code"] and error["type"])
        return error


class ValuesTest(Cases):
    def test_ids(self):
        """T09, S02"""
        for value in BAD_IDS:
            with self.subTest(value=value):
                self.assertTrue(self.error(COMPLETIONS, {"prompt": value}, 400)["param"].startswith("prompt"))
                self.assertTrue(self.error("/detokenize", {"ids": value}, 400)["param"].startswith("ids"))
                for path in GENERATING:
                    body = {"prompt": "a"} if path == COMPLETIONS else {"messages": user("a")}
                    error = self.error(path, {**body, "stop_token_ids": value}, 400)
                    self.assertEqual(error["param"], "stop_token_ids")
        self.assertEqual(self.error(COMPLETIONS, {"prompt": [1, 2, 3, -1]}, 400)["param"], "prompt[3]")
        for value in (f'{{"{VOCABULARY}":-100}}', '{"191222":-100}', '{"-1":1}', '{"abc":1}', '{"5":"x"}',
                      '{"5":1e400}', '{"5279552648203111001":1}', '{"1.5":1}', '{"":1}', '{"5":null}', "[[5,1]]",
                      json.dumps({str(i % VOCABULARY) + " " * (i // VOCABULARY): 1 for i in range(100000)})):
            with self.subTest(value=value[:40]):
                self.error(COMPLETIONS, '{"prompt":"a","logit_bias":' + value + "}", 400)

    def test_sampling_values(self):
        """S03: each value has a defined meaning, or is refused by its name."""
        fine = {"top_k": (0, 1, VOCABULARY - 1, VOCABULARY, 10**6), "top_p": (0, 1, 1e-9, 0.5), "min_p": (0, 1, 0.5),
                "temperature": (0, 1e-9, 1e-5, 2), "presence_penalty": (0, -2, 2), "frequency_penalty": (0, -2, 2),
                "repetition_penalty": (1, 0.01, 10), "seed": (0, -1, 2**63 - 1)}
        refused = {"top_k": ("-1", "1.5", '"5"', "true"), "top_p": ("1.5", "-1", '"1"'), "min_p": ("-0.1", "1.1"),
                   "temperature": ("-1", "1e9", '"0.7"', "2.01"), "repetition_penalty": ("0", "-1", "1e9"),
                   "repeat_last_n": ("-1", "64"), "samplers": ('["top_k"]',), "typical_p": ("1",), "mirostat": ("0",)}
        for name, values in fine.items():
            for value in values:
                with self.subTest(name=name, value=value):
                    body = {"prompt": "Once", "max_tokens": 3, "temperature": 1, name: value}
                    self.assertEqual(self.server.json(COMPLETIONS, body)["usage"]["completion_tokens"], 3)
        for name, values in refused.items():
            for value in values:
                with self.subTest(name=name, value=value):
                    body = f'{{"prompt":"Once","max_tokens":3,"{name}":{value}}}'
                    self.assertEqual(self.error(COMPLETIONS, body, 400)["param"], name)
        for value in ("NaN", "Infinity", "-Infinity", "1e400", "0x1", "01", "+1"):
            self.assertEqual(self.error(COMPLETIONS, f'{{"prompt":"a","temperature":{value}}}', 400)["code"],
                             "invalid_json")
        best = self.server.json(COMPLETIONS, {"prompt": "Once upon", "max_tokens": 6, "temperature": 0})["choices"]
        for one in ({"top_k": 1}, {"top_p": 0}, {"min_p": 1}, {"temperature": 1e-9}):
            body = {"prompt": "Once upon", "max_tokens": 6, "temperature": 2, "seed": 1, **one}
            self.assertEqual(self.server.json(COMPLETIONS, body)["choices"], best)

    def test_lengths(self):
        """A02: so many tokens, no more; 0 is the prompt alone."""
        names = {CHAT: ("max_tokens", "max_completion_tokens"), COMPLETIONS: ("max_tokens",)}
        for path, fields in names.items():
            body = {"prompt": "Once upon a time"} if path == COMPLETIONS else {"messages": user("Tell me a story.")}
            body["temperature"] = 0
            for field in fields:
                for tokens in (0, 1, 2, 3):
                    answer = self.server.json(path, {**body, field: tokens})
                    self.assertEqual(answer["usage"]["completion_tokens"], tokens)
                    self.assertEqual(answer["choices"][0]["finish_reason"], "length")
                for value in (-1, -2, 1.5, "5", [], True, 2**31, 2**63):
                    self.assertEqual(self.error(path, {**body, field: value}, 400)["param"], field)
                self.server.json(path, {**body, field: None, "stop": ["e", "a", "o", " "]})
                self.server.json(path, {**body, field: 2**31 - 1, "stop": ["e", "a", "o", " "]})
        self.error(CHAT, {"messages": user("a"), "max_tokens": 1, "max_completion_tokens": 2}, 400)

    def test_empty(self):
        """A01: each followed by a request that works."""
        for path, body in ((COMPLETIONS, {"prompt": ""}), (COMPLETIONS, {"prompt": [""]}),
                           (COMPLETIONS, {"prompt": []}), (COMPLETIONS, {}), (COMPLETIONS, ""),
                           (CHAT, {"messages": []}), (CHAT, {}), (CHAT, "")):
            with self.subTest(path=path, body=body):
                self.error(path, body, 400)
                self.works()
        self.server.json(CHAT, {"messages": user(""), "max_tokens": 2})

    def test_the_same_again(self):
        """S07: in a fresh slot and in those that know it, alone and beside others."""
        text = "The river runs past the old mill and on to the"
        body = {"prompt": text, "max_tokens": 24, "temperature": 0.9, "seed": 99}
        first = self.server.json(COMPLETIONS, body)["choices"]
        for _ in range(3):
            self.assertEqual(self.server.json(COMPLETIONS, body)["choices"], first)
        others = [{"prompt": f"{i} and {i + 1} and", "max_tokens": 24} for i in range(6)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda b: self.server.json(COMPLETIONS, b)["choices"], [body, *others, body]))
        self.assertEqual([answers[0], answers[-1]], [first, first])

    def test_keywords_of_schemas(self):
        """Every keyword of drafts 7 and 2020-12 is kept, or refused by its name."""
        kept = {"type", "enum", "const", "properties", "required", "additionalProperties", "items", "prefixItems",
                "minItems", "maxItems", "minLength", "maxLength", "pattern", "format", "minimum", "maximum",
                "exclusiveMinimum", "exclusiveMaximum", "anyOf", "oneOf", "allOf", "$ref", "title", "description",
                "default", "examples", "deprecated", "readOnly", "writeOnly", "$schema", "$comment", "$id", "$defs",
                "definitions"}
        known = set(jsonschema.Draft7Validator.META_SCHEMA["properties"])
        registry = jsonschema.validators.SPECIFICATIONS
        for part in ("core", "applicator", "unevaluated", "validation", "meta-data", "format-annotation", "content"):
            contents = registry.contents(f"https://json-schema.org/draft/2020-12/meta/{part}")
            known |= set(contents["properties"])
        self.assertGreater(len(known), 55)
        self.assertEqual(known - kept - set(REFUSED_KEYWORDS), set())
        for keyword in sorted(known - kept):
            schema = {"type": "object", "properties": {"a": {keyword: REFUSED_KEYWORDS[keyword]}}}
            form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
            error = self.error(CHAT, {**greedy("Hi", 2), "response_format": form}, 400)
            self.assertEqual(error["param"], "response_format")
            self.assertIn(f"'{keyword}'", error["message"])


class BodiesTest(Cases):
    def test_deep_bodies(self):
        """A06"""
        for depth in (100, 1000, 100000):
            for kind in ("arrays", "objects"):
                for field in ("prompt", "unknown", "logit_bias", "stop", "user"):
                    body = '{"prompt":"a","%s":%s}' % (field, nested(depth, kind))
                    self.error(COMPLETIONS, body, 400)
                for field in ("messages", "tools", "response_format", "metadata"):
                    self.error(CHAT, '{"messages":[{"role":"user","content":"a"}],"%s":%s}' % (
                        field if field != "messages" else "x", nested(depth, kind)), 400)
                schema = '{"items":' * depth + "{}" + "}" * depth
                self.error(CHAT, '{"messages":[{"role":"user","content":"a"}],"response_format":{"type":"json_schema",'
                           '"json_schema":{"name":"x","schema":%s}}}' % schema, 400)
                self.works()
        for grammar in ("root ::= " + "(" * 60000 + '"a"' + ")" * 60000, "root ::= " + "(" * 60000,
                        "root ::= [" * 30000, "root ::= root", "root ::= " + "a " * 400000):
            self.error(CHAT, {**greedy("Hi", 2), "grammar": grammar}, 400, 413)

    def test_json_that_is_not_quite(self):
        """A06: duplicate keys, bytes before and after, encodings."""
        text = json.dumps(greedy("Hi", 1)).encode()
        for body in (b"\xef\xbb\xbf" + text, text + b"x", text + text, text + b"\0", b"\0" + text, text[:-1],
                     text[:-1] + b",}", text.decode().encode("utf-16"), text.replace(b'"Hi"', b"'Hi'"),
                     b"//\n" + text, b"null",
                     b'"x"', b"1",
                     text.replace(b'"temperature": 0', b'"temperature": 0, "temperature": 1'),
                     text.replace(b'"role"', b'"role": "user", "role"'), text.replace(b'"Hi"', b'"\\ud800"')):
            with self.subTest(body=body[:50]):
                self.error(CHAT, body, 400)
        self.assertEqual(self.server.call("POST", CHAT, b" \r\n\t" + text + b"\n \t\r\n")[0], 200)

    def test_bytes_that_are_no_text(self):
        """A07"""
        for raw in (b"\xff\xfe", "中文".encode("gbk"), b"\xed\xa0\x80", b"\xc0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82"):
            for body in (b'{"prompt":"%s"}', b'{"prompt":"a","model":"%s"}', b'{"prompt":"a","%s":1}',
                         b'{"prompt":"a","stop":["%s"]}', b'{"prompt":"a"}%s', b"%s"):
                with self.subTest(raw=raw, body=body):
                    error = self.error(COMPLETIONS, body.replace(b"%s", raw), 400)
                    self.assertEqual(error["code"], "invalid_json")
        for raw in ("ÿþ", "é\u0080"):
            self.error(COMPLETIONS, {"prompt": "a"}, 400, headers={"Last-Event-ID": raw})
            self.error(COMPLETIONS, {"prompt": "a"}, 415, headers={"Content-Type": raw})
        for path in ("/%ff%fe", "/v1/models/%b4%f3", "/v1/%00", "/v1/models/../../etc/passwd"):
            self.error(path, None, 404, method="GET")
        self.server.json(COMPLETIONS, {"prompt": "a", "max_tokens": 1, "model": "中文 \x01 model"})

    def test_one_shape_of_errors(self):
        """A09: whatever is wrong, and inside a stream that began."""
        for method, path, body, status in (("GET", "/nothing", None, 404), ("GET", CHAT, None, 405),
                                           ("POST", "/health", "{}", 405), ("POST", CHAT, "{", 400),
                                           ("POST", CHAT, b"x" * (9 << 20), 413), ("GET", "/v1/models/none", None, 404),
                                           ("DELETE", "/tokenize", None, 405)):
            self.error(path, body, status, method=method)
        self.error(CHAT, "{}", 415, headers={"Content-Type": "text/html"})
        ids = [self.server.json("/tokenize", {"text": text})["ids"] for text in ("s", "es", "yes")]
        bias = {str(i): -100 for i in sum(ids, [])}
        body = {**greedy("Hi", 9), "grammar": 'root ::= "yes"', "logit_bias": bias}
        events = self.server.events(CHAT, body)
        self.assertLessEqual({"message", "type", "param", "code", "retryable"}, set(events[-1]["error"]))


class TextTest(Cases):
    def forced(self, *ids, tokens=12, **more):
        """An answer of these tokens only."""
        body = {"prompt": "a", "temperature": 1, "seed": 4, "max_tokens": tokens,
                "logit_bias": {str(i): 100 for i in ids}, "repetition_penalty": 1, **more}
        return self.server.json(COMPLETIONS, body)["choices"][0]["text"], body

    def byte_tokens(self):
        """Ids of single bytes that are no text by themselves: the second half of an e with an accent, the first of
        it, and the first of a smile's four."""
        ids = []
        for text in ("\u0085", "\U0010ffff"):
            ids += self.server.json("/tokenize", {"text": text})["ids"]
        alone = [i for i in dict.fromkeys(ids) if self.server.json("/detokenize", {"ids": [i]})["text"] == "\ufffd"]
        self.assertGreaterEqual(len(alone), 3)
        return alone

    def test_bytes_that_make_no_character(self):
        """ST02: each is one U+FFFD or a part of a character; the answer goes on to its end, streamed or not."""
        alone = self.byte_tokens()
        for ids in ([alone[0]], [alone[1]], alone[:2], alone):
            text, body = self.forced(*ids)
            self.assertIn("\ufffd", text)
            text.encode()
            status, _, raw = self.server.call("POST", COMPLETIONS, {**body, "stream": True})
            self.assertEqual(status, 200)
            events = [e for _, e in events_in(raw)]
            self.assertEqual("".join(e["choices"][0]["text"] for e in events[:-1]), text)
            self.assertEqual(events[-2]["choices"][0]["finish_reason"], "length")
        self.assertEqual(self.forced(alone[0], tokens=5)[0], "\ufffd" * 5)
        self.assertEqual(self.server.json("/detokenize", {"ids": alone[:1] * 3})["text"], "\ufffd" * 3)

    def test_stop_strings(self):
        """ST03: wherever a stop string begins and ends; limits are refused by name."""
        plain = content(self.server.json(CHAT, greedy("Tell me about the sea and the wind.", 60)))
        for stop in (["ab", "abc"], [plain[5:9], plain[5:15]], [plain[5:15], plain[7:9]], [plain[4:40]],
                     [plain[i] for i in (9, 19, 29, 39, 49)], [plain[20:30] + "!", plain[25:50]]):
            found = [(plain.find(s) + len(s), plain.find(s)) for s in stop if s in plain]
            want = plain[:min(found)[1]] if found else plain
            body = greedy("Tell me about the sea and the wind.", 60, stop=stop)
            self.assertEqual(content(self.server.json(CHAT, body)), want)
            events = self.server.events(CHAT, body)
            self.assertEqual("".join(e["choices"][0]["delta"].get("content", "") for e in events[:-1]), want)
        for stop in ("", [""], ["a", ""], "x" * 10240, ["x"] * 17, [5], {}, [["a"]]):
            self.assertTrue(self.error(CHAT, greedy("Hi", 2, stop=stop), 400)["param"].startswith("stop"))

    def test_stop_inside_a_character(self):
        """ST03: a stop string that ends where a token does not."""
        body = {"prompt": "a", "max_tokens": 30, "temperature": 0, "grammar": 'root ::= "né🙂🙂en"'}
        self.assertEqual(self.server.json(COMPLETIONS, body)["choices"][0]["text"], "né🙂🙂en")
        for stop, want in (("🙂e", "né🙂"), ("é", "n"), ("🙂🙂", "né"), ("é🙂", "n")):
            self.assertEqual(self.server.json(COMPLETIONS, {**body, "stop": stop})["choices"][0]["text"], want)
        for stop in ("ens", "n🙂", "🙂🙂🙂", "enough"):  # what was held back comes out
            self.assertEqual(self.server.json(COMPLETIONS, {**body, "stop": stop})["choices"][0]["text"], "né🙂🙂en")

    def test_parts(self):
        """C03: text in parts is the text, in each role and as the last message; C02: roles in any order."""
        for roles in (["user"], ["assistant"], ["system"], ["user", "assistant"], ["system", "user"],
                      ["user", "assistant", "system", "user"], ["system", "system"], ["developer", "user"]):
            whole = [{"role": role, "content": f"alpha beta {i}"} for i, role in enumerate(roles)]
            parts = [{"role": m["role"], "content": [{"type": "text", "text": "alpha"},
                     {"type": "text", "text": m["content"][5:]}]} for m in whole]
            prompts = [self.server.json("/apply-template", {"messages": m})["prompt"] for m in (whole, parts)]
            self.assertEqual(prompts[0], prompts[1])
            self.assertIn(f"alpha beta {len(roles) - 1}", prompts[0])
            self.server.json(CHAT, {"messages": parts, "max_tokens": 1})
        for text in (None, 5, True, {}, [], [{}], [{"type": "text"}], [{"type": "text", "text": 5}], ["a"]):
            for role in ("user", "system"):
                self.error(CHAT, {"messages": [{"role": role, "content": text}]}, 400)
        self.error(CHAT, {"messages": [{"role": "user"}]}, 400)


class OtherTemplateTest(unittest.TestCase):
    def test_roles_in_any_order(self):
        """C02: with Gemma's turns, which have no place for a system message: an answer, or 400 that names it."""
        import serve_test
        before, serve_test.MODEL = serve_test.MODEL, "gemma3-270m"
        try:
            server = Server("--context", "256", "--slots", "1", "--journal", "none")
        finally:
            serve_test.MODEL = before
        try:
            for roles in (["user", "assistant", "system", "user"], ["system"], ["assistant"], ["system", "system"],
                          ["user", "user"], ["developer", "user"], ["user", "assistant", "assistant"], ["robot"],
                          ["tool"],
                          ["user"], ["system", "user"]):
                messages = [{"role": role, "content": f"text {i}"} for i, role in enumerate(roles)]
                status, _, text = server.call("POST", CHAT, {"messages": messages, "max_tokens": 1})
                self.assertIn(status, (200, 400), (roles, text))
                if status == 400:
                    self.assertTrue(json.loads(text)["error"]["param"].startswith("messages"), text)
            server.json(CHAT, {"messages": user("Hi"), "max_tokens": 1})
        finally:
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
