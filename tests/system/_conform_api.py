# SPDX-License-Identifier: Apache-2.0
"""What a coordinator is asked, and what it must answer (docs/api.md). Texts are of temperature 0 or have a seed."""
import json

from _conformance import Case

NODE = "coordinator-0"
CHAT, COMPLETIONS, RESPONSES, EMBEDDINGS = ("/v1/chat/completions", "/v1/completions", "/v1/responses",
                                            "/v1/embeddings")
OLLAMA_CHAT, OLLAMA_GENERATE = "/api/chat", "/api/generate"
SCHEMA = {"type": "object", "properties": {"age": {"type": "integer", "maximum": 99}, "kind": {"enum": ["cat", "dog"]}},
          "required": ["age", "kind"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "The weather of a city",
                                         "parameters": {"type": "object", "properties": {"city": {"type": "string",
                                                        "maxLength": 8}}, "required": ["city"]}}}


def user(text):
    return [{"role": "user", "content": text}]


class Api(Case):
    """A request to the API; `error` is the code, `param` the field of a refusal."""

    def __init__(self, request, status, body=None, error=None, param=None, headers=None, **more):
        text = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **(headers or {})} if text is not None else headers
        super().__init__(NODE, request, status, error, text, key=None, headers=headers, **{"kind": "text", **more})
        self.param = param

    def more_faults(self, answer):
        """OpenAI's shape of errors, with what the case knows of it."""
        if answer.status < 400 or self.method == "HEAD":
            return []
        try:
            value = answer.error()
        except (ValueError, KeyError, TypeError):
            return ["no error in JSON"]
        if not {"message", "type", "param", "code", "retryable"} <= set(value) or not value["message"]:
            return ["not the shape of errors"]
        out = []
        if self.code and value["code"] != self.code:
            out.append(f"code is {value['code']}, not {self.code}")
        if self.param and not str(value["param"]).startswith(self.param):
            out.append(f"param is {value['param']}, not {self.param}")
        return out


def post(path, status, body, error=None, param=None, **more):
    return Api("POST " + path, status, body, error, param, **more)


def chat(text="Tell me about the sea.", **more):
    return post(CHAT, 200, {"messages": user(text), "temperature": 0, "max_tokens": 8, **more})


def completion(prompt="Once upon a time", **more):
    return post(COMPLETIONS, 200, {"prompt": prompt, "temperature": 0, "max_tokens": 8, **more})


def looks():
    """What can be said without the model."""
    return [
        Api("GET /health", 200, gives=b'{"status":"ok"}'), Api("HEAD /health", 200, kind="status"),
        Api("GET /health?a", 200), Api("GET /ready", 200), Api("GET /", 200, gives=b"Cobord is running"),
        Api("HEAD /", 200, kind="status"), Api("GET /v1/models", 200), Api("GET /v1/models/smollm2-135m", 200),
        Api("GET /v1/models/smollm2%2D135m", 200), Api("GET /v1/models/other", 404, error="model_not_found"),
        Api("GET /v1/models/", 404, error="model_not_found"), Api("GET /v1/models/%b4%f3", 404), Api("GET /api/tags",
                                                                                                     200),
        Api("GET /api/ps", 200), Api("GET /api/version", 200), Api("GET /cluster", 200, kind="status"),
        Api("GET /metrics", 200, kind="status"), post("/api/show", 200, {"model": "any"}),
    ]


