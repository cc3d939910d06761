"""What the SQLite store does beyond the contract of its ports: the file, its writer, content at rest, hostile bytes."""

from __future__ import annotations

import asyncio
import gc
import json
import sqlite3
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import TextIO

import pytest

from turnwright import (
    AgentDefinition,
    Completed,
    JournalError,
    MemoryState,
    PortError,
    Ports,
    Suspended,
    resume_agent,
    run_agent,
    tool,
)
from turnwright.evidence import verify
from turnwright.facts import RunCompleted
from turnwright.inbox import Cancel, Steer
from turnwright.messages import UserMessage
from turnwright.ports import Appended, Busy, Committed, Lease, Mismatch, Reserved
from turnwright.testing import ScriptedModel, call, text
from turnwright_adapters.carried import CarriedContent
from turnwright_adapters.sealed import AesGcmCipher, new_key
from turnwright_adapters.sqlite import SqliteBudgets, SqliteIdempotency, SqliteState, database as sqlite_database
from turnwright_adapters.sqlite.mounts import durability_at, filesystem_of, refuse_network_mount
from turnwright_adapters.sqlite.schema import MIGRATIONS
from turnwright_contracts import Author, told

LONG = 3600.0
CANARY = "the-canary-sings"
FRAME = 4096 + 24
"""Bytes of one page in the write-ahead log, with its header."""


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    """Look at a store's file, or meddle with it, behind the store's back."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


def everything_in(place: Path) -> bytes:
    """All bytes of all files in *place*."""
    return b"".join([file.read_bytes() for file in sorted(place.iterdir())])


def frames(path: Path) -> list[int]:
    """For each page in the write-ahead log, the size of the database if it ends a commit, else 0."""
    log = path.with_name(f"{path.name}-wal").read_bytes()[32:]
    return [int.from_bytes(log[start + 4 : start + 8], "big") for start in range(0, len(log), FRAME)]


async def opened(state: SqliteState, author: Author, *, seconds: float = LONG, said: str = "hello") -> None:
    """Take a run and write its first entry."""
    lease = await state.acquire(author.run_id, holder="a", seconds=seconds)
    assert isinstance(lease, Lease)
    await state.append(author.run_id, lease.epoch, 0, "a-1", author.opening(said))


def working_on(path: Path) -> list[threading.Thread]:
    """The threads that work on a file now."""
    return [thread for thread in threading.enumerate() if thread.name.startswith(f"turnwright {path.name} ")]


def files_in(place: Path) -> list[str]:
    """The names of the files in *place*."""
    return sorted([file.name for file in place.iterdir()])


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


ADDER = AgentDefinition("adder", "You add.", tools=[add])


# --- the file


async def test_the_file_is_as_durable_as_it_says(tmp_path: Path) -> None:
    """A write-ahead log, STRICT tables, and a mark that tells whose file it is; readable by its owner alone."""
    async with SqliteState(tmp_path / "runs.db") as state:
        await opened(state, Author())
        with raw(tmp_path / "runs.db") as look:
            assert [("wal",)] == look.execute("PRAGMA journal_mode").fetchall()
            assert [(len(MIGRATIONS),)] == look.execute("PRAGMA user_version").fetchall()
            assert b"twrt" == look.execute("PRAGMA application_id").fetchone()[0].to_bytes(4, "big")
            ours = look.execute("SELECT name, strict FROM pragma_table_list WHERE name NOT LIKE 'sqlite_%'").fetchall()
        for pragma in ("fullfsync", "checkpoint_fullfsync"):  # what a sync is on macOS
            assert (1,) == await state._write(lambda own, said=pragma: own.execute(f"PRAGMA {said}").fetchone())
    assert {"runs", "journal", "inbox", "accounts", "reservations", "idempotency"} == {name for name, _ in ours}
    assert {1} == {strict for _, strict in ours}
    assert 0o600 == (tmp_path / "runs.db").stat().st_mode & 0o777


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: raw_script(path, "PRAGMA user_version = 99"), "newer release"),
        (lambda path: raw_script(path, "PRAGMA application_id = 7"), "something else"),
        (lambda path: path.write_bytes(b"this is a letter, not a database" * 40), "not a database"),
    ],
)
async def test_a_file_that_is_not_ours_is_refused(tmp_path: Path, spoil: Callable[[Path], None], words: str) -> None:
    """One of a newer release, of another program, or no database at all; and it is left as it is."""
    path = tmp_path / "runs.db"
    async with SqliteState(path) as state:
        await opened(state, Author())
    spoil(path)
    before = path.read_bytes()

    async with SqliteState(path) as state:
        for _ in range(2):
            with pytest.raises(PortError, match=words):
                await state.acquire("r2", holder="a", seconds=LONG)
            with pytest.raises(PortError, match=words):
                await state.load("r1")

    assert before == path.read_bytes()


def raw_script(path: Path, script: str) -> None:
    """Run some statements."""
    with raw(path) as meddle:
        meddle.executescript(script)


async def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The remedy is in the message; nothing is created."""
    async with SqliteState(tmp_path / "nowhere" / "runs.db") as state:
        with pytest.raises(PortError, match="create it first"):
            await state.acquire("r1", holder="a", seconds=LONG)

    assert [] == files_in(tmp_path)


MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:26 / /mnt/team\\040files rw,relatime shared:5 - nfs4 server:/export rw
31 30 254:1 / /mnt/team\\040files/local rw - xfs /dev/vdb rw
32 22 0:30 / /srv rw - ext4 /dev/vdc rw
33 22 0:31 / /srv rw - fuse.sshfs me@host: rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/runs.db", "ext4"),
        ("/mnt/runs.db", "ext4"),
        ("/mnt/team files/runs.db", "nfs4"),
        ("/mnt/team files elsewhere/runs.db", "ext4"),
        ("/mnt/team files/local/deep/runs.db", "xfs"),
        ("/srv/runs.db", "fuse.sshfs"),
    ],
)
def test_network_mounts_are_told_from_local_ones(tmp_path: Path, path: str, kind: str) -> None:
    """The nearest mount counts, the last of several at one point; a network mount is refused with a remedy."""
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTS)

    assert kind == filesystem_of(Path(path), MOUNTS)
    if kind in ("nfs4", "fuse.sshfs"):
        with pytest.raises(PortError, match="local disk"):
            refuse_network_mount(Path(path), table)
    else:
        refuse_network_mount(Path(path), table)
        refuse_network_mount(Path(path), tmp_path / "no such table")


@pytest.mark.promise("T-07")
@pytest.mark.parametrize(("path", "survives"), [("/srv/runs.db", "power"), ("/dev/shm/x/runs.db", "process")])
def test_a_file_in_memory_does_not_claim_to_survive_a_loss_of_power(tmp_path: Path, path: str, survives: str) -> None:
    """Whether the system tells where it lies decides; where it does not, it is believed to be a disk."""
    table = tmp_path / "mountinfo"
    table.write_text("1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:5 / /dev/shm rw - tmpfs tmpfs rw\n")

    assert survives == durability_at(Path(path), table)
    assert "power" == durability_at(Path(path), tmp_path / "no such table")


@pytest.mark.promise("T-07")
@pytest.mark.parametrize("path", ["", ":memory:"])
def test_a_store_that_would_be_no_file_is_refused(path: str) -> None:
    """SQLite would make a database that nobody finds again; the message names what is meant for that."""
    for make in (SqliteState, SqliteBudgets, SqliteIdempotency):
        with pytest.raises(ValueError, match="MemoryState"):
            make(path)


@pytest.mark.parametrize("statement", range(len(MIGRATIONS[0])))
async def test_a_migration_is_whole_or_has_not_been(tmp_path: Path, statement: int) -> None:
    """Whichever of its statements fails, the file is as before, and the next try makes it whole."""
    path = tmp_path / "runs.db"
    names = ("runs", "retired_runs", "journal", "inbox", "accounts", "reservations", "idempotency")
    # SQLite refuses a view over a table's name as it would refuse it after a crash between two statements.
    with raw(path) as meddle:
        meddle.execute("PRAGMA application_id = 1953985140")
        meddle.execute(f"CREATE TABLE {names[statement]} (x)")

    async with SqliteState(path) as state:
        with pytest.raises(PortError, match="already"):
            await state.acquire("r1", holder="a", seconds=LONG)
        with raw(path) as meddle:
            assert [(names[statement],)] == meddle.execute("SELECT name FROM sqlite_schema").fetchall()
            assert [(0,)] == meddle.execute("PRAGMA user_version").fetchall()
            meddle.execute(f"DROP TABLE {names[statement]}")

        assert isinstance(await state.acquire("r1", holder="a", seconds=LONG), Lease)


# --- the writer


@pytest.mark.case("per-01")
async def test_writers_wait_for_each_other(tmp_path: Path) -> None:
    """While another connection writes, twenty appends of three entries wait; then each is whole and contiguous."""
    authors = [Author(f"r{number}") for number in range(20)]
    async with SqliteState(tmp_path / "runs.db") as state:
        for author in authors:
            await opened(state, author)
        with raw(tmp_path / "runs.db") as other:
            other.execute("BEGIN IMMEDIATE")
            appends = [
                asyncio.ensure_future(state.append(each.run_id, 1, 1, "a-2", each.turn()[:3])) for each in authors
            ]
            # Reading goes on meanwhile, and gives the writer all the time that it could have used.
            for author in authors:
                assert told(author.entries[:1]) == told(await state.load(author.run_id))
            assert not any([append.done() for append in appends])
            other.execute("COMMIT")

        assert [Appended(4)] * 20 == await asyncio.gather(*appends)
        for author in authors:
            assert told(author.entries[:4]) == told(await state.load(author.run_id))


async def test_what_queued_up_is_committed_together(tmp_path: Path) -> None:
    """Of 40 appends that wait for the file, all but the first go in one transaction."""
    authors = [Author(f"r{number}") for number in range(40)]
    path = tmp_path / "runs.db"
    async with SqliteState(path) as state:
        for author in authors:
            await opened(state, author)
        with raw(path) as other:
            other.execute("BEGIN IMMEDIATE")
            before = len(frames(path))
            appends = [asyncio.ensure_future(state.append(each.run_id, 1, 1, "a-2", each.turn())) for each in authors]
            await state.load("r0")
            other.execute("COMMIT")
            await asyncio.gather(*appends)

            assert sum([size > 0 for size in frames(path)[before:]]) <= 2


