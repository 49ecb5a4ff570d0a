#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""OpenAI's Responses and Ollama's API, of a server and of a cluster: shapes as the official clients read them, each
field by its effect, the text that the chat has, refusals, faults inside a stream, streams that go on."""

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import unittest

from _packages import need
from _signals import deliver
from serve_test import CHAT, COMPLETIONS, MODEL, Server, user
from up_test import Up

need("openai", "3.57.0")
need("ollama", "0.6.3")
import ollama  # noqa: E402
import openai  # noqa: E402

RESPONSES = "/v1/responses"
OLLAMA_CHAT, OLLAMA_GENERATE = "/api/chat", "/api/generate"
QUESTION = "Tell me about the sea."
PLAIN = {"temperature": 0, "repeat_penalty": 1}
ORDER = ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"]
ENDING = ["response.output_text.done", "response.content_part.done", "response.output_item.done"]
SCHEMA = {
    "type": "object",
    "properties": {"age": {"type": "integer"}, "kind": {"enum": ["cat", "dog"]}},
    "required": ["age", "kind"],
    "additionalProperties": False,
}


def call(port, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def typed_events(text):
    """(id, event) of a stream whose events have names; the name stands in the data, too."""
    events = []
    for block in text.decode().split("\n\n"):
        if not block or block.startswith(":"):
            continue
        lines = block.split("\n")
        place = lines.pop(0)[4:] if lines[0].startswith("id: ") else None
        assert len(lines) == 2 and lines[0].startswith("event: ") and lines[1].startswith("data: "), block
        event = json.loads(lines[1][6:])
        assert event["type"] == lines[0][7:], block
        events.append((place, event))
    return events


class Dialects:
    """Against self.port, whoever listens there."""

    def json(self, path, body=None, status=200):
        got, _, text = call(self.port, "GET" if body is None else "POST", path, body)
        self.assertEqual(got, status, (path, body, text))
        return json.loads(text)

    def refused(self, path, body, param, code=None):
        error = self.json(path, body, 400)["error"]
        self.assertEqual(error["param"], param, error)
        if code:
            self.assertEqual(error["code"], code, error)

    def chat(self, messages, **more):
        body = dict({"messages": messages, "temperature": 0, "max_tokens": 24}, **more)
        return self.json(CHAT, body)["choices"][0]["message"]["content"]

    def respond(self, **more):
        return self.json(RESPONSES, dict({"input": QUESTION, "temperature": 0, "max_output_tokens": 24}, **more))

    def stream(self, **more):
        body = dict({"input": QUESTION, "temperature": 0, "max_output_tokens": 24, "stream": True}, **more)
        status, headers, text = call(self.port, "POST", RESPONSES, body)
        self.assertEqual((status, headers["Content-Type"]), (200, "text/event-stream"), text)
        return typed_events(text)

    # ---- Responses ----

    def test_response_says_what_the_chat_says(self):
        whole = self.respond()
        (item,) = whole["output"]
        self.assertEqual((whole["object"], item["type"], item["role"]), ("response", "message", "assistant"))
        self.assertEqual(item["content"][0]["text"], self.chat(user(QUESTION)))
        self.assertEqual((whole["status"], item["status"]), ("incomplete", "incomplete"))
        self.assertEqual(whole["incomplete_details"], {"reason": "max_output_tokens"})
        self.assertEqual(whole["usage"]["output_tokens"], 24)
        self.assertEqual(whole["model"], MODEL)
        usage = whole["usage"]
        self.assertEqual(usage["total_tokens"], usage["input_tokens"] + usage["output_tokens"])
        # The same tokens are not computed again.
        again = self.respond()
        self.assertEqual(again["output"][0]["content"], item["content"])
        self.assertGreater(again["usage"]["input_tokens_details"]["cached_tokens"], 0)

    def test_response_ends_by_itself(self):
        whole = self.respond(input="Say yes.", max_output_tokens=200)
        self.assertEqual((whole["status"], whole["incomplete_details"]), ("completed", None))
        self.assertGreaterEqual(whole["completed_at"], whole["created_at"])
        self.assertLess(whole["usage"]["output_tokens"], 200)

    def test_response_inputs(self):
        system = [{"role": "system", "content": "Answer like a pirate."}]
        wanted = self.chat(system + user(QUESTION))
        self.assertNotEqual(wanted, self.chat(user(QUESTION)))
        text = {"type": "input_text", "text": QUESTION}
        for more in (
            {"instructions": system[0]["content"]},
            {"input": system + user(QUESTION)},
            {"input": [{"role": "user", "content": [text]}], "instructions": system[0]["content"]},
            {"input": [{"type": "message", "role": "developer", "content": system[0]["content"]}] + user(QUESTION)},
        ):
            self.assertEqual(self.respond(**more)["output"][0]["content"][0]["text"], wanted, more)
        # An answer's output goes into the next input as it is.
        first = self.respond()
        turns = user(QUESTION) + first["output"] + user("Go on.")
        said = {"role": "assistant", "content": first["output"][0]["content"][0]["text"]}
        self.assertEqual(
            self.respond(input=turns)["output"][0]["content"][0]["text"],
            self.chat(user(QUESTION) + [said] + user("Go on.")),
        )

    def test_response_repeats_the_request(self):
        form = {"type": "json_schema", "name": "animal", "schema": SCHEMA}
        whole = self.respond(
            instructions="An \"animal\".",
            metadata={"a": "b"},
            top_p=0.5,
            max_output_tokens=40,
            text={"format": form},
        )
        self.assertEqual((whole["instructions"], whole["metadata"]), ('An "animal".', {"a": "b"}))
        self.assertEqual((whole["temperature"], whole["top_p"], whole["max_output_tokens"]), (0, 0.5, 40))
        self.assertEqual((whole["text"], whole["store"]), ({"format": form}, False))
        value = json.loads(whole["output"][0]["content"][0]["text"])
        self.assertEqual((set(value), type(value["age"])), ({"age", "kind"}, int))
        self.assertIn(value["kind"], ("cat", "dog"))

    def test_response_sampling(self):
        def text(**more):
            return self.respond(**{"temperature": 1, "seed": 3, **more})["output"][0]["content"][0]["text"]

        self.assertEqual(text(), text())
        self.assertNotEqual(text(), text(seed=4))
        self.assertNotEqual(text(), text(temperature=0))
        self.assertEqual(text(top_p=0.0001), text(temperature=0))
        self.assertEqual(text(top_k=1), text(temperature=0))
        word = text(temperature=0).split()[3]
        self.assertNotIn(word, text(temperature=0, stop=word))
        whole = self.respond(text={"format": {"type": "json_object"}}, max_output_tokens=200)
        self.assertIsInstance(json.loads(whole["output"][0]["content"][0]["text"]), dict)

    def test_response_refusals(self):
        for field, value in (
            ("previous_response_id", "resp_1"),
            ("store", True),
            ("background", True),
            ("reasoning", {"effort": "low"}),
            ("include", ["message.output_text.logprobs"]),
            ("truncation", "auto"),
            ("conversation", "conv_1"),
        ):
            self.refused(RESPONSES, {"input": "a", field: value}, field, "unsupported_parameter")
        self.refused(RESPONSES, {"input": "a", "max_tokens": 3}, "max_tokens", "unknown_parameter")
        self.refused(RESPONSES, {"input": "a", "temperature": 3}, "temperature", "invalid_value")
        self.refused(RESPONSES, {"instructions": "a"}, "input", "missing_required_parameter")
        self.refused(RESPONSES, {"input": [{"type": "image"}]}, "input[0].type")
        self.refused(RESPONSES, {"input": "a", "text": {"format": {"type": "json_schema", "schema": {"not": {}}}}},
                     "text.format")
        form = {"type": "json_schema", "name": "x" * 70000, "schema": SCHEMA}
        self.refused(RESPONSES, {"input": "a", "text": {"format": form}}, "text", "invalid_value")

    def test_response_stream(self):
        for tokens, last in ((8, "response.incomplete"), (200, "response.completed")):
            events = [e for _, e in self.stream(input="Say yes.", max_output_tokens=tokens, metadata={"a": "b"})]
            types = [e["type"] for e in events]
            deltas = [e["delta"] for e in events if e["type"] == "response.output_text.delta"]
            self.assertEqual(types, ORDER + ["response.output_text.delta"] * len(deltas) + ENDING + [last])
            self.assertEqual([e["sequence_number"] for e in events], list(range(len(events))))
            text, final = "".join(deltas), events[-1]["response"]
            self.assertEqual(events[-4]["text"], text)
            self.assertEqual(events[-3]["part"]["text"], text)
            self.assertEqual(events[-2]["item"]["content"][0]["text"], text)
            self.assertEqual(final["output"], [events[-2]["item"]])
            self.assertEqual((events[0]["response"]["status"], events[0]["response"]["output"]), ("in_progress", []))
            self.assertEqual(len({e["item_id"] for e in events if "item_id" in e} | {final["output"][0]["id"]}), 1)
            whole = self.respond(input="Say yes.", max_output_tokens=tokens)
            self.assertEqual(whole["output"][0]["content"][0]["text"], text)
            self.assertEqual(final["usage"]["output_tokens"], whole["usage"]["output_tokens"])
            self.assertEqual(final["metadata"], {"a": "b"})

    def test_response_goes_on(self):
        events = self.stream(temperature=1, seed=None)
        # The times differ, the rest does not.
        strip = lambda e: {k: {**v, "completed_at": None} if k == "response" else v for k, v in e.items()}
        values = [strip(e) for _, e in events]
        places = [i for i, (place, _) in enumerate(events) if place]
        self.assertEqual(places, list(range(3, len(events) - 4)))
        for i in (places[0], places[1], places[len(places) // 2], places[-1]):
            status, _, text = call(self.port, "GET", RESPONSES, None, {"Last-Event-ID": events[i][0]})
            self.assertEqual(status, 200, text)
            rest = [strip(e) for _, e in typed_events(text)]
            for value in rest + values:
                value.get("response", {}).get("usage") and value["response"]["usage"].pop("input_tokens_details", None)
            self.assertEqual(rest, values[i + 1 :])

    # ---- Ollama ----

    def lines(self, path, body):
        status, headers, text = call(self.port, "POST", path, body)
        self.assertEqual((status, headers["Content-Type"]), (200, "application/x-ndjson"), text)
        self.assertTrue(text.endswith(b"\n"))
        return [json.loads(line) for line in text.decode().split("\n")[:-1]]

    def ollama(self, path=OLLAMA_CHAT, options=None, **more):
        """The whole object."""
        start = {"messages": user(QUESTION)} if path == OLLAMA_CHAT else {"prompt": QUESTION}
        options = {**PLAIN, "num_predict": 24, **(options or {})}
        return self.json(path, {"model": "any", "stream": False, "options": options, **start, **more})

    def said(self, **more):
        return self.ollama(**more)["message"]["content"]

    def test_ollama_says_what_the_chat_says(self):
        wanted = self.chat(user(QUESTION))
        chat, generate = self.ollama(), self.ollama(OLLAMA_GENERATE)
        self.assertEqual((chat["message"]["content"], chat["message"]["role"]), (wanted, "assistant"))
        self.assertEqual(generate["response"], wanted)
        for whole in (chat, generate):
            self.assertEqual((whole["done"], whole["done_reason"], whole["model"]), (True, "length", MODEL))
            self.assertEqual(whole["eval_count"], 24)
            self.assertGreater(whole["prompt_eval_count"], 5)
            parts = [whole[f"{name}_duration"] for name in ("load", "prompt_eval", "eval")]
            self.assertTrue(all(p >= 0 for p in parts) and sum(parts) <= whole["total_duration"], whole)
            self.assertGreater(whole["eval_duration"], 10000)  # nanoseconds
            self.assertLess(whole["total_duration"], 120 * 10**9)
        system = [{"role": "system", "content": "Answer like a pirate."}]
        self.assertEqual(
            self.ollama(OLLAMA_GENERATE, system=system[0]["content"])["response"], self.chat(system + user(QUESTION))
        )
        raw = self.json(COMPLETIONS, {"prompt": QUESTION, "temperature": 0, "max_tokens": 24})
        self.assertEqual(self.ollama(OLLAMA_GENERATE, raw=True)["response"], raw["choices"][0]["text"])

    def test_ollama_streams_by_default(self):
        options = {**PLAIN, "num_predict": 12}
        for path, start, key in (
            (OLLAMA_CHAT, {"messages": user(QUESTION)}, lambda x: x["message"]["content"]),
            (OLLAMA_GENERATE, {"prompt": QUESTION}, lambda x: x["response"]),
        ):
            lines = self.lines(path, {**start, "options": options})
            whole = self.json(path, {**start, "options": options, "stream": False})
            self.assertEqual("".join(key(x) for x in lines), key(whole))
            self.assertEqual([x["done"] for x in lines], [False] * (len(lines) - 1) + [True])
            self.assertGreater(len(lines), 6)
            for name in ("done_reason", "eval_count", "prompt_eval_count"):
                self.assertEqual(lines[-1][name], whole[name])

    def test_ollama_options(self):
        greedy = self.said()
        warm = {"temperature": 1, "seed": 3}
        self.assertEqual(self.said(options=warm), self.said(options=warm))
        self.assertNotEqual(self.said(options=warm), greedy)
        self.assertNotEqual(self.said(options=warm), self.said(options={**warm, "seed": 4}))
        for one in ({"top_k": 1}, {"top_p": 0.0001}, {"min_p": 1}):
            self.assertEqual(self.said(options={**warm, **one}), greedy, one)
        more = {"num_predict": 100}
        plain = self.said(options=more)
        self.assertNotEqual(self.said(options={**more, "repeat_penalty": 1.9}), plain)
        self.assertNotEqual(self.said(options={**more, "presence_penalty": 2}), plain)
        self.assertNotEqual(self.said(options={**more, "frequency_penalty": 2}), plain)
        off = {"repeat_last_n": 0, "repeat_penalty": 1.9, "presence_penalty": 2}
        self.assertEqual(self.said(options={**more, **off}), plain)
        few = self.said(options={**more, "repeat_penalty": 1.9, "repeat_last_n": 1})
        self.assertNotEqual(few, self.said(options={**more, "repeat_penalty": 1.9, "repeat_last_n": -1}))
        word = greedy.split()[3]
        cut = self.ollama(options={"stop": [word]})
        self.assertEqual((cut["message"]["content"], cut["done_reason"]), (greedy[: greedy.index(word)], "stop"))
        self.assertEqual(self.ollama(options={"num_predict": 5})["eval_count"], 5)

    def test_ollama_defaults(self):
        """Ollama's own, which a request may as well spell out."""
        spelled = {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0, "repeat_penalty": 1.1,
                   "repeat_last_n": 64, "presence_penalty": 0, "frequency_penalty": 0}
        texts = []
        for options in ({}, spelled, {"temperature": 0.3}):
            body = {"messages": user(QUESTION), "stream": False, "options": {**options, "seed": 5, "num_predict": 40}}
            texts.append(self.json(OLLAMA_CHAT, body)["message"]["content"])
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])

    def test_ollama_context(self):
        prompt = self.ollama()["prompt_eval_count"]
        whole = self.ollama(options={"num_ctx": prompt + 7})
        self.assertEqual((whole["eval_count"], whole["done_reason"]), (7, "length"))
        body = {"messages": user(QUESTION), "options": {"num_ctx": prompt - 1}}
        self.refused(OLLAMA_CHAT, body, "messages", "context_length_exceeded")
        body["options"]["num_ctx"] = 1 << 30
        self.refused(OLLAMA_CHAT, body, "options.num_ctx", "invalid_value")

    def test_ollama_forms(self):
        for path in (OLLAMA_CHAT, OLLAMA_GENERATE):
            key = lambda x: x["message"]["content"] if path == OLLAMA_CHAT else x["response"]
            value = json.loads(key(self.ollama(path, options={"num_predict": 60}, format=SCHEMA)))
            self.assertEqual((set(value), type(value["age"])), ({"age", "kind"}, int))
            value = json.loads(key(self.ollama(path, options={"num_predict": 300}, format="json")))
            self.assertIsInstance(value, dict)
        self.refused(OLLAMA_CHAT, {"messages": user("a"), "format": {"not": {}}}, "format")

    def test_ollama_refusals(self):
        for field, value in (("think", True), ("keep_alive", 0), ("images", ["x"]), ("suffix", "s"),
                             ("template", "t"), ("context", [1])):
            self.refused(OLLAMA_GENERATE, {"prompt": "a", field: value}, field, "unsupported_parameter")
        for option in ("num_gpu", "num_thread", "mirostat"):
            self.refused(OLLAMA_CHAT, {"messages": user("a"), "options": {option: 2}}, f"options.{option}")
        self.refused(OLLAMA_CHAT, {"messages": user("a"), "prompt": "a"}, "prompt", "unknown_parameter")
        status, _, text = call(self.port, "POST", "/api/pull", {"model": "m"})
        self.assertEqual((status, json.loads(text)["error"]["code"]), (404, "not_found"))
        self.assertRegex(json.loads(text)["error"]["message"], "chat, generate, show, tags, ps, version")
        status, headers, _ = call(self.port, "GET", OLLAMA_CHAT)
        self.assertEqual((status, headers["Allow"]), (405, "POST"))

    def test_ollama_model(self):
        (tag,) = self.json("/api/tags")["models"]
        (running,) = self.json("/api/ps")["models"]
        shown = self.json("/api/show", {"model": "any"})
        self.assertEqual((tag["name"], running["name"]), (MODEL, MODEL))
        self.assertEqual(tag["digest"], running["digest"])
        details = {"parent_model": "", "format": "knot", "family": "llama", "families": ["llama"],
                   "parameter_size": "134.5M", "quantization_level": "Q4_1"}
        for has in (tag, running, shown):
            self.assertEqual(has["details"], details)
        self.assertEqual(shown["model_info"]["llama.block_count"], 30)
        self.assertEqual(shown["model_info"]["llama.embedding_length"], 576)
        self.assertIn("<|im_start|>", shown["template"])
        self.assertIn("completion", shown["capabilities"])
        listed = self.json("/v1/models")["data"][0]
        self.assertEqual(running["context_length"], listed["context_length"])
        program = os.path.abspath(os.environ.get("COBORD", "build/cobord"))
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(self.json("/api/version")["version"], version.split()[1])
        for method in ("GET", "HEAD"):
            status, _, text = call(self.port, method, "/")
            self.assertEqual((status, text), (200, b"Cobord is running" if method == "GET" else b""))

    def test_ollama_loading(self):
        for path, body in ((OLLAMA_CHAT, {"messages": []}), (OLLAMA_GENERATE, {"model": "m", "keep_alive": "5m"})):
            whole = self.json(path, body)
            self.assertEqual((whole["done"], whole["done_reason"]), (True, "load"))

    # ---- The official clients ----

    def test_openai_package(self):
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key="none", max_retries=0)
        whole = client.responses.create(model="any", input=QUESTION, temperature=0, max_output_tokens=24)
        self.assertEqual(whole.output_text, self.chat(user(QUESTION)))
        self.assertEqual((whole.status, whole.usage.output_tokens), ("incomplete", 24))
        turns = [*user(QUESTION), *whole.output, *user("Say yes.")]
        second = client.responses.create(model="any", input=turns, temperature=0, max_output_tokens=5)
        self.assertLessEqual(second.usage.output_tokens, 5)
        with client.responses.stream(model="any", input="Say yes.", temperature=0) as stream:
            types = [event.type for event in stream]
            final = stream.get_final_response()
        self.assertEqual(types[0], "response.created")
        wanted = self.respond(input="Say yes.", max_output_tokens=None)["output"][0]["content"][0]["text"]
        self.assertEqual(final.output_text, wanted)
        for event in client.responses.create(model="any", input="Say yes.", temperature=0, stream=True):
            # Every event is one that the package knows, with the members that its type wants.
            self.assertTrue(type(event).__name__.startswith("Response"), event)
            type(event).model_validate(event.to_dict(), strict=True)
        type(whole).model_validate(whole.to_dict())
        with self.assertRaises(openai.BadRequestError) as caught:
            client.responses.create(model="any", input="a", previous_response_id="resp_1")
        self.assertEqual(caught.exception.param, "previous_response_id")

    def test_ollama_package(self):
        client = ollama.Client(host=f"http://127.0.0.1:{self.port}")
        options = {**PLAIN, "num_predict": 24}
        wanted = self.chat(user(QUESTION))
        self.assertEqual(client.chat("any", user(QUESTION), options=options).message.content, wanted)
        stream = client.chat("any", user(QUESTION), options=options, stream=True)
        self.assertEqual("".join(part.message.content for part in stream), wanted)
        self.assertEqual(client.generate("any", QUESTION, options=options).response, wanted)
        self.assertEqual(client.list().models[0].model, MODEL)
        self.assertEqual(client.ps().models[0].name, MODEL)
        self.assertEqual(client.show("any").details.family, "llama")
        for stream in (False, True):
            with self.assertRaises(ollama.ResponseError) as caught:
                list(client.chat("any", user("a"), think=True, stream=stream))
            self.assertEqual((caught.exception.status_code, caught.exception.error["param"]), (400, "think"))

    def test_packages_of_javascript(self):
        folder = javascript()
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tools", "dialects.mjs")
        done = subprocess.run(
            ["node", script, folder, f"http://127.0.0.1:{self.port}", QUESTION, self.chat(user(QUESTION))],
            capture_output=True, text=True, timeout=300,
        )
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "fine"), done.stderr[-3000:])


