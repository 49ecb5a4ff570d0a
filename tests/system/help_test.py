#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the program says of itself: every verb's --help, its examples, the settings, the manual page, completion."""
import os
import pty
import re
import select
import shutil
import subprocess
import tempfile
import time
import unittest

COBORD = os.path.abspath(os.environ.get("COBORD", "build/cobord"))
COLUMNS = 80
# Examples that are over at once and change nothing.
QUICK = ("list", "completion", "man", "tokenize", "detokenize")


def environment(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith("COBORD_") or k == "COBORD_CACHE"}
    env.update(XDG_CONFIG_HOME="/nonexistent", PATH=f"{os.path.dirname(COBORD)}:{os.environ['PATH']}", **more)
    return env


def run(*arguments, env=None, **more):
    return subprocess.run([COBORD, *arguments], env=env or environment(), capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL, **more)


def shell(program, text, env=None, **more):
    return subprocess.run([*program, text], env=env or environment(), capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL, **more)


def verbs():
    return re.findall(r"^  ([a-z]+) {2,}\S", run("help").stdout.split("Start here")[0], re.M)


def examples(verb):
    text = run("help", verb).stdout.split("\nExamples:\n")[1].split("\n\n")[0]
    lines = re.sub(r" \\\n +", " ", text).splitlines()
    return [line.strip() for line in lines]


def flags(verb):
    return re.findall(r"^  (?:-., )?--([a-z0-9-]+)", run("help", verb).stdout, re.M)


class HelpTest(unittest.TestCase):
    def test_groups(self):
        text = run("help").stdout
        for group in ("Use", "Serve", "Models", "Inspect", "Operate"):
            self.assertIn(f"\n{group}\n  ", text)

    def test_pages(self):
        for verb in verbs():
            with self.subTest(verb):
                p = run(verb, "--help")
                self.assertEqual((p.returncode, p.stderr), (0, ""))
                self.assertTrue(p.stdout.startswith(f"usage: cobord {verb}"))
                self.assertIn("\nExit codes:\n  0 ", p.stdout)
                self.assertIn(len(examples(verb)), range(2, 6))
                self.assertEqual([line for line in p.stdout.splitlines() if len(line) > COLUMNS], [])
                self.assertEqual([line for line in p.stdout.splitlines() if line != line.rstrip()], [])

    def test_options_have_themes(self):
        text = run("help", "up").stdout
        for theme in ("Spreading the model", "Memory and speed", "Serving", "Keys and certificates"):
            self.assertIn(f"\n{theme}:\n  --", text)

    def test_examples_are_parsed(self):
        """Behind an example stands a flag that there is not: the only thing wrong with it."""
        for verb in verbs():
            for example in examples(verb):
                with self.subTest(example):
                    command = re.search(r"\bcobord [^|)<>#&]*", example).group().strip()
                    p = shell(["bash", "-c"], f"{command} --frobnicate")
                    self.assertEqual(p.returncode, 2, p.stderr)
                    self.assertRegex(p.stderr, r"\Acobord: unknown flag: --frobnicate[^\n]*\n\Z")

    def test_quick_examples_run(self):
        for verb in QUICK:
            for example in examples(verb):
                first = example.split("|")[-1].split()[0]
                if any(word in example for word in ("~/", "texts.jsonl", "source")) or not shutil.which(first):
                    continue
                with self.subTest(example):
                    p = shell(["bash", "-c"], example)
                    if "not here yet" in p.stderr:
                        continue # a model that this machine has not pulled
                    self.assertEqual((p.returncode, p.stderr), (0, ""))
                    self.assertTrue(p.stdout)

    def test_suggestions(self):
        for wrong, right in (("bnech", "bench"), ("sta", "status"), ("ps", "status"), ("show", "info"),
                             ("chat", "run"), ("check", "doctor")):
            p = run(wrong)
            self.assertEqual(p.returncode, 2)
            self.assertIn(f"Did you mean {right}?", p.stderr)
        self.assertIn("Did you mean --max-tokens?", run("run", "x", "--max-tokns", "3").stderr)
        self.assertIn("Did you mean --memory?", run("run", "x", "--memroy", "3").stderr)
        for flag, meant in (("--port", "--listen"), ("--num_ctx", "--context"), ("--parallel", "--slots")):
            self.assertIn(f"Did you mean {meant}?", run("serve", "x", flag, "1").stderr)
        self.assertIn("Did you mean --max-tokens?", run("run", "x", "--n-predict=3").stderr)
        self.assertNotIn("Did you mean", run("run", "x", "--port", "1").stderr)  # it listens nowhere
        self.assertIn("MODEL stands without a flag: cobord run MODEL", run("run", "--model", "x").stderr)
        for verb in ("run", "pull", "rm"):  # a dot or a colon makes no path of it
            p = run(verb, "llama9.2:1b")
            self.assertEqual(p.returncode, 1)
            self.assertRegex(p.stderr, r"\Acobord: not found: there is neither a file nor a model of this name: llama9")
        self.assertIn("llama9.gguf: No such file", run("run", "llama9.gguf").stderr)
        for verb in ("run", "pull", "info", "verify", "rm", "plan"):
            p = run(verb, "qwen2.5-coder:1.5b")
            self.assertEqual(p.returncode, 1)
            self.assertRegex(p.stderr, r"\Acobord: [^\n]*Did you mean qwen2\.5-coder-1\.5b\?\n\Z")

    def test_settings(self):
        text = run("help", "settings").stdout
        self.assertEqual([line for line in text.splitlines() if len(line) > COLUMNS], [])
        variables = re.findall(r"^  ([a-z0-9-]+) +(COBORD_[A-Z0-9_]+)", text, re.M)
        self.assertGreater(len(variables), 30)
        for name, variable in variables:
            self.assertEqual(variable, "COBORD_" + name.upper().replace("-", "_"))
        # What the page says is true: a variable is read, and a line of the file, and the flag wins.
        p = run("serve", "x", env=environment(COBORD_SLOTS="many"))
        self.assertIn("COBORD_SLOTS", p.stderr)
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "cobord"))
            env = environment()
            env["XDG_CONFIG_HOME"] = folder
            with open(os.path.join(folder, "cobord", "config"), "w") as f:
                f.write("".join(f"{name} = x\n" for name, _ in variables if name != "cache") + "no-such = x\n")
            self.assertIn(f"config:{len(variables)}: there is no setting 'no-such'", run("list", env=env).stderr)


