# SPDX-License-Identifier: Apache-2.0
"""Clients that put a load on a server: one thread, many requests at once, each timed from its first byte.

    work = Work(deck, seed)                       bodies in a shuffled order, with cancels and slow readers among them
    run = closed_loop(port, work, clients, s)     so many clients, each asks again when it has its answer
    run = open_loop(port, work, rate, s)          requests come when they come (Poisson), whatever became of the others

A Run counts what ended within its window: `lead` seconds after the start, to the end of the arrivals. Nothing is tried
again. Requests are HTTP/1.0 on connections of their own, read plainly: a client that works takes time from who is
measured.
"""
import asyncio
import json
import random
import resource
import time
from dataclasses import dataclass, field

CHAT = "/v1/chat/completions"
WORDS = "river stone bread window music winter garden letter copper bridge salt wool map lantern ship glass".split()
PROMPT_WORDS = [8, 24, 60, 140, 300]
ANSWER_TOKENS = [8, 16, 32, 64, 128]
GO_ON = {"0": -100, "2": -100}  # the tokens that end an answer of the model that is measured
LEAVE_SHARE, SLOW_SHARE, WHOLE_SHARE = 0.10, 0.05, 0.30
SLOW_SECONDS = 0.03             # a slow reader's pause before each line
ANSWER_SECONDS_MAX = 300


