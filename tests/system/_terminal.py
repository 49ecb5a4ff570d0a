# SPDX-License-Identifier: Apache-2.0
"""A real terminal for tests: tmux with a server of its own, until the end of the with block.

    with Terminal([COBORD, "run", MODEL], columns=80, env={...}) as t:
        t.type("hello\\n")           # as typed; names of tmux's keys by t.keys("Up", "C-c")
        t.wait(r"tokens/s")         # until the screen shows it: the match; else an AssertionError with the screen
        t.screen(colours=True)      # what is seen, with the escape sequences of colours
        t.code()                    # of the program, once it has ended

Where tmux is not to be had the test is skipped.
"""
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
import unittest

WAIT_SECONDS = 60


def environment(**more):
    """Of a person who has set nothing: no COBORD_* but the cache, no config file, no wishes about colours."""
    drop = ("TMUX", "TMUX_PANE", "NO_COLOR", "CLICOLOR_FORCE")
    env = {k: v for k, v in os.environ.items()
           if k not in drop and (not k.startswith("COBORD_") or k == "COBORD_CACHE")}
    env.update(XDG_CONFIG_HOME="/nonexistent", LC_ALL="C.UTF-8", **more)
    return env


class Terminal:
    def __init__(self, command, columns=100, lines=40, env=None, output=None):
        if not shutil.which("tmux"):
            raise unittest.SkipTest("tmux is not installed: scripts/prepare does that")
        self.folder = tempfile.mkdtemp(prefix="cobord-terminal-")
        self.env = env or environment()
        program = shlex.join(command) + (f" > {shlex.quote(output)}" if output else "")
        # Ctrl-C is for the program, not for the shell that tells its exit code.
        shell = f"trap : INT; {program}; printf '\\nexit code %d\\n' $?; exec cat"
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(lines), shell)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run(self.words("kill-server"), env=self.env, capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def words(self, *arguments):
        return ["tmux", "-u", "-S", os.path.join(self.folder, "socket"), *arguments]

    def tmux(self, *arguments, **how):
        done = subprocess.run(self.words(*arguments), env=self.env, capture_output=True, text=True, timeout=60,
                              check=False, **how)
        if done.returncode:
            raise AssertionError(f"tmux {arguments}: {done.stderr}")
        return done.stdout

    def type(self, text):
        for i, part in enumerate(text.split("\n")):
            if i:
                self.keys("Enter")
            if part:
                self.tmux("send-keys", "-l", part)

    def keys(self, *names):
        self.tmux("send-keys", *names)

    def paste(self, text):
        self.tmux("load-buffer", "-", input=text)
        self.tmux("paste-buffer", "-p", "-r")

    def resize(self, columns, lines=40):
        self.tmux("resize-window", "-x", str(columns), "-y", str(lines))

    def screen(self, colours=False):
        return self.tmux("capture-pane", "-p", *(["-e"] if colours else []))

    def everything(self):
        """The screen and what has gone off its top."""
        return self.tmux("capture-pane", "-p", "-S", "-")

    def wait(self, pattern, seconds=WAIT_SECONDS, colours=False):
        end = time.time() + seconds
        while time.time() < end:
            found = re.search(pattern, self.screen(colours), re.M)
            if found:
                return found
            time.sleep(0.02)
        raise AssertionError(f"the terminal does not show {pattern!r}:\n{self.screen(colours)}")

    def code(self):
        return int(self.wait(r"^exit code (\d+)$")[1])