@pytest.mark.case("per-02")
async def test_an_append_that_fails_in_its_middle_writes_nothing(tmp_path: Path) -> None:
    """Its neighbours in the same transaction are written all the same; asked again, it is written once."""
    authors = [Author(f"r{number}") for number in range(6)]
    path = tmp_path / "runs.db"
    async with SqliteState(path) as state:
        for author in authors:
            await opened(state, author)
        turns = [author.turn() for author in authors]
        with raw(path) as meddle:
            meddle.execute(
                "CREATE TRIGGER full BEFORE INSERT ON journal WHEN NEW.kind = 'CallFinished' AND NEW.place >> 32 = 3 "
                "BEGIN SELECT RAISE(ABORT, 'no room for the last one'); END"
            )
        appends = [state.append(each.run_id, 1, 1, "a-2", turn) for each, turn in zip(authors, turns, strict=True)]
        answers = await asyncio.gather(*appends, return_exceptions=True)
        failed = [number for number, answer in enumerate(answers) if isinstance(answer, PortError)]

        assert ([2], 5) == (failed, answers.count(Appended(7)))
        assert told(authors[2].entries[:1]) == told(await state.load("r2"))
        with raw(path) as meddle:
            meddle.execute("DROP TRIGGER full")
        for _ in range(2):
            assert Appended(7) == await state.append("r2", 1, 1, "a-2", turns[2])
        assert told(authors[2].entries) == told(await state.load("r2"))


async def test_nothing_runs_on_after_the_last_user_is_gone(tmp_path: Path) -> None:
    """Ports on one file share their threads; with the last of them, closed or forgotten, the threads end."""
    path = tmp_path / "shared.db"
    state, other, keys = SqliteState(path), SqliteState(path), SqliteIdempotency(path)
    assert [] == working_on(path)
    await state.load("r1")
    await other.load("r1")
    await keys.begin("a", "k", "d")
    await state.close()
    await state.close()
    with pytest.raises(PortError, match="closed"):
        await state.load("r1")
    assert 3 == len(working_on(path))
    del other
    gc.collect()
    assert 3 == len(working_on(path))

    await keys.close()

    assert [] == working_on(path)
    assert ["shared.db"] == files_in(tmp_path)


async def test_a_forgotten_store_ends_by_itself(tmp_path: Path) -> None:
    """Whoever makes a store for each engine and never closes it leaves no thread behind."""
    path = tmp_path / "forgotten.db"
    state = SqliteState(path)
    await opened(state, Author())
    threads = working_on(path)
    assert 3 == len(threads)

    del state
    gc.collect()

    for thread in threads:
        thread.join(10)
    assert [] == working_on(path)


def test_a_file_that_was_replaced_is_opened_anew(tmp_path: Path) -> None:
    """A store that is made after the file was removed does not write into the removed one."""
    path = tmp_path / "runs.db"
    first = SqliteState(path)
    asyncio.run(opened(first, Author()))
    for file in tmp_path.iterdir():
        file.unlink()

    async def again() -> None:
        async with SqliteState(path) as second:
            assert await second.acquire("r1", holder="a", seconds=LONG, create=False) is None
            await opened(second, Author())
        assert path.exists()

    asyncio.run(again())


def test_loops_in_several_threads_share_a_store(tmp_path: Path) -> None:
    """Each gets its own answers."""
    state = SqliteState(tmp_path / "runs.db")
    authors = [Author(f"r{number}") for number in range(4)]

    async def work(author: Author) -> None:
        await opened(state, author)
        for number in range(5):
            expected = len(author.entries)
            await state.append(author.run_id, 1, expected, f"b-{number}", author.turn())

    threads = [threading.Thread(target=lambda each=each: asyncio.run(work(each))) for each in authors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    async def look() -> None:
        for author in authors:
            assert told(author.entries) == told(await state.load(author.run_id))
        await state.close()

    asyncio.run(look())


async def test_the_clock_of_the_store_is_never_set_back(tmp_path: Path) -> None:
    """A lease that was written under a later time stays as long as it was promised, and ends by the store's clock."""
    now = [1_000.0]
    async with SqliteState(tmp_path / "runs.db", clock=lambda: now[0]) as state:
        await opened(state, Author(), seconds=30)
        await state.renew("r1", 1, seconds=30)
        now[0] -= 600
        busy = await state.acquire("r1", holder="b", seconds=30)
        assert Busy(30) == busy
        now[0] += 600 + 30

        assert Lease("r1", 2, 1, 30, 1) == await state.acquire("r1", holder="b", seconds=30)


# --- what a turn costs


@pytest.mark.promise("T-08")
@pytest.mark.case("per-05")
async def test_a_turn_writes_the_same_at_any_length(tmp_path: Path) -> None:
    """At most 24 kB for a turn with a tool, at turn 50 and at turn 200; two appends for a text run, two a turn more."""
    path = tmp_path / "runs.db"
    written: list[int] = []

    class Model:
        def __init__(self) -> None:
            self._script = ScriptedModel([call("add", a=1, b=2)] * 210 + [text("done")])

        async def complete(self, request: object) -> object:
            written.append(len(frames(path)) * FRAME)
            return await self._script.complete(request)  # type: ignore[arg-type]

    async with SqliteState(path) as state:
        await state.runs()
        with raw(path) as meddle:  # nothing is moved from the log to the file while somebody reads the old state
            meddle.execute("BEGIN")
            meddle.execute("SELECT count(*) FROM runs").fetchone()
            ports = Ports(model=Model(), state=state)  # type: ignore[arg-type]
            await run_agent(ADDER, "go", ports, run_id="r1", max_turns=300)
            await run_agent(ADDER, "go", Ports(model=ScriptedModel([text("hi")]), state=state), run_id="r2")
            a_turn = [(written[end] - written[end - 20]) / 20 for end in (50, 200)]

            assert max(a_turn) <= 24_000
            assert abs(a_turn[0] - a_turn[1]) <= 0.1 * a_turn[0]
        with raw(path) as look:
            appends = dict(look.execute("SELECT run, count(append_id) FROM journal GROUP BY run").fetchall())
        assert {1: 2 * 210 + 2, 2: 2} == appends


# --- interruptions


@pytest.mark.promise("N-05", "T-10")
@pytest.mark.case("per-07")
async def test_a_run_that_is_cancelled_anywhere_keeps_its_history(tmp_path: Path) -> None:
    """Cut after any number of steps of the loop, and continued: the transcript is that of the calm run."""
    model = ScriptedModel([call("add", a=1, b=2), text("3")])
    calm = await run_agent(ADDER, "go", Ports(model=model))
    assert isinstance(calm, Completed)
    async with SqliteState(tmp_path / "runs.db") as state:
        for steps in range(0, 60, 2):
            ports = Ports(model=model, state=state)
            task = asyncio.ensure_future(run_agent(ADDER, "go", ports, run_id=f"r{steps}"))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])

            ended = await run_agent(ADDER, "go", ports, run_id=f"r{steps}")
            if isinstance(ended, Suspended):  # it was cut inside the tool, whose outcome nobody knows
                assert "in-doubt" == ended.reason
                continue
            assert calm.transcript == ended.transcript
            evidence = await state.evidence(f"r{steps}")
            assert ended.evidence_head == verify(evidence)


