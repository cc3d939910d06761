"""One SQLite file under processes that meet, are killed, or are cut at every call."""

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

import pytest

from turnwright import AgentDefinition, Ports, tool
from turnwright.evidence import verify
from turnwright.facts import RunOpened
from turnwright.journal import decode
from turnwright.state import fold
from turnwright.testing import ScriptedModel, call, explore_crashes, text
from turnwright_adapters.sqlite import SqliteState

PAYER = Path(__file__).with_name("payer.py")
TURNS = 6
"""How many payments payer.py makes in one run."""

BOUND = 60.0
"""Seconds after which a process is killed, whatever it does."""


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


@pytest.mark.promise("N-05", "N-08", "N-09", "N-10")
@pytest.mark.case("app-10")
def test_of_two_processes_one_pays_and_the_other_is_told_busy(tmp_path: Path) -> None:
    """A third one suspended the run; both resume it with the same approval; the payment is made once."""
    path, world = tmp_path / "runs.db", tmp_path / "world"
    with children((path, world, "asking-start")) as (first,):
        first.tell()
        _, standing, effect = first.hear("outcome")
    assert ("Suspended", "r1:1.0") == (standing, effect)
    yes = json.dumps({"decisions": {effect: "approve"}})

    with children(*[(path, world, "asking-resume", 0, yes)] * 2) as both:
        for child in both:
            child.tell()
        heard = {child.hear("paying", "busy")[0]: child for child in both}
        assert {"paying", "busy"} == heard.keys()
        assert [["paying", effect]] == [line for line in heard["paying"].said if line[0] == "paying"]
        heard["paying"].tell()
        assert ["outcome", "Completed"] == heard["paying"].hear("outcome")

    with children((path, world, "asking-resume", 0, yes)) as (late,):
        late.tell()
        assert ["outcome", "Completed"] == late.hear("outcome")
    assert {effect: 1} == payments(world)


@pytest.mark.promise("T-01")
@pytest.mark.parametrize("paid", [False, True])
def test_a_payment_whose_process_was_killed_is_in_doubt_and_not_repeated(tmp_path: Path, *, paid: bool) -> None:
    """Killed inside the approved call, before the money moved or after: the next process waits for a person."""
    path, world = tmp_path / "runs.db", tmp_path / "world"
    with children((path, world, "asking-start")) as (first,):
        first.tell()
        _, _, effect = first.hear("outcome")
    yes = json.dumps({"decisions": {effect: "approve"}})
    with children((path, world, "asking-dying-resume" if paid else "asking-resume", 0, yes)) as (second,):
        second.tell()
        second.hear("paying")
        if paid:
            second.tell()
            second.hear("paid")
        second.kill()
        second.hear_out()
    assert int(paid) == payments(world)[effect]

    with children((path, world, "asking-resume", 1)) as (third,):
        third.tell()
        assert ["outcome", "Suspended", effect] == third.hear("outcome")

    resolved = json.dumps({"resolutions": {effect: paid}})
    with children((path, world, "asking-resume", 1, resolved)) as (fourth,):
        fourth.tell()
        assert ["outcome", "Completed"] == fourth.hear("outcome")
    assert int(paid) == payments(world)[effect]


@pytest.mark.promise("T-01", "N-05")
async def test_a_run_survives_being_killed_at_random(tmp_path: Path) -> None:
    """Ten kills: no payment twice, nothing lost that was acknowledged, and every run comes to its end."""
    await _kill_at_random(tmp_path, 10)


@pytest.mark.proof
@pytest.mark.promise("T-01", "N-05")
async def test_a_run_survives_being_killed_very_often(tmp_path: Path) -> None:
    """Five hundred kills."""
    await _kill_at_random(tmp_path, 500)


async def _kill_at_random(tmp_path: Path, kills: int) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"random moments of seed {seed}")  # shown when it fails
    chance = random.Random(seed)
    life = 0
    while kills:
        life += 1
        place = tmp_path / str(life)
        place.mkdir()
        path, world = place / "runs.db", place / "world"
        unpaid: set[str] = set()
        arguments: tuple[object, ...] = ("start",)
        for hour in range(1000):
            with children((path, world, arguments[0], hour, *arguments[1:])) as (child,):
                child.tell()
                if kills:
                    try:
                        child.process.wait(chance.uniform(0.002, 0.120))
                    except subprocess.TimeoutExpired:
                        child.kill()
                        kills -= 1
                child.hear_out()
            acknowledged = {int(line[1]): line[2] for line in child.said if line[0] == "ack" and len(line) == 3}
            heads = await _heads(path)
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


async def _heads(path: Path) -> list[str]:
    """The heads of all evidence of the run, after checking everything that can be checked without its owner."""
    async with SqliteState(path) as state:
        entries = await state.load("r1")
        facts = [decode(each.kind, each.schema, each.body, position=each.seq) for each in entries]
        evidence = await state.evidence("r1")
    if facts:
        assert isinstance(facts[0], RunOpened)
        pairs = [(fact, entry.body) for fact, entry in zip(facts, entries, strict=True)]
        assert entries[-1].item[-1] == verify(evidence, pairs, salt=facts[0].salt)
        fold(facts)
    return [item.head for item in evidence]


@pytest.mark.promise("T-01", "T-02")
def test_an_approved_payment_may_be_cut_anywhere() -> None:
    """Every call that leaves the engine, hit by every fault, over a fresh file each: the laws hold."""

    @tool(approval="required")
    def pay(cents: int) -> str:
        """Pay."""
        return f"paid {cents}"

    def ports(place: Path) -> Ports:
        model = ScriptedModel([call("pay", cents=500), text("done")])
        return Ports(model=model, state=SqliteState(place / "runs.db"))

    payer = AgentDefinition("payer", "Pay.", tools=[pay])

    report = explore_crashes(payer, "refund 5", ports, decisions="approve")

    assert [] == report.violations
    assert report.cuts > 50
    assert report.in_doubt > 0


def test_a_process_that_closes_nothing_leaves_one_whole_file(tmp_path: Path) -> None:
    """At its end the log is moved into the file, so that the file can be copied alone."""
    program = (
        "import asyncio, sys\n"
        "from turnwright_adapters.sqlite import SqliteState\n"
        "state = SqliteState(sys.argv[1])\n"
        "asyncio.run(state.acquire('r1', holder='a', seconds=9))\n"
    )

    ended = subprocess.run([sys.executable, "-c", program, tmp_path / "runs.db"], check=False, timeout=BOUND)

    assert 0 == ended.returncode
    assert ["runs.db"] == [file.name for file in tmp_path.iterdir()]
