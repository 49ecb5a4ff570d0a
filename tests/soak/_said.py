# SPDX-License-Identifier: Apache-2.0
"""What is asked in a soak. Every conversation has a marker, a word that no other has: whoever reads another's marker
has read what was said to somebody else."""
import re

SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
MARKER = re.compile(r"\b(?:[bdfgklmnprstvz][aeiou]){5}\b")
TOPICS = ("rivers bread windows winter gardens letters copper bridges clocks salt wool maps lanterns ships glass "
          "orchards paper stones tides kites").split()
FORM = {"type": "json_schema", "json_schema": {"name": "thing", "schema": {
    "type": "object", "properties": {"word": {"type": "string", "maxLength": 24}, "count": {"type": "integer"}},
    "required": ["word", "count"], "additionalProperties": False}}}
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
RESPONSES, OLLAMA, EMBEDDINGS = "/v1/responses", "/api/chat", "/v1/embeddings"
TURNS_MAX = 4


def make_marker(dice):
    return "".join(dice.choice(SYLLABLES) for _ in range(5))


def filler(dice, count):
    return " ".join(dice.choice(TOPICS) for _ in range(count))


class Conversation:
    """Turns that repeat the marker: the prompt of each begins with all that was said."""

    def __init__(self, dice, marker):
        self.dice, self.marker = dice, marker
        self.turns_left = dice.randrange(1, TURNS_MAX + 1)
        self.messages = []
        if dice.random() < 0.5:
            self.messages.append({"role": "system", "content": f"You answer in the name of {marker}."})

    def next_body(self):
        """The next question, of any kind."""
        dice, marker = self.dice, self.marker
        ask = dice.choice([f"Repeat these words: {marker}, {marker}, {marker}.", f"My name is {marker}. Say my name.",
                           f"Write a line about {marker} and {dice.choice(TOPICS)}.",
                           f"Here are words: {filler(dice, dice.choice([5, 20, 60]))}. Now say {marker} twice."])
        self.messages.append({"role": "user", "content": ask})
        self.turns_left -= 1
        body = {"messages": list(self.messages), "max_tokens": dice.choice([4, 12, 24, 48]), "temperature": 0}
        kind = dice.randrange(10)
        if kind == 0:
            body |= {"temperature": 0.9, "seed": dice.randrange(1 << 30), "top_p": 0.95}
        elif kind == 1:
            body |= {"n": 2, "temperature": 0.7, "seed": dice.randrange(1 << 30)}
        elif kind == 2:
            body |= {"response_format": FORM}
        elif kind == 3:
            body |= {"logprobs": True, "top_logprobs": dice.choice([1, 20])}
        elif kind == 4:
            body |= {"stop": [marker], "logit_bias": {"2": -100, "0": -100}}
        elif kind == 5:
            body |= {"repetition_penalty": 1.2, "max_tokens": 96}
        return body

    def heard(self, text):
        self.messages.append({"role": "assistant", "content": text})


def completion(dice, marker):
    prompt = f"{marker} {filler(dice, dice.choice([2, 20, 100]))}. The list: {marker}, {marker}, {marker},"
    return {"prompt": prompt, "max_tokens": dice.choice([8, 24, 40]), "temperature": 0,
            "echo": dice.random() < 0.2}


def response(dice, marker):
    return {"input": f"Say {marker} and {dice.choice(TOPICS)}.", "instructions": f"You are {marker}.",
            "max_output_tokens": dice.choice([4, 16]), "temperature": 0}


def ollama(dice, marker):
    return {"messages": [{"role": "user", "content": f"Say {marker} and {dice.choice(TOPICS)}."}], "stream": False,
            "options": {"temperature": 0, "num_predict": dice.choice([4, 16]), "seed": 3}}


def embeddings(dice, marker):
    return {"input": [f"{marker} {filler(dice, 12)}" for _ in range(dice.randrange(1, 4))],
            "encoding_format": "base64"}


# What is no request, or one that cannot be: (path, bytes, headers, status of the refusal; 0: only no answer 200).
BAD = [
    (CHAT, b"{", {}, 400),
    (CHAT, b"[" * 4096, {}, 400),
    (CHAT, b'{"messages":[]}', {}, 400),
    (CHAT, b'{"messages":[{"role":"user","content":"x"}],"temperature":3}', {}, 400),
    (CHAT, b'{"messages":[{"role":"user","content":"x"}],"nonsense":1}', {}, 400),
    (CHAT, b'{"messages":[{"role":"user","content":"x"}],"response_format":{"type":"xml"}}', {}, 400),
    (CHAT, b"", {"Last-Event-ID": "x"}, 400),
    (CHAT, b"", {"Last-Event-ID": "chatcmpl-0123456789abcdef:1"}, 404),
    (COMPLETIONS, b'{"prompt":"' + b"river " * 4000 + b'"}', {}, 400),
    (COMPLETIONS, b'{"prompt":[1,2,999999999]}', {}, 400),
    (COMPLETIONS, b'{"prompt":"\xff\xfe"}', {}, 400),
    (EMBEDDINGS, b'{"input":[]}', {}, 400),
    ("/v1/nothing", b"{}", {}, 404),
    (CHAT, b"{}", {"Content-Type": "text/csv"}, 415),
    (CHAT, b"x" * ((8 << 20) + 1), {}, 413),
    ("/tokenize", b'{"text":5}', {}, 400),
]


def texts_of(path, value):
    """Of a whole answer: what of it has to be the same whoever gave it."""
    if path in (CHAT, COMPLETIONS):
        return [(c["message"]["content"] if path == CHAT else c["text"], c["finish_reason"]) for c in value["choices"]]
    if path == RESPONSES:
        return [("".join(p["text"] for o in value["output"] for p in o["content"]), value["status"])]
    if path == OLLAMA:
        return [(value["message"]["content"], value["done_reason"])]
    return [(d["embedding"], "") for d in value["data"]]


def details_of(path, value):
    """Log-probabilities, in order; None where there are none."""
    return [c.get("logprobs") for c in value["choices"]] if path in (CHAT, COMPLETIONS) else None