# --- what tools give


class Colour(Enum):
    """An enumeration, as tools return them."""

    RED = "red"


@pytest.mark.case("per-03")
async def test_what_a_tool_returns_is_kept_in_json_or_told_to_the_model(tmp_path: Path) -> None:
    """Dates, decimals, bytes and sets have a JSON form; what has none is an error result, and the turn is kept."""
    values: list[object] = [
        {"t": datetime(2025, 1, 15, tzinfo=UTC), "d": Decimal("1.10"), "b": b"\x00\xff", "u": uuid.UUID(int=1)},
        {1: "x", (1, 2): "y", "s": {1, 2}, "on": date(2025, 1, 15), "colour": Colour.RED},
        object(),
    ]

    @tool
    def look(number: int) -> object:
        """Look at something."""
        return values[number]

    agent = AgentDefinition("looker", "Look.", tools=[look])
    model = ScriptedModel([[call("look", number=number) for number in range(3)], text("seen")])
    async with SqliteState(tmp_path / "runs.db") as state:
        outcome = await run_agent(agent, "go", Ports(model=model, state=state), run_id="r1")
        again = await run_agent(agent, "go", Ports(model=model, state=state), run_id="r1")

    assert isinstance(outcome, Completed)
    assert outcome.transcript == again.transcript
    first, second, third = [message.text for message in outcome.transcript if message.role == "tool"]
    one = "00000000-0000-0000-0000-000000000001"
    assert {"t": "2025-01-15T00:00:00+00:00", "d": "1.10", "b": "AP8=", "u": one} == json.loads(first)
    assert {"1": "x", "[1,2]": "y", "s": [1, 2], "on": "2025-01-15", "colour": "red"} == json.loads(second)
    assert "object has no JSON form" in third


@pytest.mark.case("per-10")
async def test_an_error_that_cannot_be_serialised_is_told_all_the_same(tmp_path: Path) -> None:
    """The model, and the store, get what the exception says."""

    class MyError(Exception):
        def __init__(self, file: TextIO) -> None:
            super().__init__("the printer is on fire")
            self.file = file

    @tool
    def print_it() -> str:
        """Print."""
        raise MyError(sys.stdout)

    agent = AgentDefinition("printer", "Print.", tools=[print_it])
    model = ScriptedModel([call("print_it"), text("sorry")])
    async with SqliteState(tmp_path / "runs.db") as state:
        await run_agent(agent, "go", Ports(model=model, state=state), run_id="r1")
        (finished,) = [entry for entry in await state.load("r1") if entry.kind == "CallFinished"]

    assert b"the printer is on fire" in finished.body


@pytest.mark.promise("N-13")
@pytest.mark.case("per-13")
async def test_one_tenant_is_never_given_what_another_one_got(tmp_path: Path) -> None:
    """Two tenants with equal runs and keys each execute and get their own; what failed is not given to anybody."""
    asked: list[str] = []

    def ports(tenant: str, store: SqliteIdempotency) -> Ports:
        model = ScriptedModel([call("whoami", name="x"), text("done")])
        state = SqliteState(tmp_path / "runs.db", tenant=tenant)
        return Ports(model=model, state=state, idempotency=store, tenant=tenant)

    def agent(user: str) -> AgentDefinition[str, str]:
        @tool(key=lambda arguments: str(arguments["name"]))
        def whoami(name: str) -> str:
            """Say who asks."""
            asked.append(user)
            if user == "u3":
                raise ValueError("no idea")
            return user

        return AgentDefinition("who", "Ask.", tools=[whoami])

    said: list[list[str]] = []
    async with SqliteIdempotency(tmp_path / "runs.db") as store:
        for user, run_id in [("u1", "r1"), ("u2", "r1"), ("u1", "r2"), ("u3", "r1"), ("u3", "r2")]:
            outcome = await run_agent(agent(user), "go", ports(user, store), run_id=run_id)
            said.append([message.text for message in outcome.transcript if message.role == "tool"])

    assert [["u1"], ["u2"], ["u1"]] == said[:3]
    assert "no idea" not in said[4][0]
    assert ["u1", "u2", "u3"] == asked


