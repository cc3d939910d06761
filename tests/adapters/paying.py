"""Processes that pay on one store, meet there and are killed: what must hold on every store that outlives them."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Protocol

from tests.adapters.payer import TURNS, store as opened
from turnwright.evidence import verify
from turnwright.facts import RunOpened
from turnwright.journal import decode
from turnwright.ports import State
from turnwright.state import fold

PAYER = Path(__file__).with_name("payer.py")
BOUND = 60.0
"""Seconds after which a process is killed, whatever it does."""


class Stand(Protocol):
    """Where a kind of store stands for these tests."""

    def address(self, place: Path) -> str:
        """The address of a store of its own for *place*, as payer.py takes it."""
        ...

    def expire(self, address: str) -> None:
        """Let every lease have run out, as time would."""
        ...

    def store(self, place: Path) -> State:
        """That store, opened."""
        ...


class Child:
    """A process that runs payer.py: what it said so far is in *said*."""

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, str(PAYER), *map(str, arguments)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.said: list[list[str]] = []

    def tell(self) -> None:
        """Let it go on."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def hear(self, *words: str) -> list[str]:
        """Read what it says until a line begins with one of *words*; give that line."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.split())
            if self.said[-1][0] in words:
                return self.said[-1]
        raise AssertionError(f"it ended with {self.process.wait(BOUND)} and said {self.said[-3:]}")

    def hear_out(self) -> None:
        """Read all that it still says, and wait for its end."""
        assert self.process.stdout is not None
        self.said += [line.split() for line in self.process.stdout if line.endswith("\n")]
        self.process.wait(BOUND)

    def kill(self) -> None:
        """End it without a chance to say or write anything more."""
        self.process.kill()


@contextmanager
def children(*all_arguments: tuple[object, ...]) -> Iterator[list[Child]]:
    """Processes that are ready to go; none outlives the block, nor its bound."""
    started = [Child(*arguments) for arguments in all_arguments]
    timers = [Timer(BOUND, child.kill) for child in started]
    for timer in timers:
        timer.start()
    try:
        for child in started:
            child.hear("ready")
        yield started
    finally:
        for child, timer in zip(started, timers, strict=True):
            timer.cancel()
            child.kill()
            child.process.communicate()


def payments(world: Path) -> Counter[str]:
    """How often each effect happened in the world."""
    return Counter([line.split()[0] for line in world.read_text().splitlines()] if world.exists() else [])


def one_pays_and_the_other_is_told_busy(stand: Stand, place: Path) -> None:
    """A third one suspended the run; both resume it with the same approval; the payment is made once."""
    store, world = stand.address(place), place / "world"
    with children((store, world, "asking-start")) as (first,):
        first.tell()
        _, standing, effect = first.hear("outcome")
    assert ("Suspended", "r1:1.0") == (standing, effect)
    yes = json.dumps({"decisions": {effect: "approve"}})

    with children(*[(store, world, "asking-resume", yes)] * 2) as both:
        for child in both:
            child.tell()
        heard = {child.hear("paying", "busy")[0]: child for child in both}
        assert {"paying", "busy"} == heard.keys()
        assert [["paying", effect]] == [line for line in heard["paying"].said if line[0] == "paying"]
        heard["paying"].tell()
        assert ["outcome", "Completed"] == heard["paying"].hear("outcome")

    with children((store, world, "asking-resume", yes)) as (late,):
        late.tell()
        assert ["outcome", "Completed"] == late.hear("outcome")
    assert {effect: 1} == payments(world)


def a_killed_payment_is_in_doubt_and_not_repeated(stand: Stand, place: Path, *, paid: bool) -> None:
    """Killed inside the approved call, before the money moved or after: the next process waits for a person."""
    store, world = stand.address(place), place / "world"
    with children((store, world, "asking-start")) as (first,):
        first.tell()
        _, _, effect = first.hear("outcome")
    yes = json.dumps({"decisions": {effect: "approve"}})
    with children((store, world, "asking-dying-resume" if paid else "asking-resume", yes)) as (second,):
        second.tell()
        second.hear("paying")
        if paid:
            second.tell()
            second.hear("paid")
        second.kill()
        second.hear_out()
    assert int(paid) == payments(world)[effect]

    stand.expire(store)
    with children((store, world, "asking-resume")) as (third,):
        third.tell()
        assert ["outcome", "Suspended", effect] == third.hear("outcome")

    resolved = json.dumps({"resolutions": {effect: paid}})
    with children((store, world, "asking-resume", resolved)) as (fourth,):
        fourth.tell()
        assert ["outcome", "Completed"] == fourth.hear("outcome")
    assert int(paid) == payments(world)[effect]


async def kill_at_random(stand: Stand, place: Path, kills: int) -> None:
    """Kill the process of a run again and again: no payment twice, nothing lost that was acknowledged, and an end."""
    seed = random.SystemRandom().randrange(10**6)
    print(f"random moments of seed {seed}")  # shown when it fails
    chance = random.Random(seed)
    life = 0
    while kills:
        life += 1
        home = place / str(life)
        home.mkdir()
        store, world = stand.address(home), home / "world"
        unpaid: set[str] = set()
        arguments: tuple[object, ...] = ("start",)
        for _ in range(1000):
            with children((store, world, *arguments)) as (child,):
                child.tell()
                if kills:
                    try:
                        child.process.wait(chance.uniform(0.002, 0.120))
                    except subprocess.TimeoutExpired:
                        child.kill()
                        kills -= 1
                child.hear_out()
            stand.expire(store)
            acknowledged = {int(line[1]): line[2] for line in child.said if line[0] == "ack" and len(line) == 3}
            heads = await _heads(store)
            assert acknowledged == {seq: heads[seq - 1] for seq in acknowledged}
            paid = payments(world)
            assert all([times == 1 for times in paid.values()])
            outcome = child.said[-1] if child.said[-1][0] == "outcome" else ["outcome", "none"]
            if outcome[1] == "Completed":
                assert {f"r1:{turn}.0" for turn in range(1, TURNS + 1)} == paid.keys() | unpaid
                assert not paid.keys() & unpaid
                break
            doubted = outcome[2:]
            resolutions = {effect: effect in paid for effect in doubted}
            unpaid |= {effect for effect in doubted if effect not in paid}
            arguments = ("resume", json.dumps({"resolutions": resolutions})) if doubted else ("start",)
        else:
            raise AssertionError("the run came to no end")


async def _heads(address: str) -> list[str]:
    """The heads of all evidence of the run, after checking everything that can be checked without its owner."""
    async with opened(address) as state:
        entries = await state.load("r1")
        facts = [decode(each.kind, each.schema, each.body, position=each.seq) for each in entries]
        evidence = await state.evidence("r1")
    if facts:
        assert isinstance(facts[0], RunOpened)
        pairs = [(fact, entry.body) for fact, entry in zip(facts, entries, strict=True)]
        assert entries[-1].item[-1] == verify(evidence, pairs, salt=facts[0].salt)
        fold(facts)
    return [item.head for item in evidence]
