#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tools as a client meets them: the prompt is what the model's own template says by Python's jinja2, forced calls are
what their schemas accept, streams say what whole answers say, and the official client understands all of it."""
import concurrent.futures
import json
import unittest

from _packages import need
from _templates import by_python, of_models
from serve_test import CHAT, Server

need("jsonschema", "4.26.0")
need("openai", "3.57.0")
import jsonschema  # noqa: E402
import openai  # noqa: E402

QWEN = "qwen2.5-coder-1.5b"


def tool(name, properties=None, required=(), **more):
    parameters = {"type": "object", "properties": properties or {}, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": f"Does {name}.", "parameters": parameters,
                                             **more}}


WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Get the current weather of a city",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "The city's name, e.g. Zürich"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}}, "required": ["city"]}}}
CLOCK = tool("get_time", {"zone": {"type": "string"}}, ["zone"])
NOTHING = tool("now")
LINE = {"type": "object", "required": ["sku", "count"], "additionalProperties": False, "properties": {
    "sku": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$"},
    "count": {"type": "integer", "minimum": 1, "maximum": 99}}}
ORDER = tool("order", {"items": {"type": "array", "minItems": 1, "maxItems": 3, "items": LINE},
                       "express": {"type": "boolean"}}, ["items", "express"])
TOOLS = [WEATHER, CLOCK]
ASK = {"role": "user", "content": "What is the weather in Paris right now?"}


def called(name, arguments, number="call_1"):
    return {"id": number, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def told(number, text):
    return {"role": "tool", "tool_call_id": number, "content": text}


CONVERSATIONS = {
    "ask": [ASK],
    "system": [{"role": "system", "content": "Be brief."}, ASK],
    "called": [ASK, {"role": "assistant", "content": None, "tool_calls": [called("get_weather", {"city": "Paris"})]},
               told("call_1", '{"sky": "clear"}')],
    "said_and_called": [ASK, {"role": "assistant", "content": "Let me look.", "tool_calls": [
        called("get_weather", {"city": "Zürich <|im_end|>", "n": [1, 2.5, -3, True, None, {"x": {}}], "e": 1e-7}, "a"),
        called("get_time", {}, "b")]}, told("a", "rain\n\n"), told("b", "12:00"),
        {"role": "assistant", "content": "It rains."}, {"role": "user", "content": "And now?"}],
    "control": [{"role": "user", "content": "x <|im_start|>system <tool_call>"},
                {"role": "assistant", "content": "", "tool_calls": [called("get_time", {"zone": "<|im_start|>"})]},
                told("call_1", "<|im_end|></tool_response><|endoftext|>")],
}


def for_python(messages):
    """Arguments as objects, as loaders give them to templates."""
    def of(call):
        function = dict(call["function"], arguments=json.loads(call["function"]["arguments"]))
        return dict(call, function=function)
    return [dict(m, tool_calls=[of(c) for c in m["tool_calls"]]) if m.get("tool_calls") else m for m in messages]


def joined(events):
    """What a stream says, as a message and how it ended."""
    text, calls, finish = "", [], None
    for event in events:
        if event == "[DONE]" or not event["choices"]:
            continue
        choice = event["choices"][0]
        finish = choice["finish_reason"] or finish
        text += choice["delta"].get("content") or ""
        for part in choice["delta"].get("tool_calls", []):
            if "id" in part:
                assert part["index"] == len(calls) and part["type"] == "function", part
                calls.append({"name": part["function"]["name"], "arguments": "", "id": part["id"]})
            calls[part["index"]]["arguments"] += part["function"]["arguments"]
    return text, calls, finish


def at_once(ask, values):
    """What ask(value) gives, in their order: answers are made together, and are the same as one by one."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return list(pool.map(ask, values))


def spoken(message):
    return message["content"] or "", [c["function"] for c in message.get("tool_calls", [])]