async def test_runs_keys_and_accounts_live_in_one_file(tmp_path: Path) -> None:
    """The three ports share a file and its writer, and a run uses all of them."""
    path = tmp_path / "runs.db"

    @tool(key=lambda arguments: str(arguments["cents"]), cost={"cents": 5})
    def pay(cents: int) -> str:
        """Pay."""
        return f"paid {cents}"

    agent = AgentDefinition("payer", "Pay.", tools=[pay])
    async with (
        SqliteState(path) as state,
        SqliteIdempotency(path) as keys,
        SqliteBudgets(path, {("team", "cents"): 9, ("team", "requests"): 100}) as budgets,
    ):
        ports = Ports(
            model=ScriptedModel([call("pay", cents=5), call("pay", cents=5), text("done")]),
            state=state,
            idempotency=keys,
            budgets=budgets,
            scopes=("team",),
        )
        waiting = await run_agent(agent, "go", ports, run_id="r1")
        assert isinstance(waiting, Suspended)
        assert ("budget", (9, 5, 0)) == (waiting.reason, await budgets.standing("team", "cents"))
        await budgets.set_limit("team", "cents", 10)

        ended = await resume_agent(agent, "r1", ports)

        assert isinstance(ended, Completed)
        assert (10, 10, 0) == await budgets.standing("team", "cents")
        assert (100, 3, 0) == await budgets.standing("team", "requests")
        assert ["paid 5", "paid 5"] == [message.text for message in ended.transcript if message.role == "tool"]


# --- content at rest


@pytest.mark.promise("N-04")
async def test_no_byte_of_an_erased_run_is_left(tmp_path: Path) -> None:
    """Neither in the file nor in its log; the evidence still verifies, and the other run is whole."""
    author, other = Author("r1"), Author("r2")
    async with SqliteState(tmp_path / "runs.db") as state:
        for each in (author, other):
            said = CANARY if each is author else "something else"
            await opened(state, each, said=said)
            for number in range(1, 30):
                await state.append(each.run_id, 1, 6 * number - 5, f"a{number}", each.turn(said * number))
            await state.append(each.run_id, 1, 175, "end", each.write(RunCompleted(said)))
            await state.post(each.run_id, Steer(UserMessage(said)))
            await state.release(each.run_id, 1)
        assert CANARY.encode() in everything_in(tmp_path)

        await state.erase("r1")

        assert CANARY.encode() not in everything_in(tmp_path)
        assert author.entries[-1].item[-1] == verify(await state.evidence("r1"))
        assert told(other.entries) == told(await state.load("r2"))
        assert 1 == len(await state.read("r2"))
    assert CANARY.encode() not in everything_in(tmp_path)


@pytest.mark.promise("N-04")
async def test_an_erased_run_cannot_be_continued_and_says_why(tmp_path: Path) -> None:
    """The error names the entry and the reason."""
    async with SqliteState(tmp_path / "runs.db") as state:
        ports = Ports(model=ScriptedModel([call("add", a=1, b=2), text("3")]), state=state)
        await run_agent(ADDER, "go", ports, run_id="r1", max_turns=1)
        await state.erase("r1")

        with pytest.raises(JournalError, match="dropped or erased"):
            await resume_agent(ADDER, "r1", ports)


@pytest.mark.promise("N-04")
async def test_a_store_may_keep_evidence_alone(tmp_path: Path) -> None:
    """With content dropped, nothing that was said reaches the file; a word stays until it is folded."""

    @tool
    async def ask(what: str) -> str:
        """Ask."""
        await state.post("r1", Steer(UserMessage(f"{CANARY} {what}")))
        return CANARY

    agent = AgentDefinition("asker", "Ask.", tools=[ask])
    async with SqliteState(tmp_path / "runs.db", content="drop") as state:
        model = ScriptedModel([call("ask", what=CANARY), text(CANARY)])
        outcome = await run_agent(agent, CANARY, Ports(model=model, state=state), run_id="r1")

        assert f"{CANARY} {CANARY}" in [message.text for message in outcome.transcript]
        assert outcome.evidence_head == verify(await state.evidence("r1"))
        assert [] == list(await state.read("r1"))
        (head,) = await state.runs()
        assert ("completed", "asker") == (head.status, head.definition)
        await state.erase("r1")  # what was folded may linger in the log until then
        assert CANARY.encode() not in everything_in(tmp_path)


@pytest.mark.promise("N-04", "N-05")
async def test_a_caller_may_carry_the_content(tmp_path: Path) -> None:
    """In another process, over a store without content, the run goes on with what its caller kept of it."""
    path = tmp_path / "runs.db"
    model = ScriptedModel([call("add", a=1, b=2), call("add", a=3, b=4), text("7")])
    calm = await run_agent(ADDER, "go", Ports(model=model))
    async with SqliteState(path, content="drop") as store:
        state = CarriedContent(store)
        await run_agent(ADDER, "go", Ports(model=model, state=state), run_id="r1", max_turns=1)
        first = state.continuation("r1")
    async with SqliteState(path, content="drop") as store:
        state = CarriedContent(store, first)
        assert "power" == state.durability
        await resume_agent(ADDER, "r1", Ports(model=model, state=state), max_turns=2)
        second = state.continuation("r1")
        with pytest.raises(JournalError, match="carry the newest"):
            await resume_agent(ADDER, "r1", Ports(model=model, state=CarriedContent(store, first)), max_turns=3)
    async with SqliteState(path, content="drop") as store:
        ended = await resume_agent(ADDER, "r1", Ports(model=model, state=CarriedContent(store, second)), max_turns=3)

    assert isinstance(ended, Completed)
    assert ended.transcript == calm.transcript


