# SPDX-License-Identifier: Apache-2.0
"""What the commands of this folder share: kinds of arguments, where things are kept, how a command ends."""
import argparse
import os
import re
import sys

import programs
from programs import BenchError

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SIZE = re.compile(r"^\d+(\.\d+)?[KMGT]?(i?B)?$")
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
COUNT_MAX = 1 << 20


def parser(name, text):
    """With the arguments that every command takes."""
    made = argparse.ArgumentParser(prog=name, description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--cobord", default=os.path.join(ROOT, "build", "cobord"),
                      help="the program (default: build/cobord)")
    made.add_argument("--write", action="store_true", help="put the result into docs/PERFORMANCE.md")
    return made


def add_model(add):
    add("--model", default="qwen2.5-coder-1.5b", help="a model of the zoo, or a .gguf file (default: %(default)s)")
    add("--gguf", metavar="FILE", help="the model's GGUF file, when it is not to be pulled")


def add_llama(add):
    add("--llama-bench", metavar="PATH", help="a llama-bench that is there already, instead of building one")
    add("--sdist", metavar="FILE", help="llama.cpp's source package, instead of fetching it")


def whole(text):
    if not text.isdecimal() or int(text) > COUNT_MAX:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number of 0 to {COUNT_MAX}")
    return int(text)


def count(text):
    if not text.isdecimal() or not 1 <= int(text) <= COUNT_MAX:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number of 1 to {COUNT_MAX}")
    return int(text)


def counts(text):
    return [count(part) for part in text.split(",")]


def wholes(text):
    return [whole(part) for part in text.split(",")]


def size(text):
    if not SIZE.match(text):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no size like 64M")
    return text


def sizes(text):
    return [size(part) for part in text.split(",")]


def size_bytes(text):
    number, unit = re.match(r"([\d.]+)([KMGT]?)", text).groups()
    return float(number) * UNITS[unit]


def cache_folder():
    """Where the program keeps models, and these commands what they build."""
    if os.environ.get("COBORD_CACHE"):
        return os.environ["COBORD_CACHE"]
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "cobord")


def model_files(args):
    """(name, what Cobord opens, what the others open). Pulls a zoo model with its GGUF when that is not here."""
    given = args.gguf or (args.model if args.model.endswith(".gguf") else None)
    if given and not os.path.isfile(given):
        raise BenchError(f"{given}: no such file")
    if args.model.endswith(".gguf"):
        return os.path.basename(args.model)[:-5], args.model, given
    if given:
        return args.model, given, given
    path = os.path.join(cache_folder(), "models", args.model + ".gguf")
    if not os.path.isfile(path):
        programs.call([args.cobord, "pull", args.model, "--keep"], output=False)
    if not os.path.isfile(path):
        raise BenchError(f"cobord pull {args.model} --keep left no {path}. Give the file with --gguf.")
    return args.model, args.model, path


def need_program(path):
    if not os.access(path, os.X_OK):
        raise BenchError(f"{path} is not there. Run make first.")


def say(text):
    """Progress, on one line of a terminal; an empty text ends it."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)


def take_turns(found, rounds):
    """Every second round goes backwards, so that nobody always follows the same neighbour."""
    for program in found:
        say(f"warming up {program.name}")
        program.warm_up()
    for number in range(rounds):
        for program in found if number % 2 == 0 else reversed(found):
            say(f"round {number + 1} of {rounds}: {program.name}")
            program.run()
    say("")


def end(name, main):
    """Runs `main` and leaves with its exit code, or with what went wrong."""
    try:
        sys.exit(main())
    except BenchError as error:
        sys.exit(f"{name}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
