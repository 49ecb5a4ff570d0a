#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command line as a person and a script meet it: help, wrong usage, exit codes, and where output goes."""
import json
import os
import pty
import re
import select
import signal
import subprocess
import tempfile
import termios
import time
import unittest

COBORD = os.path.abspath(os.environ.get("COBORD", "build/cobord"))


def environment(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith("COBORD_") or k == "COBORD_CACHE"}
    env.update(XDG_CONFIG_HOME="/nonexistent", **more)
    return env


def run(*arguments, env=None, **kw):
    return subprocess.run([COBORD, *arguments], env=env or environment(), capture_output=True, text=True, timeout=120,
                          stdin=subprocess.DEVNULL, **kw)


def verbs():
    return re.findall(r"^  ([a-z]+) {2,}\S", run("help").stdout.split("Start here")[0], re.M)


class CliTest(unittest.TestCase):
    def assert_one_line(self, p, code, *words):
        self.assertEqual(p.returncode, code, p.stderr)
        self.assertEqual(p.stdout, "")
        self.assertRegex(p.stderr, r"\Acobord: [^\n]+\n\Z")
        for word in words:
            self.assertIn(word, p.stderr)

    def test_overview(self):
        p = run("help")
        self.assertEqual((p.returncode, p.stderr), (0, ""))
        self.assertEqual(set(verbs()), set("bench completion deploy detokenize doctor encode info keys list logits "
                                           "man node plan pull ready repair rm run serve status synth tokenize up "
                                           "verify".split()))
        self.assertEqual(run("--help").stdout, p.stdout)
        nothing = run()
        self.assertEqual((nothing.returncode, nothing.stdout, nothing.stderr), (2, "", p.stdout))
        self.assertRegex(run("--version").stdout, r"\Acobord \d+\.\d+\.\d+\n\Z")

    def test_unknown_verb(self):
        self.assert_one_line(run("bnech"), 2, "bnech", "bench")
        self.assert_one_line(run("frobnicate"), 2, "frobnicate", "cobord help")
        self.assert_one_line(run("help", "frobnicate"), 2, "frobnicate")
        self.assert_one_line(run("\x1b[31mred"), 2, r"\x1b")

    def test_help_of_every_verb(self):
        for verb in verbs():
            with self.subTest(verb):
                p = run("help", verb)
                self.assertEqual((p.returncode, p.stderr), (0, ""))
                self.assertTrue(p.stdout.startswith(f"usage: cobord {verb}"))
                self.assertIn("Examples:", p.stdout)
                self.assertLessEqual(max(map(len, p.stdout.splitlines())), 80)
                self.assertEqual(run(verb, "--help").stdout, p.stdout)

    def test_backslashes(self):
        """A backslash and n are two characters, unless --escapes makes a line break of them."""
        def read(prompt, *more):
            p = run("run", "smollm2-135m", prompt, "--raw", "--context", "64", "--max-tokens", "4",
                    "--temperature", "0", *more)
            self.assertEqual(p.returncode, 0, p.stderr)
            return int(re.search(r"\[prompt (\d+) tokens", p.stderr)[1]), p.stdout

        broken, whole = read("one\ntwo"), read("one\\ntwo")
        self.assertGreater(whole[0], broken[0])
        self.assertEqual(read("one\\ntwo", "--escapes"), broken)
        self.assertEqual(read("one\\\\ntwo", "--escapes"), whole)

    def test_wrong_usage_of_every_verb(self):
        for verb in verbs():
            with self.subTest(verb):
                self.assert_one_line(run(verb, "--frobnicate"), 2, "--frobnicate", f"cobord help {verb}")
                if verb not in ("list", "status", "man", "doctor", "ready"):
                    self.assert_one_line(run(verb), 2)
                self.assert_one_line(run(verb, *["x"] * 9), 2)

    def test_shared_flags(self):
        for verb in ("run", "bench", "logits"):
            text = run("help", verb).stdout
            for flag in ("stations", "shards", "ranges", "threads", "chunk", "memory", "context", "cache-type", "isa"):
                with self.subTest(verb=verb, flag=flag):
                    self.assertIn(f"--{flag} ", text)
            for flag, value in (("threads", "0"), ("memory", "many"), ("isa", "sse9"), ("cache-type", "q3"),
                                ("stations", "-1"), ("context", "1e9"), ("chunk", "")):
                with self.subTest(verb=verb, flag=flag):
                    self.assert_one_line(run(verb, "x", f"--{flag}", value), 2, f"--{flag}", f"'{value}'")

    def test_models_that_are_not_here(self):
        with tempfile.TemporaryDirectory() as cache:
            env = environment()
            env["COBORD_CACHE"] = cache
            for verb, more in (("run", ["hi"]), ("plan", []), ("logits", ["--tokens", "1"]), ("tokenize", [])):
                with self.subTest(verb):
                    self.assert_one_line(run(verb, "smollm2-135m", *more, env=env), 1, "cobord pull smollm2-135m")
                    self.assert_one_line(run(verb, "no-such-model", *more, env=env), 1, "no-such-model")
                    self.assert_one_line(run(verb, "/no/such.gguf", *more, env=env), 1, "/no/such.gguf", "No such file")
                    self.assert_one_line(run(verb, "s3://b/k", *more, env=env), 1, "s3://b/k")

    def test_what_is_no_model(self):
        with tempfile.TemporaryDirectory() as folder:
            env = environment()
            env["COBORD_CACHE"] = folder
            page = os.path.join(folder, "page.gguf")
            for content, word in ((b"<html><body>no</body></html>", "HTML"), (b"", "empty"),
                                  (b"version https://git-lfs.github.com/spec/v1\n", "git-lfs"),
                                  (b"GGUF", ""), (b"KNOT\x02\x00", ""), (b"PK\x03\x04" + b"x" * 60, "zip")):
                with open(page, "wb") as f:
                    f.write(content)
                for verb, more in (("run", ["hi"]), ("info", []), ("verify", [])):
                    with self.subTest(verb=verb, content=content):
                        self.assert_one_line(run(verb, page, *more, env=env), 1, page, word)
            self.assertEqual([f for f in os.listdir(os.path.join(folder, "models")) if f.endswith(".knot")], [])
            self.assert_one_line(run("run", folder, "hi", env=env), 1, "directory")

    def test_config_file(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "cobord"))
            env = environment()
            env["XDG_CONFIG_HOME"] = folder
            config = os.path.join(folder, "cobord", "config")
            with open(config, "w") as f:
                f.write(f"# where models are\ncache = {folder}/mine\n")
            env.pop("COBORD_CACHE", None)
            self.assertEqual(run("list", env=env).returncode, 0)
            self.assertTrue(os.path.isdir(f"{folder}/mine/models"))
            self.assertEqual(run("list", "--cache", f"{folder}/other", env=env).returncode, 0)
            self.assertTrue(os.path.isdir(f"{folder}/other/models"))
            with open(config, "a") as f:
                f.write("cahce = x\n")
            self.assert_one_line(run("list", env=env), 2, "config:3", "cahce")

    def into(self, output, *arguments):
        return subprocess.run([COBORD, *arguments], stdout=output, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                              text=True, timeout=120, env=environment())

    def writers(self):
        """Verbs that write; those behind the first go on when the signal of a pipe comes."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        knot = os.path.join(folder.name, "x.knot")
        self.assertEqual(run("synth", "--shape", "test", "-o", knot).returncode, 0)
        return (["list"], ["verify", knot], ["logits", knot, "--tokens", "1"], ["run", knot, "hi", "-n", "4"])

    def test_full_disk(self):
        """It is not success, and it is said once."""
        for words in self.writers():
            with self.subTest(words[0]), open("/dev/full", "w") as full:
                p = self.into(full, *words)
                self.assertEqual(p.returncode, 1)
                self.assertRegex(p.stderr, r"\Acobord: [^\n]*standard output[^\n]*\n\Z")

    def test_reader_that_left(self):
        """`| head -1` has what it wanted: no word on it, and the exit code that a shell knows a broken pipe by."""
        for words in (*self.writers(), ["doctor"]):
            with self.subTest(words[0]):
                reading, writing = os.pipe()
                os.close(reading)
                try:
                    p = self.into(writing, *words)
                finally:
                    os.close(writing)
                self.assertEqual(p.stderr, "")
                # A problem that doctor found is what its code says.
                self.assertIn(p.returncode, (1, 141) if words[0] == "doctor" else (-signal.SIGPIPE, 141))

    def test_list_json(self):
        value = json.loads(run("list", "--json").stdout)
        self.assertEqual(value["zoo"][0]["name"], "qwen2.5-coder-1.5b")

    def on_terminal(self, columns, *arguments):
        """What reaches a terminal of that width."""
        pid, terminal = pty.fork()
        if pid == 0:
            termios.tcsetwinsize(0, (24, columns))  # before it looks
            os.execve(COBORD, [COBORD, *arguments], environment())
        out, end = b"", time.time() + 120
        while time.time() < end:
            if not select.select([terminal], [], [], 1)[0]:
                continue
            try:
                piece = os.read(terminal, 65536)
            except OSError:
                break
            if not piece:
                break
            out += piece
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return code, out.decode()

    def test_progress_bar(self):
        """On a terminal a bar that never wraps, cleared in the end; no escape sequence anywhere else.
        The work must last long enough for a bar on a fast machine: a gigabyte."""
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "x.knot")
            for columns in (100, 40):
                code, out = self.on_terminal(columns, "synth", "--shape", "qwen2.5-coder-1.5b", "-o", source)
                self.assertEqual(code, 0, out)
                bars = [re.sub(r"\x1b\[[KJ]", "", b) for b in out.replace("\n", "\r").split("\r") if "%" in b]
                self.assertTrue(bars, out)
                self.assertLess(max(map(len, bars)), columns)
                self.assertTrue(any("left" in b or columns < 60 for b in bars))
                os.unlink(source)
            p = run("synth", "--shape", "smollm2-135m", "-o", source)
            self.assertNotIn("\x1b", p.stderr)
            self.assertNotIn("\r", p.stderr)


if __name__ == "__main__":
    unittest.main()