@pytest.mark.promise("N-04")
async def test_a_continuation_that_was_changed_is_refused(tmp_path: Path) -> None:
    """Any other content, under whatever key, is not what the evidence is of; nothing runs."""
    paid: list[int] = []

    @tool(approval="required")
    def pay(cents: int) -> str:
        """Pay."""
        paid.append(cents)
        return "paid"

    agent = AgentDefinition("payer", "Pay.", tools=[pay])
    model = ScriptedModel([call("pay", cents=5), text("done")])
    async with SqliteState(tmp_path / "runs.db", content="drop") as store:
        state = CarriedContent(store)
        waiting = await run_agent(agent, "go", Ports(model=model, state=state), run_id="r1")
        assert isinstance(waiting, Suspended)
        yes = {waiting.pending[0].effect_id: "approve"}
        bodies = state._bodies["r1"]
        forged = [
            [body.replace(b'"cents":5', b'"cents":500') for body in bodies],
            [bodies[0].replace(b'"salt":"', b'"salt":"0'), *bodies[1:]],
            [bodies[1], bodies[0], *bodies[2:]],
            bodies[:-1],
            [*bodies, bodies[-1]],
        ]
        for each in forged:
            assert each != bodies
            state._bodies["r1"] = each
            carried = CarriedContent(store, state.continuation("r1"))
            with pytest.raises(JournalError):
                await resume_agent(agent, "r1", Ports(model=model, state=carried), decisions=yes)
        assert [] == paid
        state._bodies["r1"] = bodies

        ended = await resume_agent(agent, "r1", Ports(model=model, state=state), decisions=yes)

    assert isinstance(ended, Completed)
    assert [5] == paid


@pytest.mark.promise("N-04")
async def test_sealed_content_is_unreadable_in_the_file(tmp_path: Path) -> None:
    """Journal, inbox, and results and digests of keys are sealed; evidence is not, as it has no content."""
    guessable = sha256(CANARY.encode()).hexdigest()
    path, cipher = tmp_path / "runs.db", AesGcmCipher({"k": new_key()}, current="k")
    author = Author()
    async with SqliteState(path, cipher=cipher) as state, SqliteIdempotency(path, cipher=cipher) as keys:
        await opened(state, author, said=CANARY)
        await state.append("r1", 1, 1, "a-2", author.turn(CANARY))
        await state.post("r1", Steer(UserMessage(CANARY)))
        await keys.begin("acme/pay", "k", guessable)
        await keys.commit("acme/pay", "k", CANARY)

        assert CANARY.encode() not in everything_in(tmp_path)
        assert guessable.encode() not in everything_in(tmp_path)
        assert told(author.entries) == told(await state.load("r1"))
        assert Committed(CANARY) == await keys.begin("acme/pay", "k", guessable)
        assert Mismatch() == await keys.begin("acme/pay", "k", "f" * 64)
        async with SqliteIdempotency(path) as stranger:
            with pytest.raises(PortError, match="'k' is sealed, and this store has no cipher"):
                await stranger.begin("acme/pay", "k", guessable)
            await stranger.begin("acme/pay", "plain", guessable)
        with pytest.raises(PortError, match="plaintext is refused"):
            await keys.begin("acme/pay", "plain", guessable)


@pytest.mark.promise("N-04")
async def test_a_word_that_the_owner_of_a_run_could_not_read_is_refused(tmp_path: Path) -> None:
    """It would keep the run from ever going on; whoever says it is told to use a store like the run's own."""
    cipher = AesGcmCipher({"k": new_key()}, current="k")
    path = tmp_path / "runs.db"
    async with SqliteState(path) as plain, SqliteState(path, cipher=cipher) as sealed:
        await opened(plain, Author("plain"))
        await opened(sealed, Author("sealed"))

        with pytest.raises(PortError, match="'sealed' is sealed, and this store has no cipher"):
            await plain.post("sealed", Cancel())
        with pytest.raises(PortError, match="'plain' is not sealed, and this store seals"):
            await sealed.post("plain", Cancel())
        assert [1, 1] == [await plain.post("plain", Cancel()), await sealed.post("sealed", Cancel())]


@pytest.mark.promise("N-04")
async def test_keys_are_rotated_and_destroyed(tmp_path: Path) -> None:
    """A new key seals, the old one still opens; without it what it sealed is gone, and the evidence is not."""
    old, new = new_key(), new_key()
    author = Author()
    async with SqliteState(tmp_path / "runs.db", cipher=AesGcmCipher({"old": old}, current="old")) as state:
        await opened(state, author)
    async with SqliteState(tmp_path / "runs.db", cipher=AesGcmCipher({"old": old, "new": new}, current="new")) as state:
        await state.append("r1", 1, 1, "a-2", author.turn())
        assert told(author.entries) == told(await state.load("r1"))
    async with SqliteState(tmp_path / "runs.db", cipher=AesGcmCipher({"new": new}, current="new")) as state:
        assert told(author.entries[1:]) == told(await state.load("r1", 1))
        with pytest.raises(PortError, match="'old', which is not on the ring"):
            await state.load("r1")
        assert author.entries[-1].item[-1] == verify(await state.evidence("r1"))


