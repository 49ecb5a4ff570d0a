#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The chat-template interpreter gives Python's bytes: for every template of tests/data/templates and of the pulled
models over every conversation, and for small templates made at random. Where Python refuses, so does it."""
import glob
import json
import os
import random
import subprocess
import sys
import unittest
import urllib.error
import urllib.request
import warnings

import _templates

TEMPLATES = os.path.join(os.path.dirname(__file__), "..", "data", "templates")


class OracleTest(unittest.TestCase):
    def setUp(self):
        self.ours = _templates.Ours()

    def tearDown(self):
        self.assertEqual(self.ours.close(), 0)

    def compare(self, name, template):
        texts = 0
        for conversation in _templates.CONVERSATIONS:
            values = _templates.values_of(conversation)
            want = _templates.by_python(template, values)
            text, error, _ = self.ours.render(template, values)
            self.assertEqual(text, want, f"{name} over {conversation}: {error}")
            texts += text is not None
        return texts

    def test_templates(self):
        paths = sorted(glob.glob(os.path.join(TEMPLATES, "*.jinja")))
        self.assertGreaterEqual(len(paths), 40)
        self.assertGreaterEqual(len(_templates.CONVERSATIONS), 30)
        for path in paths:
            with open(path, encoding="utf-8") as f:
                texts = self.compare(os.path.basename(path), f.read())
            self.assertGreater(texts, 5, path)

    def test_models(self):
        found = _templates.of_models()
        self.assertGreaterEqual(len(found), 1)
        for name, template in found.items():
            self.assertGreater(self.compare(name, template), 5)

    def test_text_of_messages_is_foreign(self):
        template = "<{% for m in messages %}{{ m.content|upper|replace('A', 'b')|trim ~ '!' }}{% endfor %}>"
        values = {"messages": [{"content": " xa "}, {"content": "é"}]}
        self.assertEqual(self.ours.render(template, values), ("<Xb!É!>", None, 3))


class RandomTest(unittest.TestCase):
    """Expressions of random shape over fixed names: the same text, or an error on both sides."""
    VALUES = {"s": "Hello, wörld", "t": "a,b,,c", "n": 7, "f": 2.5, "z": 0, "l": [3, 1, 2], "d": {"k": "v", "a": 1},
              "e": [], "b": True, "o": None, "m": [{"role": "user", "n": 1}, {"role": "tool", "n": 2}]}
    FILTERS = ["trim", "upper", "lower", "length", "string", "list", "first", "last", "join('-')", "tojson", "sort",
               "default('d')", "default('d', true)", "int", "float", "reverse|list", "replace('a', 'X')", "title",
               "unique|list",
               "capitalize", "map('string')|list", "select|list",
               "reject('none')|list", "abs", "round", "sum", "max", "min",
               "indent(2)", "map(attribute='role')|list", "selectattr('n')|list",
               "dictsort", "items|list", "batch(2)|list", "tojson(indent=1)"]
    TESTS = ["defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "boolean", "true",
             "false", "integer", "float", "odd", "in [1, 'a']", "eq(7)"]
    OPERATORS = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", ">=", "and", "or", "in", "not in"]
    METHODS = ["split(',')", "split()", "strip()", "upper()", "startswith('H')", "endswith('c')", "replace(',', ';')",
               "get('k')", "items()|list", "keys()|list", "title()", "find('l')", "role", "k", "nope", "splitlines()"]

    def expression(self, r, depth):
        if depth == 0:
            return r.choice([*self.VALUES, "'x'", "''", "1", "-2", "0.5", "[]", "[1, 'a']", "{'q': 1}", "(1, 2)",
                             "none", "true", "nope"])
        a, b = self.expression(r, depth - 1), self.expression(r, r.randrange(depth))
        item = r.choice(["0", "-1", "1:", ":2", "::-1", "::2", "-2:", "n", "'k'"])
        return r.choice([
            f"({a} {r.choice(self.OPERATORS)} {b})", f"({a})|{r.choice(self.FILTERS)}",
            f"({a} is {r.choice(['', 'not '])}{r.choice(self.TESTS)})", f"({a}).{r.choice(self.METHODS)}",
            f"({a})[{item}]", f"({a} if {b} else {self.expression(r, 0)})", f"(not {a})", f"[{a}, {b}]",
            f"{{'p': {a}}}"])

    def statement(self, r, depth):
        kind, x = r.randrange(7 if depth else 2), self.expression(r, r.randrange(4))
        body = self.statement(r, depth - 1) if depth else ""
        minus = [r.choice(["", "", "-"]) for _ in range(4)]
        begin, end, begin2, end2 = ("{%" + minus[0], minus[1] + "%}", "{%" + minus[2], minus[3] + "%}")
        return [
            f"{{{{ {x} }}}}",
            f" a\n {{{{ {x} }}}}\n",
            f"\n {begin} if {x} {end}\n {body}{begin2} else {end2} n {{% endif %}}",
            f"{begin} for i in {x} {end} {{{{ i }}}}{{{{ loop.index }}}}{body}\n{begin2} endfor {end2}\n",
            f"{begin} set s = {x} {end}{body}{{{{ s }}}}",
            f"{{% macro q(a, b=2) %}}{{{{ a }}}}{body}{{{{ b }}}}{{% endmacro %}}{{{{ q({x}) }}}}",
            f"{{% set w %}}{body}{{% endset %}}{{{{ w|length }}}}{{# c #}}\n",
        ][kind]

    def test_random(self):
        warnings.simplefilter("ignore", SyntaxWarning)  # Python's view of 1[0]
        ours, texts, seed = _templates.Ours(), 0, int(os.environ.get("TEMPLATE_SEED", "1"))
        for i in range(seed * 10000, seed * 10000 + 4000):
            r = random.Random(i)
            template = self.statement(r, r.randrange(3))
            want = _templates.by_python(template, self.VALUES)
            text, error, _ = ours.render(template, self.VALUES)
            if want is None or _templates.shows_python(want):
                continue
            self.assertEqual(text, want, f"seed {i}: {template!r}: {error}")
            texts += 1
        self.assertEqual(ours.close(), 0)
        self.assertGreater(texts, 1000)


class ServerTest(unittest.TestCase):
    """POST /apply-template: the prompt that the model reads is the template's text."""

    def test_prompt(self):
        model = "smollm2-135m"
        process = subprocess.Popen([os.environ["COBORD"], "serve", model, "--listen", "127.0.0.1:0", "--context", "256",
                                    "--slots", "1", "--journal", "none"], stdout=subprocess.PIPE, text=True)
        try:
            port = int(process.stdout.readline().rsplit(":", 1)[1])
            template = _templates.of_models()[model]
            for name in ("user", "system_three", "unicode", "control", "code", "many"):
                values = _templates.values_of(name)
                status, answer = post(port, {"messages": values["messages"]})
                self.assertEqual((status, answer["prompt"]), (200, _templates.by_python(template, values)))
            status, answer = post(port, {"messages": [{"role": "user", "content": "x"}], "temperature": 1})
            self.assertEqual((status, answer["error"]["param"]), (400, "temperature"))
            status, answer = post(port, {"messages": []})
            self.assertEqual((status, answer["error"]["param"]), (400, "messages"))
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()


def post(port, body):
    request = urllib.request.Request(f"http://127.0.0.1:{port}/apply-template", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