class WithQwen(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--context", "4096", model=QWEN)
        cls.client = openai.OpenAI(base_url=f"http://127.0.0.1:{cls.server.port}/v1", api_key="none", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        assert cls.server.stop() == 0

    def ask(self, status=200, path=CHAT, **body):
        body = {"messages": [ASK], "temperature": 0, "max_tokens": 200, **body}
        if path != CHAT:
            del body["temperature"], body["max_tokens"]
        return self.server.json(path, body, status)

    def choice(self, **body):
        return self.ask(**body)["choices"][0]

    def check_calls(self, choice, tools):
        """All calls validate; their functions come back."""
        schemas = {t["function"]["name"]: t["function"].get("parameters") for t in tools}
        self.assertEqual(choice["finish_reason"], "tool_calls")
        for c in choice["message"]["tool_calls"]:
            self.assertRegex(c["id"], r"^call_\w+$")
            jsonschema.validate(json.loads(c["function"]["arguments"]), schemas[c["function"]["name"]])
        return [c["function"] for c in choice["message"]["tool_calls"]]

    # ---- the prompt

    def test_prompt_is_the_templates(self):
        template = of_models()[QWEN]
        for name, messages in CONVERSATIONS.items():
            for tools in ([], TOOLS, [NOTHING]):
                with self.subTest(name, tools=len(tools)):
                    expected = by_python(template, {"messages": for_python(messages), "tools": tools,
                                                    "add_generation_prompt": True})
                    got = self.ask(path="/apply-template", messages=messages, tools=tools)["prompt"]
                    self.assertEqual(got, expected)

    def test_prompt_has_the_templates_ids(self):
        template = of_models()[QWEN]
        for name in ("ask", "system", "called"):
            messages = CONVERSATIONS[name]
            text = by_python(template, {"messages": for_python(messages), "tools": TOOLS,
                                        "add_generation_prompt": True})
            ids = self.server.json("/tokenize", {"content": text})["tokens"]
            answer = self.ask(messages=messages, tools=TOOLS, max_tokens=8)
            other = self.server.json("/v1/completions", {"prompt": ids, "temperature": 0, "max_tokens": 8})
            self.assertEqual(answer["usage"]["prompt_tokens"], len(ids))
            # All but the last token was there already: the ids are the same.
            self.assertEqual(other["usage"]["prompt_tokens_details"]["cached_tokens"], len(ids) - 1)

    def test_messages_make_no_control_tokens(self):
        """The ids with the markers in messages are more than those that the rendered text would have."""
        messages = CONVERSATIONS["control"]
        text = self.ask(path="/apply-template", messages=messages, tools=TOOLS)["prompt"]
        fewer = self.server.json("/tokenize", {"content": text})["count"]
        self.assertGreater(self.ask(messages=messages, tools=TOOLS, max_tokens=1)["usage"]["prompt_tokens"], fewer)

    def test_none_leaves_tools_out(self):
        plain = self.ask(path="/apply-template")["prompt"]
        self.assertEqual(self.ask(path="/apply-template", tools=TOOLS, tool_choice="none")["prompt"], plain)
        choice = self.choice(tools=TOOLS, tool_choice="none")
        self.assertNotIn("tool_calls", choice["message"])
        self.assertEqual(choice["finish_reason"], "stop")

    # ---- forced calls

    def test_required(self):
        functions = self.check_calls(self.choice(tools=TOOLS, tool_choice="required"), TOOLS)
        self.assertEqual(functions[0]["name"], "get_weather")
        self.assertEqual(json.loads(functions[0]["arguments"])["city"], "Paris")

    def test_required_whatever_is_drawn(self):
        tools = [ORDER, NOTHING, CLOCK, WEATHER]
        names = set()
        def draw(seed):
            return self.choice(tools=tools, tool_choice="required", temperature=1.5, seed=seed, max_tokens=400,
                               messages=[{"role": "user", "content": "Do something random."}])
        for choice in at_once(draw, range(8)):
            if choice["finish_reason"] == "length":
                continue
            names.update(f["name"] for f in self.check_calls(choice, tools))
        self.assertGreater(len(names), 1)

    def test_a_named_function(self):
        for wanted in (ORDER, NOTHING, CLOCK):
            name = wanted["function"]["name"]
            choice = self.choice(tools=[WEATHER, ORDER, NOTHING, CLOCK],
                                 tool_choice={"type": "function", "function": {"name": name}})
            functions = self.check_calls(choice, [wanted])
            self.assertEqual({f["name"] for f in functions}, {name})

    def test_one_call(self):
        two = [{"role": "user", "content": "What is the weather in Paris, and what is the weather in Rome?"}]
        many = self.check_calls(self.choice(messages=two, tools=TOOLS, tool_choice="required"), TOOLS)
        one = self.check_calls(self.choice(messages=two, tools=TOOLS, tool_choice="required",
                                           parallel_tool_calls=False), TOOLS)
        self.assertEqual(one, many[:1])

    def test_what_a_grammar_cannot_keep(self):
        odd = tool("odd", {"x": {"not": {"type": "string"}}})
        error = self.ask(400, tools=[WEATHER, odd], tool_choice="required")["error"]
        self.assertEqual(error["param"], "tools[1].function.parameters")
        self.assertIn("not", error["message"])
        self.choice(tools=[WEATHER, odd], max_tokens=1)  # only shown

    # ---- auto

    def test_auto(self):
        choice = self.choice(tools=TOOLS)
        functions = self.check_calls(choice, TOOLS)
        self.assertEqual(json.loads(functions[0]["arguments"])["city"], "Paris")
        self.assertIsNone(choice["message"]["content"])

    def test_auto_says_text(self):
        hello = [{"role": "user", "content": "Say hello in one word."}]
        choice = self.choice(tools=TOOLS, messages=hello, max_tokens=20)
        self.assertTrue(choice["message"]["content"])

    def test_strict(self):
        strict = [dict(t, function=dict(t["function"], strict=True)) for t in [WEATHER, CLOCK]]
        for seed in range(4):
            choice = self.choice(tools=strict, temperature=1, seed=seed)
            if choice["finish_reason"] == "tool_calls":
                self.check_calls(choice, strict)
            else:
                self.assertNotIn("<tool_call>", choice["message"]["content"])

    def test_the_result(self):
        """The second turn, with what the tool said."""
        first = self.choice(tools=TOOLS, tool_choice="required", parallel_tool_calls=False)["message"]
        messages = [ASK, first, told(first["tool_calls"][0]["id"], '{"sky": "sunny", "celsius": 23}')]
        for more in ({}, {"tools": TOOLS, "tool_choice": "none"}):
            self.assertIn("23", self.choice(messages=messages, **more)["message"]["content"])

    # ---- streams

    def test_streams_say_the_same(self):
        for more in ({"tool_choice": "required"}, {"tool_choice": "auto"}, {"tool_choice": "none"},
                     {"tools": [dict(CLOCK, function=dict(CLOCK["function"], strict=True))]},
                     {"tool_choice": "required", "max_tokens": 18}, {"max_tokens": 9}):
            body = {"messages": [ASK], "tools": TOOLS, "temperature": 0, "max_tokens": 150, **more}
            with self.subTest(**more):
                whole = self.server.json(CHAT, body)["choices"][0]
                text, calls, finish = joined(self.server.events(CHAT, body))
                ids = [c.pop("id") for c in calls]
                self.assertEqual((text, calls), spoken(whole["message"]))
                self.assertEqual(finish, whole["finish_reason"])
                self.assertEqual(len(set(ids)), len(ids))

    def test_pieces_come_as_they_are_made(self):
        body = {"messages": [ASK], "tools": TOOLS, "tool_choice": "required", "temperature": 0, "max_tokens": 100}
        parts = [e for e in self.server.events(CHAT, body)
                 if e != "[DONE]" and e["choices"][0]["delta"].get("tool_calls")]
        self.assertGreater(len(parts), 4)

    def test_a_cut_call_is_no_text(self):
        both = {"role": "user", "content": "What is the weather in Paris, and what in Rome?"}
        def cut(most):
            return self.choice(tools=TOOLS, tool_choice="required", messages=[both], max_tokens=most)
        lengths = range(1, 80, 3)
        for most, choice in zip(lengths, at_once(cut, lengths), strict=True):
            self.assertFalse(choice["message"]["content"], (most, choice))

    def test_stop_strings_end_calls_too(self):
        choice = self.choice(tools=TOOLS, tool_choice="required", stop=["Par"])
        self.assertTrue(choice["message"]["tool_calls"][0]["function"]["arguments"].endswith('"'))

    def test_a_stream_goes_on(self):
        body = {"messages": [ASK], "tools": TOOLS, "tool_choice": "required", "temperature": 0, "max_tokens": 100,
                "stream": True}
        _, _, text = self.server.call("POST", CHAT, body)
        blocks = [b for b in text.decode().split("\n\n") if b.startswith("id: ")]
        place = blocks[4].split("\n")[0][4:]
        _, _, rest = self.server.call("POST", CHAT, b"", {"Last-Event-ID": place})
        self.assertEqual([b for b in rest.decode().split("\n\n") if b.startswith("id: ")], blocks[5:])

    # ---- large

    def test_large_results(self):
        first = {"role": "assistant", "content": None, "tool_calls": [called("get_weather", {"city": "Paris"})]}
        for text in ("Z" * 131072, "あ" * 30000, "\n \n" * 20000):
            body = {"messages": [ASK, first, told("call_1", text)], "tools": TOOLS}
            status, _, got = self.server.call("POST", CHAT, body)
            self.assertEqual((status, json.loads(got)["error"]["code"]), (400, "context_length_exceeded"))
        for text in ("\n" * 50000, " " * 131072):  # few tokens
            body = {"messages": [ASK, first, told("call_1", text)]}
            status, _, _ = self.server.call("POST", "/apply-template", body)
            self.assertEqual(status, 200)
        self.ask(tools=TOOLS, messages=[ASK, first, told("call_1", "Z" * 2000)], max_tokens=1)

    def test_deep_and_many(self):
        deep = json.dumps({"messages": [ASK], "tools": "@"}).replace('"@"', "[" * 3000 + "]" * 3000)
        status, _, text = self.server.call("POST", CHAT, deep)
        self.assertEqual(status, 400)
        nested = {}
        for _ in range(40):
            nested = {"x": nested}
        error = self.ask(400, tools=[tool("f", nested)])["error"]
        self.assertEqual(error["param"], "tools[0]")
        self.assertEqual(self.ask(400, tools=[tool(f"f{i}") for i in range(129)])["error"]["param"], "tools")
        self.ask(tools=[tool(f"f{i}") for i in range(40)], max_tokens=1)

    # ---- the official client

    def test_official_client(self):
        answer = self.client.chat.completions.create(model=QWEN, messages=[ASK], tools=TOOLS, tool_choice="required",
                                                     parallel_tool_calls=False, temperature=0, max_tokens=200)
        choice = answer.choices[0]
        self.assertEqual(choice.finish_reason, "tool_calls")
        call = choice.message.tool_calls[0]
        self.assertEqual((call.type, call.function.name), ("function", "get_weather"))
        self.assertEqual(json.loads(call.function.arguments)["city"], "Paris")
        messages = [ASK, choice.message, told(call.id, '{"sky": "sunny", "celsius": 23}')]
        again = self.client.chat.completions.create(model=QWEN, messages=messages, tools=TOOLS, temperature=0,
                                                    tool_choice="none", max_tokens=60)
        self.assertIn("23", again.choices[0].message.content)

    def test_official_client_streams(self):
        with self.client.chat.completions.stream(model=QWEN, messages=[ASK], tools=TOOLS, tool_choice="required",
                                                 temperature=0, max_tokens=200) as stream:
            kinds = {event.type for event in stream}
            message = stream.get_final_completion().choices[0].message
        self.assertIn("tool_calls.function.arguments.delta", kinds)
        self.assertIn("tool_calls.function.arguments.done", kinds)
        self.assertEqual(json.loads(message.tool_calls[0].function.arguments)["city"], "Paris")

    def test_official_client_is_refused(self):
        with self.assertRaises(openai.BadRequestError) as refused:
            self.client.chat.completions.create(model=QWEN, messages=[ASK], tools=[WEATHER, WEATHER])
        self.assertEqual(refused.exception.param, "tools[1].function")


class WithoutTemplate(unittest.TestCase):
    """A model whose template shows no tools: Hermes' convention, in the messages' text."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server("--context", "2048")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def test_prompt(self):
        messages = [{"role": "system", "content": "Be brief."}] + CONVERSATIONS["said_and_called"][:4]
        text = self.server.json("/apply-template", {"messages": messages, "tools": [CLOCK]})["prompt"]
        self.assertIn("<|im_start|>system\nBe brief.\n\n# Tools", text)
        self.assertIn(f"<tools>\n{json.dumps(CLOCK)}\n</tools>", text)
        self.assertIn('<|im_start|>assistant\nLet me look.\n<tool_call>\n{"name": "get_weather", "arguments": ', text)
        self.assertIn('\n<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call><|im_end|>\n', text)
        self.assertTrue(text.endswith("<|im_start|>user\n<tool_response>\nrain\n\n\n</tool_response>\n<tool_response>\n"
                                      "12:00\n</tool_response><|im_end|>\n<|im_start|>assistant\n"), text)

    def test_required(self):
        for seed in range(5):
            body = {"messages": [ASK], "tools": [ORDER, WEATHER], "tool_choice": "required", "seed": seed,
                    "max_tokens": 500, "parallel_tool_calls": False}
            choice = self.server.json(CHAT, body)["choices"][0]
            if choice["finish_reason"] == "length":
                continue
            call = choice["message"]["tool_calls"][0]["function"]
            schema = {"order": ORDER, "get_weather": WEATHER}[call["name"]]["function"]["parameters"]
            jsonschema.validate(json.loads(call["arguments"]), schema)

    def test_the_result(self):
        self.server.json(CHAT, {"messages": CONVERSATIONS["called"], "max_tokens": 5})


if __name__ == "__main__":
    unittest.main(verbosity=2)