@pytest.mark.promise("N-04")
@pytest.mark.parametrize(
    ("meddling", "words"),
    [
        ("UPDATE journal SET body = (SELECT body FROM journal WHERE seq = 3) WHERE seq = 2", "changed or moved"),
        ("UPDATE journal SET body = (SELECT body FROM journal WHERE place = 2 * (1 << 32) + 2)", "changed or moved"),
        ("UPDATE journal SET kind = 'RunFailed' WHERE seq = 2", "changed or moved"),
        ("UPDATE journal SET schema = 0 WHERE seq = 2", "changed or moved"),
        ("UPDATE journal SET body = CAST('{\"turn\":1}' AS BLOB) WHERE seq = 2", "plaintext is refused"),
        ("UPDATE journal SET body = x'' WHERE seq = 2", "plaintext is refused"),
        ("UPDATE journal SET body = x'0101' WHERE seq = 2", "not on the ring"),
        ("UPDATE journal SET body = substr(body, 1, length(body) - 1) WHERE seq = 2", "changed or moved"),
        ("UPDATE journal SET body = substr(body, 1, 5) WHERE seq = 2", "changed or moved"),
        ("UPDATE inbox SET place = place + 1", "changed or moved"),
        ("DELETE FROM runs WHERE run_id = 'r1'; UPDATE runs SET run_id = 'r1'", "changed or moved"),
    ],
)  # fmt: skip
async def test_sealed_content_cannot_be_changed_moved_or_replaced(tmp_path: Path, meddling: str, words: str) -> None:
    """A body is bound to run, place, kind and schema; what was never sealed is refused."""
    path, cipher = tmp_path / "runs.db", AesGcmCipher({"k": new_key()}, current="k")
    async with SqliteState(path, cipher=cipher) as state:
        for run_id in ("r1", "r2"):
            author = Author(run_id)
            await opened(state, author)
            await state.append(run_id, 1, 1, "a-2", author.turn())
            await state.post(run_id, Cancel())
        raw_script(path, meddling)

        with pytest.raises(PortError, match=words):
            await (state.read("r1") if "inbox" in meddling else state.load("r1"))


async def test_content_is_sealed_exactly_if_there_is_a_cipher(tmp_path: Path) -> None:
    """A contradiction is refused when the store is made."""
    cipher = AesGcmCipher({"k": new_key()}, current="k")
    for wrong in ({"content": "sealed"}, {"content": "keep", "cipher": cipher}, {"content": "drop", "cipher": cipher}):
        with pytest.raises(ValueError, match="cipher"):
            SqliteState(tmp_path / "runs.db", **wrong)
    with pytest.raises(ValueError, match="keep, drop or sealed"):
        SqliteState(tmp_path / "runs.db", content="hide")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keys", "current", "words"),
    [
        ({"k": b"short"}, "k", "5 bytes, not 32"),
        ({"k": bytes(32)}, "other", "not one of"),
        ({"": bytes(32)}, "", "1 to 255 bytes"),
        ({"k" * 256: bytes(32)}, "k" * 256, "1 to 255 bytes"),
    ],
)
def test_a_ring_that_cannot_seal_is_refused(keys: dict[str, bytes], current: str, words: str) -> None:
    """When it is made, with the reason, and without the key in the message."""
    with pytest.raises(ValueError, match=words) as refused:
        AesGcmCipher(keys, current=current)

    assert "short" not in str(refused.value)


# --- whose runs, and what if the file lies


async def test_tenants_never_meet(tmp_path: Path) -> None:
    """Two tenants with equal run ids, reservations and accounts each have their own."""
    path = tmp_path / "runs.db"
    async with SqliteState(path, tenant="a") as a, SqliteState(path, tenant="b") as b:
        author = Author()
        await opened(a, author)
        await a.post("r1", Cancel())

        assert await b.acquire("r1", holder="b", seconds=LONG, create=False) is None
        assert ([], [], [], []) == (
            list(await b.load("r1")), list(await b.evidence("r1")), list(await b.read("r1")), list(await b.runs())
        )  # fmt: skip
        with pytest.raises(KeyError):
            await b.erase("r1")
        with pytest.raises(PortError, match="unknown run"):
            await b.append("r1", 1, 1, "a-2", author.turn())
        assert not await b.renew("r1", 1, seconds=LONG)
        await b.release("r1", 1)
        assert isinstance(await a.acquire("r1", holder="c", seconds=LONG), Busy)
        assert Lease("r1", 1, 0, LONG) == await b.acquire("r1", holder="b", seconds=LONG)
    limits = {("team", "cents"): 5}
    async with SqliteBudgets(path, limits, tenant="a") as a, SqliteBudgets(path, limits, tenant="b") as b:
        assert Reserved() == await a.reserve("x", ["team"], {"cents": 5})
        assert (5, 0, 0) == await b.standing("team", "cents")
        assert Reserved() == await b.reserve("x", ["team"], {"cents": 5})


HOSTILE = (
    b"",
    b"\x80\x04\x95\x1c\x00\x00\x00cposix\nsystem\n\x94\x8c\x04true\x94\x85\x94R\x94.",  # a pickle that runs a command
    b'{"__reduce__":["os.system",["true"]]}',
    b'{"py/object":"os.system"}',
    b'{"turn":{"$type":"subprocess.Popen"},"delivered":[]}',
    b'{"turn":"1","delivered":[]}',
    b'{"turn":1,"delivered":"\xff"}',
    b'{"turn":1,' * 5000,
    b"[" * 100_000,
    b"null",
)