class ManTest(unittest.TestCase):
    def setUp(self):
        self.page = run("man").stdout

    def test_everything_is_there(self):
        for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "VERBS", "OPTIONS", "ENVIRONMENT", "FILES", "EXIT STATUS",
                        "EXAMPLES", "SEE ALSO"):
            self.assertIn(f"\n.SH {section}\n", self.page)
        plain = self.page.replace("\\-", "-")
        for verb in verbs():
            self.assertIn(f"\n.SS {verb}\n", plain)
            for flag in flags(verb):
                self.assertRegex(plain, rf"\n\.TP\n\\fB(-., )?--{flag}[ \\]")
        for variable in re.findall(r"COBORD_[A-Z0-9_]+", run("help", "settings").stdout):
            self.assertIn(variable, plain)

    @unittest.skipUnless(shutil.which("groff"), "no groff here: Debian's package groff-base")
    def test_groff_warns_of_nothing(self):
        for device in ("-Tutf8", "-Tascii"):
            p = subprocess.run(["groff", "-ww", "-man", device], input=self.page, capture_output=True, text=True)
            self.assertEqual((p.returncode, p.stderr), (0, ""))
        self.assertIn("cobord completion", p.stdout.replace("\b", ""))

    @unittest.skipUnless(shutil.which("man"), "no man here: Debian's package man-db")
    def test_man_shows_it(self):
        """As lintian looks at it."""
        p = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", "-"], input=self.page,
                           capture_output=True, text=True, env={**os.environ, "MANROFFSEQ": "", "MANWIDTH": "80"})
        self.assertEqual((p.returncode, p.stderr), (0, ""))


# What is typed, and what must be among the words offered.
CASES = [("cobord ser", ["serve"]), ("cobord ru", ["run"]), ("cobord help det", ["detokenize"]),
         ("cobord run smollm2-1", ["smollm2-135m"]), ("cobord run --cache-type ", ["f16", "q8_0"]),
         ("cobord run --temp", ["--temperature"]), ("cobord completion ", ["bash", "fish", "zsh"]),
         ("cobord deploy ", ["cloudflare"]), ("cobord keys re", ["revoke"]),
         ("cobord deploy cloudflare gemma3", ["gemma3-270m"]),
         ("cobord run --threads 2 gemma3", ["gemma3-270m"]), ("cobord serve --draft gemma3", ["gemma3-270m"]),
         ("cobord encode some", ["some.gguf"]), ("cobord serve --tls-key som", ["some.gguf"]),
         ("cobord up --dir fol", ["folder"])]


class CompletionTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        os.mkdir(os.path.join(self.folder.name, "folder"))
        with open(os.path.join(self.folder.name, "some.gguf"), "w"):
            pass

    def test_models(self):
        with tempfile.TemporaryDirectory() as cache:
            env = environment()
            env["COBORD_CACHE"] = os.path.join(cache, "new")
            names = run("completion", "models", env=env).stdout.split()
            self.assertIn("smollm2-135m", names)
            self.assertEqual(os.listdir(cache), []) # Tab makes no folders
            os.makedirs(os.path.join(cache, "new", "models", ".x.pull"))
            with open(os.path.join(cache, "new", "models", "mine.knot"), "w"):
                pass
            for trap in ("$(touch trapped).knot", "`touch trapped`.knot"):  # bash would carry it out
                with open(os.path.join(cache, "new", "models", trap), "w"):
                    pass
            self.assertEqual(run("completion", "models", env=env).stdout.split(), [*names, "mine"])

    def test_unknown_shell(self):
        p = run("completion", "tcsh")
        self.assertEqual((p.returncode, p.stdout), (2, ""))
        self.assertIn("bash, zsh, fish", p.stderr)

    def test_bash(self):
        script = """source <(cobord completion bash); shopt -u progcomp_alias
            IFS=$'\\t' read -ra COMP_WORDS <<< "$1"; [[ $2 == open ]] && COMP_WORDS+=("")
            COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _cobord 2>/dev/null; printf '%s\\n' "${COMPREPLY[@]}" """
        for typed, wanted in CASES + [("cobord run --cache-type = q8", ["q8_0"]), ("cobord man x", []),
                                      ("cobord run --threads ", [])]:
            with self.subTest(typed):
                p = subprocess.run(["bash", "-c", script, "bash", "\t".join(typed.split()),
                                    "open" if typed.endswith(" ") else ""], env=environment(), capture_output=True,
                                   text=True, cwd=self.folder.name, timeout=30)
                self.assertEqual(p.stderr, "")
                self.assertEqual(set(wanted) - set(p.stdout.split()), set())
                if not wanted:
                    self.assertEqual(p.stdout.strip(), "")

    def type_in(self, program, setup, keys, wanted):
        """Types into the shell on a terminal of its own, until it shows what is wanted."""
        pid, fd = pty.fork()
        if pid == 0:
            os.chdir(self.folder.name)
            env = environment(TERM="dumb", PS1="> ", INPUTRC="/dev/null")
            env["COBORD_CACHE"] = self.folder.name # the zoo's names alone
            os.execvpe(program[0], program, env)
        seen = b""
        try:
            for text in [setup + "\r", keys]:
                os.write(fd, text.encode())
                end = time.monotonic() + 15
                word = b"is-ready" if text != keys else wanted.encode()
                while word not in seen.replace(b"\a", b"").replace(b" \b", b"") and time.monotonic() < end:
                    if select.select([fd], [], [], 0.2)[0]:
                        seen += os.read(fd, 65536)
        finally:
            os.close(fd)
            os.kill(pid, 9)
            os.waitpid(pid, 0)
        text = seen.decode(errors="replace").replace("\a", "")
        while "\b" in text:
            text = re.sub("[^\b]\b", "", text, count=1)
        return text

    def test_bash_at_the_keyboard(self):
        setup = "source <(cobord completion bash); echo is-''ready"
        seen = self.type_in(["bash", "--norc", "--noprofile", "-i"], setup,
                            "cobord ser\tsmollm2-135\t", "cobord serve smollm2-135m")
        self.assertIn("cobord serve smollm2-135m", seen)

    @unittest.skipUnless(shutil.which("zsh"), "no zsh here: Debian's package zsh")
    def test_zsh(self):
        script = run("completion", "zsh").stdout
        self.assertEqual(subprocess.run(["zsh", "-n"], input=script, text=True, capture_output=True).stderr, "")
        for typed, wanted in (("cobord ser\tsmollm2-135\t", "cobord serve smollm2-135m"),
                              ("cobord run --temp\t", "--temperature"), ("cobord encode some\t", "some.gguf"),
                              ("cobord deploy clou\tgemma\t", "cloudflare gemma3-270m")):
            with self.subTest(typed):
                seen = self.type_in(["zsh", "-f", "-i"], "autoload -U compinit; compinit -u -D; "
                                    "source <(cobord completion zsh); echo is-''ready", typed, wanted)
                self.assertIn(wanted, seen)

    @unittest.skipUnless(shutil.which("fish"), "no fish here: Debian's package fish")
    def test_fish(self):
        lines = "; ".join(f"complete -C '{typed}' | string split -f 1 \\t; echo ---" for typed, _ in CASES)
        home = self.enterContext(tempfile.TemporaryDirectory())  # where it makes folders
        p = shell(["fish", "--no-config", "-c"], f"cobord completion fish | source; {lines}", cwd=self.folder.name,
                  env={**environment(), "XDG_CONFIG_HOME": home, "XDG_DATA_HOME": home})
        self.assertEqual(p.stderr, "")
        for (typed, wanted), offered in zip(CASES, p.stdout.split("---\n")):
            with self.subTest(typed):
                self.assertEqual(set(wanted) - {word.rstrip("/") for word in offered.split()}, set())


if __name__ == "__main__":
    unittest.main()
