#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Constrained output against Python's jsonschema: whatever a grammar lets through is JSON that its schema accepts; what
is not supported is refused by its name. Walks are random, from fixed seeds.

GRAMMAR_PROBE names tests/system/tools/grammar_probe.c, built.
"""
import datetime
import json
import os
import subprocess
import sys
import unittest

from _packages import need
from _schemas import ACCEPTED, EXACT, REFUSED, REFUSED_KEYWORDS

need("jsonschema", "4.26.0")
import jsonschema  # noqa: E402

PROBE = os.environ.get("GRAMMAR_PROBE", "build/tests/grammar_probe")
WALKS = int(os.environ.get("SCHEMA_WALKS", "60"))
checker = jsonschema.FormatChecker()


# jsonschema leaves these to packages that may not be there.
@checker.checks("date-time", raises=ValueError)
def is_date_time(text):
    return not isinstance(text, str) or datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).tzinfo is not None


@checker.checks("time", raises=ValueError)
def is_time(text):
    return is_date_time("2000-01-01T" + text) if isinstance(text, str) else True


@checker.checks("hostname")
def is_hostname(text):
    labels = text.split(".") if isinstance(text, str) else ["a"]
    return all(x and len(x) < 64 and x[0] != "-" and x[-1] != "-" for x in labels)


def ask(questions):
    lines = "".join(json.dumps(q) + "\n" for q in questions)
    done = subprocess.run([PROBE], input=lines.encode(), stdout=subprocess.PIPE, check=True)
    answers = [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]
    assert len(answers) == len(questions)
    return answers


class SchemaTest(unittest.TestCase):
    def test_the_corpus_is_large_and_made_of_schemas(self):
        self.assertGreaterEqual(len(ACCEPTED), 100)
        for schema in ACCEPTED:
            jsonschema.Draft202012Validator.check_schema(schema)

    def test_what_is_let_through_is_accepted(self):
        answers = ask([{"schema": s, "count": WALKS, "seed": i} for i, s in enumerate(ACCEPTED)])
        different = set()
        for schema, answer in zip(ACCEPTED, answers):
            validator = jsonschema.Draft202012Validator(schema, format_checker=checker)
            self.assertNotIn("error", answer, schema)
            self.assertEqual(len(answer["texts"]), WALKS)
            for text in answer["texts"]:
                try:
                    validator.validate(json.loads(text))
                except (ValueError, jsonschema.ValidationError) as fault:
                    self.fail(f"{schema}: {text!r}: {fault}")
            different |= set(answer["texts"])
        self.assertGreater(len(different), 20 * len(ACCEPTED))

    def test_exactly_what_should_be_is_let_through(self):
        answers = ask([{"schema": s, "check": good + bad} for s, good, bad in EXACT])
        for (schema, good, bad), answer in zip(EXACT, answers):
            self.assertNotIn("error", answer, schema)
            for text, allowed in zip(good + bad, answer["checks"]):
                self.assertEqual(allowed, text in good, f"{schema}: {text!r}")

    def test_a_json_object_is_one(self):
        good, bad = ["{}", '{"a":[1,{"b":null}]}'], ["[]", "1", '{"a":}', "{}}"]
        answer, = ask([{"json_object": True, "count": 200, "seed": 5, "check": good + bad}])
        for text in answer["texts"]:
            self.assertIsInstance(json.loads(text), dict)
        self.assertEqual(answer["checks"], [True] * len(good) + [False] * len(bad))

    def test_unsupported_keywords_are_refused_by_name(self):
        places = [lambda s: s, lambda s: {"type": "object", "properties": {"p": s}}, lambda s: {"items": s},
                  lambda s: {"anyOf": [{"type": "null"}, s]}, lambda s: {"$defs": {"d": s},
                  "allOf": [{"$ref": "#/$defs/d"}]}]
        cases = [(k, place({k: v})) for k, v in REFUSED_KEYWORDS.items() for place in places]
        for (keyword, schema), answer in zip(cases, ask([{"schema": s} for _, s in cases])):
            self.assertEqual(answer.get("kind"), "not supported", schema)
            self.assertIn(f"'{keyword}' is not supported", answer["error"])

    def test_what_cannot_be_kept_is_refused_with_a_reason(self):
        for (schema, word), answer in zip(REFUSED, ask([{"schema": s} for s, _ in REFUSED])):
            if word is None:
                self.assertNotIn("error", answer, schema)
            else:
                self.assertIn(word, answer.get("error", "let through"), schema)

    def test_large_schemas_end_in_a_clear_error_or_a_grammar(self):
        wide = {"type": "object", "properties": {f"k{i}": {"type": "string", "maxLength": 50} for i in range(513)}}
        deep = {}
        for _ in range(60):
            deep = {"type": "array", "items": deep}
        views = {"$defs": {f"d{i}": {"type": "object", "properties": {
            "a": {"$ref": f"#/$defs/d{(i * 7 + 1) % 300}"}, "b": {"$ref": f"#/$defs/d{(i * 3 + 2) % 300}"}}}
            for i in range(300)}, "$ref": "#/$defs/d0"}
        words = {"enum": [f"word {i}" for i in range(5000)]}
        answers = ask([{"schema": s, "count": 3} for s in (wide, deep, views, words)])
        self.assertIn("512 properties", answers[0]["error"])
        for answer in answers[1:]:
            self.assertEqual(len(answer.get("texts", [])), 3, answer)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    unittest.main(verbosity=2)