@pytest.mark.parametrize("body", HOSTILE, ids=lambda body: repr(body[:24]))
async def test_what_the_file_holds_is_data(tmp_path: Path, body: bytes) -> None:
    """Hostile bytes in a journal are refused with their place; nothing is imported and nothing is executed."""
    path = tmp_path / "runs.db"
    async with SqliteState(path) as state:
        ports = Ports(model=ScriptedModel([call("add", a=1, b=2), text("3")]), state=state)
        await run_agent(ADDER, "go", ports, run_id="r1", max_turns=1)
        with raw(path) as meddle:
            meddle.execute("UPDATE journal SET body = ? WHERE seq = 2", (body,))
            meddle.execute("UPDATE journal SET kind = 'TurnStarted' WHERE seq = 2")
        before = set(sys.modules)

        with pytest.raises(JournalError, match="entry 2"):
            await resume_agent(ADDER, "r1", ports, max_turns=2)

        assert {"pickle", "subprocess"} >= set(sys.modules) - before


@pytest.mark.parametrize(
    "meddling",
    ["UPDATE journal SET kind = 'os.system' WHERE seq = 2", "UPDATE journal SET schema = 99 WHERE seq = 2"],
)
async def test_a_fact_of_a_newer_release_is_refused(tmp_path: Path, meddling: str) -> None:
    """It is not skipped: the run stays as it is until somebody comes who can read it. Other runs go on."""
    path = tmp_path / "runs.db"
    async with SqliteState(path) as state:
        ports = Ports(model=ScriptedModel([text("hi")]), state=state)
        await run_agent(ADDER, "go", ports, run_id="r1")
        raw_script(path, meddling)

        with pytest.raises(JournalError, match="newer release"):
            await resume_agent(ADDER, "r1", ports)
        assert isinstance(await run_agent(ADDER, "go", ports, run_id="r2"), Completed)


@pytest.mark.case("per-09")
@pytest.mark.parametrize("make", [lambda _: MemoryState(), lambda place: SqliteState(place / "runs.db")])
async def test_what_was_loaded_is_a_copy(tmp_path: Path, make: Callable[[Path], SqliteState]) -> None:
    """Whoever changes an outcome or an input after the fact changes nothing in the store."""
    given = {"order": [1, 2]}
    agent = AgentDefinition("taker", "Take.", input={"type": "object"}, tools=[add])
    state = make(tmp_path)
    ports = Ports(model=ScriptedModel([text("taken")]), state=state)
    await run_agent(agent, given, ports, run_id="r1")
    given["order"].append(3)
    before = told(await state.load("r1"))
    for entry in await state.load("r1"):
        assert isinstance(entry.body, bytes)

    assert b'"input":{"order":[1,2]}' in before[0][2]
    assert before == told(await state.load("r1"))
    if isinstance(state, SqliteState):
        await state.close()


async def test_a_store_that_is_collected_while_another_opens_holds_nobody_up(tmp_path: Path) -> None:
    """The collector may come at any moment, in the thread that holds the lock of all open files."""
    forgotten = SqliteState(tmp_path / "runs.db")
    await forgotten.acquire("r", holder="h", seconds=1.0)
    database = forgotten._database
    assert database is not None

    with sqlite_database._lock:
        del forgotten
        gc.collect()

    async with SqliteState(tmp_path / "runs.db") as again:
        assert isinstance(await again.acquire("another", holder="h", seconds=1.0), Lease)
    await asyncio.to_thread(database.join)


@pytest.mark.promise("N-10")
async def test_what_is_acknowledged_was_synced_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An append, a word and a key commit with synchronous FULL; a lease, which dies with its host, need not."""
    levels: list[int] = []

    class Recording(sqlite3.Connection):
        def execute(self, sql: str, *parameters: object) -> sqlite3.Cursor:  # type: ignore[override]
            if sql == "COMMIT":
                (level,) = super().execute("PRAGMA synchronous").fetchone()
                levels.append(level)
            return super().execute(sql, *parameters)  # type: ignore[arg-type]

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite_database.sqlite3, "connect", lambda *a, **k: connect(*a, factory=Recording, **k))
    author = Author()
    async with SqliteState(tmp_path / "runs.db") as state, SqliteIdempotency(tmp_path / "runs.db") as keys:
        lease = await state.acquire(author.run_id, holder="me", seconds=LONG)
        assert isinstance(lease, Lease)
        leased = [*levels]
        levels.clear()
        await state.append(author.run_id, lease.epoch, 0, "a-1", author.opening())
        await state.post(author.run_id, Steer(UserMessage("hi")))
        await keys.begin("n", "k", "d")

    full, normal = 2, 1
    assert ([normal], [full] * 3) == (leased[-1:], levels[:3])


def test_a_process_that_closes_nothing_leaves_one_whole_file(tmp_path: Path) -> None:
    """At its end the log is moved into the file, so that the file can be copied alone."""
    program = (
        "import asyncio, sys\n"
        "from turnwright_adapters.sqlite import SqliteState\n"
        "state = SqliteState(sys.argv[1])\n"
        "asyncio.run(state.acquire('r1', holder='a', seconds=9))\n"
    )

    ended = subprocess.run([sys.executable, "-c", program, tmp_path / "runs.db"], check=False, timeout=60)

    assert 0 == ended.returncode
    assert ["runs.db"] == [file.name for file in tmp_path.iterdir()]