def paths():
    out = []
    for path in ("/nothing", "/v1", "/v1/nothing", "/%ff%fe", "/healthy", "/ready/", "/api/pull", "/api", "//health",
                 "/" + "x" * 3000, "/v1/chat/completions/", "/V1/models", "/v1/%00"):
        out += [Api("GET " + path, 404, error="not_found"), Api("POST " + path, 404, b"{}", error="not_found")]
    for path in (CHAT, COMPLETIONS, RESPONSES, EMBEDDINGS, OLLAMA_CHAT, OLLAMA_GENERATE, "/api/show", "/tokenize",
                 "/detokenize", "/apply-template"):
        for method in ("GET", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS"):
            out.append(Api(f"{method} {path}", 405, error="method_not_allowed", allow="POST"))
    for path in ("/health", "/ready", "/metrics", "/cluster", "/v1/models", "/v1/models/x", "/api/tags", "/api/ps",
                 "/api/version", "/"):
        for method in ("POST", "PUT", "DELETE"):
            out.append(Api(f"{method} {path}", 405, b"{}", error="method_not_allowed", allow="GET, HEAD"))
    return out


def bodies():
    """What is no JSON object, or no JSON at all."""
    out = []
    bad = (b"", b"nonsense", b"[]", b"5", b'{"a":', b'{"messages":[]}x', b'{"prompt":"\xff\xfe"}', b"\xb4\xf3",
           b'{"prompt":1e400}', b'{"prompt":"a","prompt":"b"}', b'{"prompt":NaN}', b"\xef\xbb\xbf{}", b"{}\0",
           b'{"prompt":"\\ud800"}', b"null", b"[" * 20000, b'{"prompt":' + b"[" * 100 + b"1" + b"]" * 100 + b"}")
    for path in (CHAT, COMPLETIONS, "/tokenize", RESPONSES, OLLAMA_CHAT, EMBEDDINGS):
        for body in bad:
            out.append(post(path, 400, body))
    text = b'{"text":"a"}'
    for kind, status in (("text/plain", 415), ("application/jsonx", 415),
                         ("application/json; charset=utf-8", 200),
                         ("APPLICATION/JSON", 200), ("application/x-www-form-urlencoded", 200), ("application/json;",
                                                                                                 200)):
        out.append(post("/tokenize", status, text, "unsupported_media_type" if status == 415 else None,
                        headers={"Content-Type": kind}))
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    out += [post("/tokenize", 415, text, headers={**form, "Origin": "http://elsewhere"}),
            post("/tokenize", 415, text, headers={"Content-Encoding": "gzip"}),
            post("/tokenize", 200, text, headers={"Content-Encoding": "identity"}),
            post("/tokenize", 200, text, headers={"Authorization": "Bearer whatever"}),
            post(COMPLETIONS, 413, b'{"prompt":"' + b"x" * (9 << 20) + b'"}', "request_too_large"),
            post("/tokenize", 413, b'{"text":"' + b"x" * (9 << 20) + b'"}', "request_too_large", chunked=True),
            post("/tokenize", 200, text, chunked=True), post("/tokenize?x=y", 200, text), post("/%74okenize", 200,
                                                                                               text)]
    return out


def values():
    """Fields that are refused by their name."""
    refused = {
        "temperature": (-0.1, 2.1, "1", True, []), "top_p": (-0.1, 1.1, "x"), "top_k": (-1, 1.5), "min_p": (-1, 2),
        "repetition_penalty": (0, 11), "presence_penalty": (-3, 3), "seed": (1.5, "1"), "max_tokens": (-1, 1.5, "5"),
        "n": (0, 9), "stop": ("", [""], [1], ["x"] * 17), "stream": (1,), "logprobs": (1,), "top_logprobs": (3,),
        "tools": ([{"type": "function"}],), "tool_choice": ("required",), "response_format": (
            {"type": "xml"}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}),
        "store": (True,), "reasoning_effort": ("low",), "grammar": ("root ::= x",), "frobnicate": (1, None),
        "stream_options": ({"include_usage": True},), "model": (5,), "messages": ([], {}, "x", None),
        "logit_bias": ({"49152": -100}, {"-1": 1}, {"abc": 1}, {"5": "x"}, {"5": 101}, [1])}
    out = [post(CHAT, 400, {"messages": user("Hi"), "max_tokens": 1, name: value}, param=name)
           for name, several in refused.items() for value in several]
    out += [post(COMPLETIONS, 400, {"prompt": value, "max_tokens": 1}, param="prompt") for value in (
        [-1], [[-1]], [49152], [2**31], [1.5], [None], [], [[]], "", None, 5)]
    out += [post(CHAT, 400, {"messages": user("Hi") + [m]}, param="messages[1]") for m in (
        {"role": "robot", "content": "x"}, {"content": "x"}, {"role": "user"}, {"role": "user", "content": 5}, 5,
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
        {"role": "user", "content": "x", "colour": "red"})]
    out += [post(RESPONSES, 400, {"input": "a", field: value}, "unsupported_parameter", field) for field, value in (
        ("previous_response_id", "r"), ("store", True), ("background", True), ("truncation", "auto"))]
    out += [post(RESPONSES, 400, {"input": "a", "max_tokens": 3}, "unknown_parameter", "max_tokens"),
            post(EMBEDDINGS, 400, {"input": ""}), post(EMBEDDINGS, 400, {"input": "a", "dimensions": 7},
                                                       param="dimensions"),
            post(EMBEDDINGS, 400, {"input": ["a"] * 65}), post(OLLAMA_CHAT, 400, {"messages": user("a"),
                                                                                  "think": True}),
            post(OLLAMA_GENERATE, 400, {"prompt": "a", "options": {"num_ctx": 1 << 30}}, param="options.num_ctx"),
            post("/detokenize", 400, {"ids": [49152]}), post("/detokenize", 400, {"ids": "x"}), post("/tokenize", 400,
                                                                                                     {}),
            post("/apply-template", 400, {}), post("/api/show", 400, {"model": 5}),
            post(COMPLETIONS, 400, {"prompt": "word " * 1500, "max_tokens": 1}, "context_length_exceeded", "prompt"),
            post(COMPLETIONS, 400, {"prompt": "a"}, param="Last-Event-ID", headers={"Last-Event-ID": "x"}),
            Api("GET " + CHAT, 400, param="Last-Event-ID", headers={"Last-Event-ID": "x:y"}),
            post(CHAT, 404, b"", "stream_not_found", headers={"Last-Event-ID": "chatcmpl-0123456789abcdef:12"})]
    return out