def javascript():
    """A folder with the two packages for node, made once."""
    if not shutil.which("npm"):
        raise unittest.SkipTest("npm is not installed")
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.path.join(cache, "cobord-tests", "dialects-node")
    if not os.path.isdir(os.path.join(folder, "node_modules", "ollama")):
        os.makedirs(folder, exist_ok=True)
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder,
                        "openai@6.49.0", "ollama@0.6.4"], check=True, timeout=300)
    return folder


class ServeDialects(Dialects, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--context", "1024")
        cls.port = cls.server.port

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0


class UpDialects(Dialects, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Up("--listen", "127.0.0.1:0", "--shards", "2", "--context", "1024")
        cls.port = cls.cluster.port

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()


class OllamaToolsTest(unittest.TestCase):
    """Ollama's tools say what the chat's say, with arguments as objects and without ids."""

    TOOL = {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get the current weather of a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }

    @classmethod
    def setUpClass(cls):
        cls.server = Server("--context", "1024", model="qwen2.5-coder-1.5b")
        cls.client = ollama.Client(host=f"http://127.0.0.1:{cls.server.port}")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def test_calls(self):
        asked = user("What is the weather in Paris right now?")
        options = {**PLAIN, "num_predict": 60}
        told = {"role": "tool", "content": "rain, 12 degrees"}
        body = {"messages": asked, "tools": [self.TOOL], "temperature": 0, "max_tokens": 60}
        wanted = self.server.json(CHAT, body)["choices"][0]["message"]
        (call,) = wanted["tool_calls"]
        whole = self.client.chat("any", asked, tools=[self.TOOL], options=options)
        (made,) = whole.message.tool_calls
        self.assertEqual(made.function.name, call["function"]["name"])
        self.assertEqual(made.function.arguments, json.loads(call["function"]["arguments"]))
        self.assertEqual((whole.message.content, whole.done_reason), (wanted["content"] or "", "stop"))
        parts = list(self.client.chat("any", asked, tools=[self.TOOL], options=options, stream=True))
        self.assertEqual([p.message.tool_calls for p in parts if p.message.tool_calls], [whole.message.tool_calls])
        self.assertEqual("".join(p.message.content for p in parts), whole.message.content)
        # What the tool said: the chat's prompt has the same tokens.
        body["messages"] = asked + [wanted, {**told, "tool_call_id": call["id"]}]
        after = self.server.json(CHAT, {**body, "tool_choice": "auto"})
        said = {"role": "assistant", "content": "", "tool_calls": [{"function": dict(made.function)}]}
        again = self.server.json(OLLAMA_CHAT, {
            "messages": [*asked, said, {**told, "tool_name": "get_weather"}],
            "tools": [self.TOOL], "options": options, "stream": False,
        })
        self.assertEqual(again["prompt_eval_count"], after["usage"]["prompt_tokens"])
        self.assertEqual(again["message"]["content"], after["choices"][0]["message"]["content"] or "")
        self.assertIn("tools", self.client.show("any").capabilities)


class FaultTest(unittest.TestCase):
    """What fails inside a stream that has begun."""

    def stopped(self, path, body):
        """What came of a stream whose server was told twice to stop."""
        server = Server("--context", "4096")
        connection = server.connect()
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read1()
        for _ in range(2):
            deliver(server.process.pid, signal.SIGTERM)
        text += answer.read()
        connection.close()
        server.wait()
        return text

    def test_response(self):
        grammar = 'root ::= "a"{3000}'  # nothing else may end it
        text = self.stopped(RESPONSES, {"input": "a", "stream": True, "grammar": grammar})
        events = [e for _, e in typed_events(text)]
        last = events[-1]
        self.assertEqual((last["type"], last["code"]), ("error", "shutting_down"))
        self.assertEqual((last["sequence_number"], last["message"]), (len(events) - 1, last["error"]["message"]))
        self.assertTrue(last["error"]["retryable"])

    def test_ollama(self):
        body = {"messages": user("a"), "options": {"temperature": 0, "num_predict": 4000, "repeat_penalty": 1}}
        body["format"] = {"type": "array", "items": {"type": "integer"}, "minItems": 3000}
        lines = self.stopped(OLLAMA_CHAT, body).decode().split("\n")
        self.assertEqual(lines.pop(), "")
        last = json.loads(lines[-1])
        self.assertEqual((last["code"], last["retryable"]), ("shutting_down", True))
        # The official client raises this as its own error.
        error = ollama.ResponseError(last["error"])
        self.assertIn("shutting down", str(error))


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