def make_deck(count, seed):
    """Bodies that begin differently, of mixed lengths of prompt and answer, greedy."""
    dice, deck = random.Random(seed), []
    for i in range(count):
        words = " ".join(dice.choice(WORDS) for _ in range(PROMPT_WORDS[i % 5]))
        tokens = ANSWER_TOKENS[i // 5 % 5]
        deck.append({"messages": [{"role": "user", "content": f"{i} tells of {words}. Go on."}], "temperature": 0,
                     "max_tokens": tokens, "logit_bias": GO_ON})
    return deck


@dataclass
class One:
    """One request. Times in seconds since the epoch of time.monotonic()."""
    body: dict
    number: int
    kind: str = "stream"  # stream, whole, slow, leave
    begun: float = 0.0
    first: float = 0.0
    ended: float = 0.0
    status: int = 0
    retry_after: str = ""
    pieces: int = 0
    tokens: int = 0
    text: str = ""
    how: str = ""         # right, wrong, left, refused, error
    error: str = ""


@dataclass
class Work:
    deck: list
    seed: int
    expected: list = field(default_factory=list)

    def requests(self):
        """For ever: the deck, shuffled anew each time, so that every window has about the same mix."""
        dice = random.Random(self.seed)
        while True:
            for number in dice.sample(range(len(self.deck)), len(self.deck)):
                chance = dice.random()
                kind = ("leave" if chance < LEAVE_SHARE else "slow" if chance < LEAVE_SHARE + SLOW_SHARE else
                        "whole" if chance < LEAVE_SHARE + SLOW_SHARE + WHOLE_SHARE else "stream")
                yield One(self.deck[number], number, kind, pieces=0)


@dataclass
class Run:
    """What came of it."""
    name: str
    rate: float             # wanted, of arrivals; 0: a closed loop
    begin: float
    end: float
    done: list = field(default_factory=list)
    late_seconds: float = 0.0
    own_seconds: float = 0.0

    seconds = property(lambda self: self.end - self.begin)

    def ended(self, *hows):
        return [r for r in self.done if r.how in hows and self.begin <= r.ended < self.end]

    def arrived(self):
        return [r for r in self.done if self.begin <= r.begun < self.end]

    def tokens_per_second(self):
        """Goodput: tokens of whole and right answers."""
        return sum(r.tokens for r in self.ended("right")) / self.seconds

    def answers_per_second(self):
        return len(self.ended("right")) / self.seconds

    def served_per_second(self):
        """Requests that were served, also those that left: what the rates are shares of."""
        return len(self.ended("right", "wrong", "left")) / self.seconds

    def admitted(self):
        """Of those that came within the window, whenever they ended."""
        return [r for r in self.arrived() if r.how in ("right", "wrong")]


async def ask(port, one, work):
    one.begun = time.monotonic()
    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            await converse(port, one)
    except (OSError, ValueError, KeyError, TimeoutError, asyncio.IncompleteReadError) as error:
        one.how, one.error = "error", repr(error)
    one.ended = time.monotonic()
    if not one.how:
        right = not work.expected or one.text == work.expected[one.number]
        one.how = "right" if right else "wrong"


async def converse(port, one):
    body = json.dumps(dict(one.body, stream=one.kind != "whole", stream_options={"include_usage": True})
                      if one.kind != "whole" else one.body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"POST {CHAT} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                     .encode() + body)
        await read_head(reader, one)
        if one.status != 200:
            one.how = "refused" if one.status in (429, 503) and one.retry_after else "error"
            one.error = (await reader.read()).decode(errors="replace")
        elif one.kind == "whole":
            value = json.loads(await reader.read())
            one.text, one.tokens = value["choices"][0]["message"]["content"], value["usage"]["completion_tokens"]
        else:
            await read_stream(reader, one)
    finally:
        writer.close()


async def read_head(reader, one):
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    one.status = int(head.split(" ", 2)[1])
    for line in head.split("\r\n"):
        if line.lower().startswith("retry-after:"):
            one.retry_after = line.split(":", 1)[1].strip()


async def read_stream(reader, one):
    pieces, leaves = [], one.number % 20 + 1 if one.kind == "leave" else 0
    async for line in reader:
        if not line.startswith(b"data: "):
            continue
        if line == b"data: [DONE]\n":
            one.text = "".join(pieces)
            return
        event = json.loads(line[6:])
        if "error" in event:
            raise ValueError(event["error"]["message"])
        if event.get("usage"):
            one.tokens = event["usage"]["completion_tokens"]
        piece = event["choices"][0]["delta"].get("content") if event["choices"] else None
        if piece:
            one.first = one.first or time.monotonic()
            pieces.append(piece)
            one.pieces += 1
            if one.pieces == leaves:
                one.how = "left"
                return
        if one.kind == "slow":
            await asyncio.sleep(SLOW_SECONDS)
    raise ValueError("the stream ended without [DONE]")


# ---- Loops -----------------------------------------------------------------------------------------------------------

def own_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def begin_run(name, rate, lead, seconds):
    now = time.monotonic()
    return Run(name, rate, now + lead, now + lead + seconds, own_seconds=own_seconds())


def closed_loop(port, work, clients, lead, seconds):
    run = begin_run(f"{clients} clients", 0, lead, seconds)
    requests = work.requests()

    async def client():
        while time.monotonic() < run.end:
            one = next(requests)
            await ask(port, one, work)
            run.done.append(one)

    async def all_of_them():
        await asyncio.gather(*(client() for _ in range(clients)))

    asyncio.run(all_of_them())
    run.own_seconds = own_seconds() - run.own_seconds
    return run


def open_loop(port, work, rate, lead, seconds):
    """Arrivals go on to the end of the window; those that are under way then are waited for."""
    run = begin_run("", rate, lead, seconds)
    requests, dice = work.requests(), random.Random(work.seed + 1)

    async def arrive():
        tasks, due = [], time.monotonic()
        while True:
            due += dice.expovariate(rate)
            if due >= run.end:
                break
            await asyncio.sleep(max(0, due - time.monotonic()))
            run.late_seconds = max(run.late_seconds, time.monotonic() - due)
            one = next(requests)
            run.done.append(one)
            tasks.append(asyncio.create_task(ask(port, one, work)))
        run.own_seconds = own_seconds() - run.own_seconds
        await asyncio.gather(*tasks)

    asyncio.run(arrive())
    return run


def answers_alone(port, deck):
    """The text of each, one after the other."""
    work = Work(deck, 0)

    async def all_of_them():
        texts = []
        for number, body in enumerate(deck):
            one = One(body, number, "whole")
            await ask(port, one, work)
            if one.how != "right":
                raise ValueError(f"no answer to {body}: {one.status} {one.error}")
            texts.append(one.text)
        return texts

    return asyncio.run(all_of_them())