def tokens():
    texts = ("", "Hello, world", "<|im_start|>user", "\u00e9\U0001f600\u4e2d", "a\n\tb  c", "x" * 3000)
    out = [post("/tokenize", 200, {"text": t, **more}) for t in texts
           for more in ({}, {"add_special": True}, {"parse_special": False})]
    out += [post("/detokenize", 200, {"ids": ids}) for ids in ([], [504, 3575, 282], [1, 2, 0], [49151, 200, 201])]
    turns = [{"role": "system", "content": "Be brief."}, *user("Hi"), {"role": "assistant", "content": "Hi."},
             *user("So?")]
    return out + [post("/apply-template", 200, {"messages": m}) for m in (user("Hi"), turns)]


def texts():
    """Answers that the model makes."""
    form = {"type": "json_schema", "json_schema": {"name": "animal", "schema": SCHEMA}}
    return [
        chat(), chat(), chat(stream=True), chat(stream=True, stream_options={"include_usage": True}),
        chat(max_tokens=0), chat(max_tokens=1), chat("Say yes.", max_tokens=12, stop=["e", "a"]),
        chat("Tell a story.", temperature=0.9, seed=7, max_tokens=24), chat(temperature=1, seed=3, top_p=0.8, n=3),
        chat(temperature=1.5, seed=5, top_k=40, min_p=0.02, repetition_penalty=1.3, frequency_penalty=0.5),
        chat(logprobs=True, top_logprobs=4), chat(logprobs=True, top_logprobs=2, stream=True),
        chat(logit_bias={"504": 100}), chat("Of Paris.", response_format=form, max_tokens=30),
        chat("Say maybe.", grammar='root ::= "yes, " [0-9]{3} | "no"'), chat(response_format={"type": "json_object"}),
        chat("The weather in Rome?", tools=[TOOL], tool_choice="required", max_tokens=40),
        chat("The weather in Rome?", tools=[TOOL], tool_choice="required", max_tokens=40, stream=True),
        completion(), completion(stream=True), completion(["One", "Two"], n=2), completion([504, 3575, 282]),
        completion(echo=True, logprobs=2, max_tokens=0), completion(echo=True, logprobs=1, max_tokens=2, stream=True),
        completion("word " * 300, max_tokens=4), completion("word " * 300 + "and", max_tokens=4),
        completion("1 2 3 1 2 3 1 2 3 1 2 3", max_tokens=24), completion("x", max_tokens=3, temperature=2,
                                                                         seed=2**63 - 1),
        post(EMBEDDINGS, 200, {"input": ["The sea", "Das Meer"]}), post(EMBEDDINGS, 200, {"input": [504, 3575]}),
        post(EMBEDDINGS, 200, {"input": "a", "encoding_format": "base64", "dimensions": 576}),
        post(RESPONSES, 200, {"input": "Say yes.", "temperature": 0, "max_output_tokens": 8, "metadata": {"a": "b"}}),
        post(RESPONSES, 200, {"input": "Say yes.", "temperature": 0, "max_output_tokens": 8, "stream": True}),
        *[post(path, 200, {**start, "stream": stream, "options": {"temperature": 0, "num_predict": 8}})
          for path, start in ((OLLAMA_CHAT, {"messages": user("Hi")}), (OLLAMA_GENERATE, {"prompt": "Hi"}))
          for stream in (False, True)],
        post(OLLAMA_CHAT, 200, {"messages": []}), post(OLLAMA_GENERATE, 200, {"model": "m", "keep_alive": "5m"}),
        chat(),  # as the first
    ]


def coordinator():
    return [*looks(), *paths(), *bodies(), *values(), *tokens(), *texts()]
