#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a person sees at a terminal, in a real one (tmux): the chat, the bars, the colours. And that files and pipes see
none of it."""
import http.server
import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
import threading
import time
import unittest

from _ports import free_port
from _terminal import Terminal, environment

COBORD = os.path.abspath(os.environ.get("COBORD", "build/cobord"))
MODEL = "smollm2-135m"
MEASURED_SECONDS = 0.1  # shorter times give no speed (src/cli/run_remote.c)
FIGURES = r"^\[\d+ tokens?(, [\d.]+ tokens/s)?, first after [\d.]+ s\]$"
READY = r"Ctrl-D ends the chat"
PROMPT_LAST = r"^> ?\n*\Z"  # an empty prompt is the last line of the screen
LONG = "Write a very long story about a fox and a bear."


class Hub(http.server.ThreadingHTTPServer):
    """Has one large file, and takes its time."""
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", str(400_000_000))
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()

    def do_GET(self):
        self.do_HEAD()
        try:
            for _ in range(400):
                self.wfile.write(b"GGUF" + bytes(999_996))
                time.sleep(0.02)
        except OSError:  # it was enough
            pass


class TerminalTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="cobord-terminal-test-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.history = os.path.join(self.folder, "state", "cobord", "history")

    def path(self, name, content=None):
        path = os.path.join(self.folder, name)
        if content is not None:
            with open(path, "w", encoding="utf-8") as f:
                f.write(content)
        return path

    def environment(self, **more):
        return environment(XDG_STATE_HOME=os.path.join(self.folder, "state"), **more)

    def terminal(self, *words, env=None, **how):
        return Terminal([COBORD, *words], env=env or self.environment(), **how)

    def chat(self, *words, **how):
        words = words or ("--temperature", "0", "--max-tokens", "16")
        return self.terminal("run", MODEL, *words, **how)

    def clear(self, t):
        """The screen, but for the prompt: what was there before is not taken for what is still to come."""
        t.keys("C-l")
        t.wait(r"\A> ?\n*\Z")

    def ask(self, t, text):
        """Says it and waits for the next prompt; the screen then begins with what was said."""
        self.clear(t)
        t.type(text + "\n")
        t.wait(FIGURES)
        t.wait(PROMPT_LAST)
        return t.screen()

    def tell(self, t, command):
        """A command that answers at once."""
        t.keys("C-l")
        t.type(command + "\n")
        t.wait(r"\A> " + re.escape(command) + r"\n(.|\n)+" + PROMPT_LAST)
        return t.screen()

    def saved(self, t, name):
        path = self.path(name)
        self.assertRegex(self.tell(t, "/save " + path), r"messages are in")
        with open(path, encoding="utf-8") as f:
            return json.load(f)["messages"]

    def leave(self, t):
        t.keys("C-c")
        t.wait(PROMPT_LAST)
        t.keys("C-d")
        self.assertEqual(t.code(), 0)

    # ---- The chat

    def test_messages_of_several_lines(self):
        with self.chat() as t:
            t.wait(READY)
            self.assertRegex(self.ask(t, "one \\\ntwo"), r"\[\d+ tokens, [\d.]+ tokens/s, first")
            self.ask(t, '"""\nthree\n  "four"\nfive"""')
            self.clear(t)
            t.paste("six\nseven\t日本\n\x1b[31meight\n")
            self.assertIn("> six⏎seven", t.wait(r"eight")[0] and t.screen())
            t.keys("M-Enter")
            self.ask_typed(t, "nine")
            self.assertEqual([m["content"] for m in self.saved(t, "x.json") if m["role"] == "user"],
                             ["one \ntwo", 'three\n  "four"\nfive', "six\nseven\t日本\n[31meight\nnine"])
            t.keys("C-l", "Up", "Up")
            t.wait("> six⏎seven")
            self.leave(t)

    def ask_typed(self, t, rest):
        t.type(rest + "\n")
        t.wait(FIGURES)
        t.wait(PROMPT_LAST)

    def test_history_stays(self):
        with self.chat() as t:
            t.wait(READY)
            self.ask(t, "the first \\\nof all")
            self.tell(t, "/stats")
            t.type("/quit\n")
            self.assertEqual(t.code(), 0)
        self.assertEqual(stat.S_IMODE(os.stat(self.history).st_mode), 0o600)
        with open(self.history, encoding="utf-8") as f:
            self.assertEqual(f.read(), "the first \\nof all\n/stats\n/quit\n")
        with open(self.history, "a", encoding="utf-8") as f:
            f.writelines(f"filler {i}\n" for i in range(1500))
        with self.chat() as t:
            t.wait(READY)
            t.keys("Up")
            t.wait("> filler 1499$")
            t.keys("C-r")
            t.type("ller 777")
            t.wait("^> filler 777$")
            self.leave(t)
        with open(self.history, encoding="utf-8") as f:
            kept = f.read().splitlines()
        self.assertEqual((len(kept), kept[0], kept[-1]), (1000, "filler 500", "filler 1499"))
        self.assertEqual(stat.S_IMODE(os.stat(self.history).st_mode), 0o600)

    def test_commands(self):
        with self.chat(columns=160) as t:
            t.wait(READY)
            shown = self.tell(t, "/help")
            for name in "help system set clear regenerate file save load stats quit".split():
                self.assertRegex(shown, rf"(?m)^  /{name} ")
            self.assertIn("Did you mean /regenerate?", self.tell(t, "/regenrate"))
            self.assertIn("/help shows what there is", self.tell(t, "/xyzzy"))
            t.keys("C-l")
            t.type("/reg")
            t.keys("Tab")
            t.wait("^> /regenerate$")
            t.keys("Enter")
            t.wait("there is no answer yet")
            self.check_settings(t)
            self.check_conversation(t)

    def check_settings(self, t):
        self.assertIn("temperature is 0.2", self.tell(t, "/set temperature 0.2"))
        self.assertIn("top-p is 0.9", self.tell(t, "/set top_p = 0.9"))
        self.assertIn("not a number from 0 to 100", self.tell(t, "/set temperature hot"))
        self.assertIn("Did you mean min-p?", self.tell(t, "/set min_q 1"))
        shown = self.tell(t, "/set")
        self.assertRegex(shown, r"temperature +0\.2 ")
        self.assertRegex(shown, r"top-p +0\.9 ")
        self.assertRegex(shown, r"seed +random ")
        self.assertIn("top-p is 1", self.tell(t, "/set top-p default"))
        self.assertIn("temperature is 0", self.tell(t, "/set temperature 0"))

    def check_conversation(self, t):
        self.assertIn("no system message", self.tell(t, "/system"))
        self.tell(t, "/system You only say yes.")
        self.assertIn("\nYou only say yes.\n", self.tell(t, "/system"))
        code = self.path("hello.c", "int x = 1;\n```\n")
        self.assertRegex(self.tell(t, "/file " + code), r"hello\.c: 2 lines, sent with your next message")
        self.ask(t, "What is x?")
        self.ask(t, f'/file "{code}" And here?')
        self.ask(t, " /etc is a path, not a command")
        messages = self.saved(t, "talk.json")
        self.assertEqual([m["role"] for m in messages], ["system"] + ["user", "assistant"] * 3)
        self.assertEqual(messages[1]["content"], "hello.c:\n````\nint x = 1;\n```\n````\n\nWhat is x?")
        self.assertTrue(messages[3]["content"].endswith("\n\nAnd here?"))
        self.assertIn("temperature 0 gives the same answer", self.ask(t, "/retry"))
        self.assertEqual(self.saved(t, "talk.json"), messages)
        self.assertRegex(self.tell(t, "/stats"), r"4 answers, \d+ tokens")
        self.check_files(t, messages)

    def check_files(self, t, messages):
        self.assertIn("forgotten", self.tell(t, "/clear"))
        self.assertEqual([m["role"] for m in self.saved(t, "empty.json")], ["system"])
        self.assertIn("7 messages of", self.tell(t, "/load " + self.path("talk.json")))
        self.assertEqual(self.saved(t, "again.json"), messages)
        self.assertIn("no conversation", self.tell(t, "/save " + self.path("hello.c")))
        with open(self.path("hello.c"), encoding="utf-8") as f:
            self.assertEqual(f.read(), "int x = 1;\n```\n")
        for name, content, word in (("bad.json", "{", "no JSON"), ("list.json", '{"a": 1}', "no list of messages"),
                                    ("role.json", '[{"role": "king", "content": "x"}]', "message 1")):
            self.assertIn(word, self.tell(t, "/load " + self.path(name, content)))
        for word, command in (("not there", "/file " + self.path("none")), ("no regular file", "/file " + self.folder),
                              ("no text", "/file " + COBORD), ("which file?", "/save")):
            shown = self.tell(t, command)
            self.assertTrue(word in shown or "at most" in shown, shown)
        self.assertEqual(self.saved(t, "again.json"), messages)
        self.assertEqual([f for f in os.listdir(self.folder) if f.endswith(".part")], [])

    def test_ctrl_c(self):
        """Stops an answer and not the program; clears a line; twice at an empty one leaves."""
        with self.chat("--temperature", "0") as t:
            t.wait(READY)
            self.clear(t)
            t.type(LONG + "\n")
            t.wait(r"^\w+( \S+){4}")
            t.keys("C-c")
            t.wait(r"^(\^C)?\[stopped; \d+ tokens?, ")  # the terminal shows the key where the cursor is
            t.wait(PROMPT_LAST)
            t.type("/set max-tokens 8\n")
            t.wait("max-tokens is 8")
            self.ask(t, "Say hello.")
            self.assertEqual([m["role"] for m in self.saved(t, "x.json")], ["user", "assistant"] * 2)
            self.check_reading(t)
            t.keys("C-l")
            t.type("nothing of this")
            t.wait(r"\A> nothing of this\n*\Z")  # Ctrl-C takes away what is not read yet
            t.keys("C-c")
            t.wait(r"\A> nothing of this\n> ?\n*\Z")
            t.keys("C-c")
            t.wait("once more")
            t.keys("C-c")
            self.assertEqual(t.code(), 0)

    def check_reading(self, t):
        """A long prompt says how far it is, and can be stopped; it is then forgotten."""
        text = self.path("long.txt", "The quick brown fox jumps over the lazy dog.\n" * 400)
        t.type(f"/file {text} What is it about?\n")
        t.wait(r"^reading \d+ of \d+ tokens$")
        t.keys("C-c")
        t.wait(r"^(\^C)?\[stopped\]$")
        self.assertNotIn("reading", t.screen())
        self.assertEqual(len(self.saved(t, "y.json")), 4)

    def test_ctrl_d_during_an_answer(self):
        """The terminal has other modes then: the key counts when the answer is over."""
        with self.chat("--temperature", "0", "--max-tokens", "48") as t:
            t.wait(READY)
            t.type(LONG + "\n")
            t.wait(re.escape(LONG) + r"\n+\w")
            t.keys("C-d")
            t.wait(FIGURES)
            self.assertEqual(t.code(), 0)

    def test_what_a_model_says_is_text(self):
        """No escape sequence of a model reaches the terminal; a file gets its bytes."""
        ids = subprocess.run([COBORD, "tokenize", MODEL, "--json-lines"], input='{"text": "\\u001b"}\n', text=True,
                             capture_output=True, check=True, env=environment()).stdout
        bias = f"{json.loads(ids)['ids'][0]}:100"
        words = ("--temperature", "0", "--max-tokens", "3", "--logit-bias", bias)
        with self.chat(*words) as t:
            t.wait(READY)
            self.assertIn("\n" + 3 * r"\x1b" + "\n", self.ask(t, "Hi"))
        done = subprocess.run([COBORD, "run", MODEL, "Hi", *words], capture_output=True, check=True, env=environment())
        self.assertEqual(done.stdout, b"\x1b\x1b\x1b")

    def test_characters_are_whole(self):
        """Characters of several tokens, wide ones, and a line that is edited among them."""
        with self.chat("--raw", "--temperature", "0", "--max-tokens", "16", columns=20) as t:
            t.wait(PROMPT_LAST)
            t.keys("C-l")
            t.type("🦊 🦊 🦊 🦊 🦊 🦊x")
            t.keys("BSpace")
            t.type(" \n")
            t.wait(r"first after")
            answer = t.screen().split("[")[0]
            self.assertIn("🦊", answer.split("\n", 1)[1])
            self.assertNotIn("\ufffd", answer.rstrip()[:-1])

    def test_answers_to_a_file(self):
        """Prompts and remarks stay at the terminal, the file has the answers alone."""
        path = self.path("out.txt")
        with self.chat(output=path) as t:
            t.wait(READY)
            self.ask(t, "Say hello.")
            t.keys("C-d")
            self.assertEqual(t.code(), 0)
        with open(path, "rb") as f:
            said = f.read()
        self.assertTrue(said)
        self.assertNotIn(b"\x1b", said)
        self.assertNotIn(b"> ", said)

    def test_a_server(self):
        """The same chat, and the same text, with a server's answers."""
        port = free_port()
        url = f"127.0.0.1:{port}"
        words = [COBORD, "run", MODEL, "Say hello.", "--temperature", "0", "--max-tokens", "12"]
        here = subprocess.run(words, capture_output=True, check=True, env=environment())
        with subprocess.Popen([COBORD, "serve", MODEL, "--listen", url], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, env=environment()) as server:
            try:
                server.stdout.readline()
                there = subprocess.run([*words, "--url", url], capture_output=True, check=True, env=environment())
                self.assertEqual(there.stdout, here.stdout)
                self.assertRegex(there.stderr, rb"prompt \d+ tokens.*answer 12 tokens")
                # What comes with one look has no speed that could be told from here.
                words[-1] = "2"
                there = subprocess.run([*words, "--url", url], capture_output=True, check=True, env=environment())
                told = re.fullmatch(rb"\n\[prompt \d+ tokens[^;]*; answer 2 tokens(?:, ([\d.]+) tokens/s)?\]\n",
                                    there.stderr)
                self.assertTrue(told, there.stderr)
                if told[1]:  # on a busy machine there were two looks
                    self.assertLessEqual(float(told[1]), 1 / MEASURED_SECONDS)
                self.check_chat_with_server(url)
            finally:
                server.terminate()
        gone = subprocess.run([*words, "--url", url], capture_output=True, check=False, env=environment())
        self.assertEqual((gone.returncode, gone.stdout), (1, b""))
        self.assertRegex(gone.stderr, rb"\Acobord: not reachable: [^\n]+\n\Z")

    def check_chat_with_server(self, url):
        with self.chat("--temperature", "0", "--url", url) as t:
            t.wait(READY)
            self.clear(t)
            t.type(LONG + "\n")
            t.wait(r"^\w+( \S+){4}")
            t.keys("C-c")
            t.wait(r"^(\^C)?\[stopped; \d+ tokens?, ")  # the terminal shows the key where the cursor is
            self.tell(t, "/set max-tokens 8")
            self.ask(t, "Say hello.")
            self.assertRegex(self.tell(t, "/stats"), rf"{MODEL} at {url}\n +conversation +4 messages")
            self.assertEqual(len(self.saved(t, "server.json")), 4)
            t.type("/exit\n")
            self.assertEqual(t.code(), 0)

    # ---- Bars and colours

    def test_bars(self):
        with self.terminal("synth", "--shape", "qwen2.5-coder-7b", "-o", self.path("x.knot"), columns=120) as t:
            t.wait(r"^encode  \[=+> *\] +\d+ %  \d+ MB of 4\.8 GB  \d+ MB/s  \d+ s left$")
            self.assertEqual(len(t.wait(r"\[=*> *\]")[0]), 42)
            t.resize(40)
            t.wait(r"\A\n*encode  \[=*> *\] +\d+ %  \d+ s left\n+\Z")
            t.resize(120)
            t.wait(r"\A\n*encode  \[=*> *\] +\d+ %  \d+ MB of .* left\n+\Z")
            t.keys("C-c")
            self.assertEqual(t.code(), 130)
            self.assertRegex(t.screen(), r"\Acobord: cancelled: [^\n]*\n+exit code 130\n+\Z")
        with self.terminal("synth", "--shape", MODEL, "-o", self.path("x.knot"), columns=40) as t:
            self.assertEqual(t.code(), 0)
            self.assertNotIn("[", t.screen())
        with self.terminal("verify", "qwen2.5-coder-1.5b", columns=120) as t:
            self.assertEqual(t.code(), 0)
            self.assertRegex(t.screen(), r"\A(verify  1\.1 GB in [\d.]+ s, \S+ .B/s\n)?/\S+: whole\. ")

    def test_bar_of_a_pull(self):
        """Ctrl-C takes the bar away, and the next run goes on from there."""
        with Hub() as hub:
            env = self.environment(COBORD_HUB=hub.address, COBORD_CACHE=self.path("cache"))
            with self.terminal("pull", "hf:someone/something/x.gguf", columns=120, env=env) as t:
                t.wait(r"^download  \[=*> *\] +\d+ %  \d+ MB of 400 MB  ")
                t.keys("C-c")
                self.assertEqual(t.code(), 130)
                self.assertRegex(t.screen(), r"\Acobord: cancelled: [^\[\]]+ go on\.\n+exit code 130\n+\Z")

    def test_doctor(self):
        """All areas, a colour for each state, and no trace of the line that said what was looked at."""
        with self.terminal("doctor", MODEL, lines=100) as t:
            self.assertIn(t.code(), (0, 1))
            shown, painted = t.screen(), t.screen(colours=True)
        for area in ("Processor", "Memory", "Disk", "Model", "Ports", "Clock"):
            self.assertRegex(shown, rf"(?m)^{area}$")
            self.assertIn(f"\x1b[1m{area}", painted)
        self.assertIn("\x1b[32m  ok", painted)
        self.assertRegex(shown, r"(?m)^(All is fine|\d+ problems?, \d+ warnings?)\.$")
        self.assertNotIn("looking at", shown)

    def test_colours(self):
        red = "\x1b[1m\x1b[31mcobord:"
        words = ("verify", "/nonexistent.knot")
        with self.terminal(*words) as t:
            t.code()
            self.assertIn(red, t.screen(colours=True))
        for more in ({"NO_COLOR": "1"}, {"NO_COLOR": "1", "CLICOLOR_FORCE": "1"}):
            with self.terminal(*words, env=self.environment(**more)) as t:
                t.code()
                self.assertNotIn("\x1b[", t.screen(colours=True))
        forced = subprocess.run([COBORD, *words], capture_output=True, text=True, check=False,
                                env=environment(CLICOLOR_FORCE="1"))
        self.assertRegex(forced.stderr, r"\A\x1b\[1;31mcobord:\x1b\[0m not found: ")
        with self.chat(env=self.environment(NO_COLOR="1")) as t:
            t.wait(READY)
            self.ask(t, "Say hello.")
            self.assertNotIn("\x1b[", t.screen(colours=True))

    def test_pipes(self):
        """One answer, as ever: not one escape sequence, carriage return, prompt or bar."""
        words = [COBORD, "run", MODEL, "--temperature", "0", "--max-tokens", "8"]
        asked = subprocess.run([*words, "Say hello."], capture_output=True, stdin=subprocess.DEVNULL, check=True,
                               env=environment())
        piped = subprocess.run(words, input=b"Say hello.", capture_output=True, check=True, env=environment())
        self.assertEqual(asked.stdout, piped.stdout)
        self.assertTrue(asked.stdout)
        for done in (asked, piped, subprocess.run([COBORD, "verify", "/nonexistent.knot"], capture_output=True,
                                                  check=False, env=environment())):
            for stream in (done.stdout, done.stderr):
                self.assertFalse(set(stream) & {0x1b, 0x0d, 0x08}, stream)
        self.assertRegex(asked.stderr.decode(), r"\A\n\[prompt \d+ tokens, [\d.]+ tokens/s; answer \d+ tokens, "
                                                r"[\d.]+ tokens/s[^\n]*\]\n\Z")


if __name__ == "__main__":
    unittest.main()
