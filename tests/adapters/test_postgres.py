"""The Postgres stores beyond their contracts: connections that fail, owners that vanish, content at rest."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from attrs import frozen
from hypothesis import given, settings, strategies as st
from psycopg.abc import Params
from psycopg.sql import SQL, Identifier

from tests.postgres import PASSWORD, conninfo, schema_of, serving
from turnwright import AgentDefinition, Completed, Happened, Outcome, Ports, Suspended, resume_agent, run_agent, tool
from turnwright.errors import MissingExtra, PortError, UnusablePorts
from turnwright.evidence import verify
from turnwright.inbox import Cancel, Steer
from turnwright.messages import UserMessage
from turnwright.ports import Append, Appended, Busy, Committed, Conflict, Fenced, InFlight, Lease, Reserved
from turnwright.testing import ScriptedModel, call, text
from turnwright_adapters.postgres import PostgresBudgets, PostgresIdempotency, PostgresState, state as postgres_state
from turnwright_adapters.postgres.schema import MIGRATIONS
from turnwright_adapters.sealed import AesGcmCipher, new_key
from turnwright_contracts import Author, told

pytestmark = pytest.mark.usefixtures("postgres")

LONG = 3600.0
CANARY = "the-canary-sings"
WRONG = "hunter2-the-wrong-one"
ADDER = AgentDefinition("adder", "You add.")


def state_at(place: Path, **options: object) -> PostgresState:
    """Open the store of *place*."""
    return PostgresState(conninfo(), schema=schema_of(place), **options)  # type: ignore[arg-type]


@contextmanager
def raw(place: Path | None = None) -> Iterator[psycopg.Connection]:
    """Look at the server, or meddle with the schema of *place*, behind the store's back."""
    with psycopg.connect(conninfo(), autocommit=True) as connection:
        if place is not None:
            connection.execute(SQL("SET search_path = {}").format(Identifier(schema_of(place))))
        yield connection


def other(**changes: str) -> str:
    """The address of the server for another user, password, database or options."""
    return psycopg.conninfo.make_conninfo(conninfo(), **changes)  # type: ignore[arg-type]


async def opened(state: PostgresState, author: Author, *, seconds: float = LONG, said: str = "hello") -> None:
    """Take a run and write its first entry."""
    lease = await state.acquire(author.run_id, holder="a", seconds=seconds)
    assert isinstance(lease, Lease)
    await state.append(author.run_id, lease.epoch, 0, "a-1", author.opening(said))


def working_on(place: Path) -> list[threading.Thread]:
    """The threads that talk to the schema of *place* now."""
    return [thread for thread in threading.enumerate() if thread.name == f"turnwright {schema_of(place)}"]


def connected(place: Path) -> int:
    """How many connections the server has that are named for the schema of *place*."""
    with raw() as look:
        found = look.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", (schema_of(place),)
        ).fetchone()
    assert found is not None
    return int(found[0])


# --- the server


@pytest.fixture(scope="module")
def guarded(postgres: str) -> str:
    """A user that needs a password and may not create anything, and a database in another encoding."""
    with raw() as make:
        make.execute(f"CREATE ROLE guarded LOGIN PASSWORD '{PASSWORD}'")
        make.execute("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    return postgres


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"port": "1", "password": WRONG}, "Connection refused"),
        ({"host": "no-such-host.invalid", "password": WRONG}, "no-such-host.invalid"),
        ({"user": "guarded", "password": WRONG}, "password authentication failed"),
        ({"user": "guarded", "password": PASSWORD}, "make the schema and give it to this user"),
        ({"dbname": "nowhere", "password": WRONG}, '"nowhere" does not exist'),
        ({"dbname": "latin", "password": WRONG}, "ENCODING 'UTF8'"),
        ({"options": "-c default_transaction_read_only=on", "password": WRONG}, "read-only"),
    ],
)
@pytest.mark.usefixtures("guarded")
async def test_a_server_that_cannot_be_used_is_told_why_and_never_the_password(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, changes: dict[str, str], words: str
) -> None:
    """The message names the place and what is wrong with it, on every call; no text anywhere holds the password."""
    caplog.set_level(logging.DEBUG)
    async with PostgresState(other(**changes), schema=schema_of(tmp_path)) as state:
        for _ in range(2):
            with pytest.raises(PortError, match=words) as raised:
                await state.acquire("r1", holder="a", seconds=LONG)
            assert "postgresql://" in str(raised.value)
            for secret in (WRONG, PASSWORD):
                assert secret not in f"{raised.value!r} {raised.value.__cause__!r} {state._place!r} {caplog.text}"


async def test_a_server_that_does_not_care_for_a_loss_of_power_is_refused_unless_that_will_do(tmp_path: Path) -> None:
    """Every port refuses it by the names of the settings; what is accepted is what the store then says of itself."""
    with serving(fsync="off", full_page_writes="off") as address:
        for make in (PostgresState, PostgresBudgets, PostgresIdempotency):
            async with make(address) as port:
                for _ in range(2):
                    with pytest.raises(
                        PortError, match=r"fsync = off and full_page_writes = off.*durability='process'"
                    ):
                        await port._ask(lambda connection: connection)

        async with PostgresState(address, durability="process") as state:
            await opened(state, Author())
            assert "process" == state.durability
            with pytest.raises(UnusablePorts, match="requires durability 'power'"):
                await run_agent(ADDER, "1 + 2?", Ports(model=ScriptedModel([]), state=state), require="power")


async def test_a_user_or_a_database_that_does_not_wait_for_the_disk_waits_here(tmp_path: Path) -> None:
    """`synchronous_commit = off` is overruled; a level that waits for more than the own disk is left alone."""
    levels = []
    for level in ("off", "local", "on", "remote_apply"):
        address = other(options=f"-c synchronous_commit={level}")
        async with PostgresState(address, schema=schema_of(tmp_path)) as state:
            levels.append(await state._ask(lambda connection: connection.execute("SHOW synchronous_commit").fetchone()))

    assert [("on",), ("local",), ("on",), ("remote_apply",)] == levels


@pytest.mark.parametrize("conninfo", [f"host=h password={WRONG} nonsense", WRONG, f"password='{WRONG}"])
def test_an_address_that_cannot_be_read_is_not_quoted(conninfo: str) -> None:
    """Who made a mistake in it may have typed the password there."""
    with pytest.raises(ValueError, match="cannot be read") as raised:
        PostgresState(conninfo)

    assert WRONG not in f"{raised.value!r} {raised.value.__cause__!r} {raised.value.__context__!r}"


@pytest.mark.parametrize(
    "options", [{"schema": ""}, {"schema": "s" * 64}, {"schema": "a\0b"}, {"connections": 0}, {"durability": "none"}]
)
def test_names_and_numbers_that_cannot_be_are_refused(options: dict[str, object]) -> None:
    """At once, before anything is connected."""
    with pytest.raises(ValueError, match=r"schema|connections|durability"):
        PostgresState("postgresql://h/d", **options)  # type: ignore[arg-type]


def test_without_its_extra_one_is_told_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package itself says so, when it is imported."""
    monkeypatch.delitem(sys.modules, "turnwright_adapters.postgres")
    monkeypatch.setitem(sys.modules, "psycopg", None)

    with pytest.raises(MissingExtra, match=r"turnwright\[postgres\]"):
        import turnwright_adapters.postgres  # noqa: F401


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        ("UPDATE turnwright SET version = 99", "newer release"),
        ("DROP TABLE turnwright", "something else"),
    ],
)
async def test_a_schema_that_is_not_ours_is_refused(tmp_path: Path, spoil: str, words: str) -> None:
    """One of a newer release, or of another program; and it is left as it is."""
    async with state_at(tmp_path) as state:
        await opened(state, Author())
    with raw(tmp_path) as meddle:
        meddle.execute(spoil.encode())

    async with state_at(tmp_path) as state:
        for _ in range(2):
            with pytest.raises(PortError, match=words):
                await state.load("r1")

    with raw(tmp_path) as look:
        assert (1,) == look.execute("SELECT count(*) FROM runs").fetchone()


async def test_many_processes_may_be_the_first(tmp_path: Path) -> None:
    """Each has connections of its own here; the schema is made once."""
    states = [state_at(tmp_path, connections=number) for number in range(1, 9)]

    await asyncio.gather(*[opened(state, Author(f"r{number}")) for number, state in enumerate(states)])

    assert 8 == len(await states[0].runs())
    await asyncio.gather(*[state.close() for state in states])
    with raw(tmp_path) as look:
        assert [(len(MIGRATIONS),)] == look.execute("SELECT version FROM turnwright").fetchall()


async def test_a_migration_is_whole_or_has_not_been(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that fails at its last statement leaves no schema behind, and the next try makes it."""
    monkeypatch.setattr("turnwright_adapters.postgres.schema.MIGRATIONS", ((*MIGRATIONS[0], "SELECT 1 / 0"),))
    async with state_at(tmp_path) as state:
        with pytest.raises(PortError, match="division by zero"):
            await state.load("r1")
        with raw() as look:
            assert (None,) == look.execute("SELECT to_regnamespace(%s)", (schema_of(tmp_path),)).fetchone()
        monkeypatch.undo()

        await opened(state, Author())

        assert 1 == len(await state.runs())


async def test_a_store_goes_on_after_the_server_hung_up(tmp_path: Path) -> None:
    """The call that meets it is made once more where that is harmless; nothing is lost and nothing doubled."""
    author, schema = Author(), schema_of(tmp_path)
    async with PostgresState(other(application_name=schema), schema=schema) as state:
        await opened(state, author)
        turn = author.turn()
        with raw() as meddle:
            meddle.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = %s", (schema,)
            )

        await state.append("r1", 1, 1, "a-2", turn)

        assert told(author.entries) == told(await state.load("r1"))


@pytest.mark.promise("N-05")
async def test_runs_outlive_a_restart_of_the_server() -> None:
    """One of its processes is killed, and it throws everybody out while it recovers: nobody hears of it.

    Each effect took place once, and each run came to its end.
    """
    sent: list[str] = []
    under_way = asyncio.Event()

    @tool
    async def send(to: str) -> str:
        """Send a letter."""
        sent.append(to)
        if len(sent) == 20:
            under_way.set()
        return to

    writer = AgentDefinition(name="writer", instruction="Write.", tools=[send])

    async def write(state: PostgresState, name: str) -> Outcome[str]:
        script = [*[call("send", to=f"{name}-{number}") for number in range(20)], text("done")]
        return await run_agent(writer, "go", Ports(ScriptedModel(script), state), run_id=name, max_turns=30)

    with serving() as address:
        async with PostgresState(address) as state:
            await state.runs()
            writing = [asyncio.ensure_future(write(state, f"r{number}")) for number in range(4)]
            await asyncio.wait_for(under_way.wait(), 30)
            os.kill(await state._ask(lambda connection: connection.info.backend_pid), signal.SIGKILL)
            ended = await asyncio.wait_for(asyncio.gather(*writing), 60)

    assert [Completed] * 4 == [type(each) for each in ended]
    assert sorted({*sent}) == sorted(sent)
    assert 80 == len(sent)


async def test_a_server_that_was_never_there_is_not_waited_for() -> None:
    """A wrong address is told at once."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        state = PostgresState(f"postgresql://postgres@127.0.0.1:{nobody.getsockname()[1]}/postgres")
        with pytest.raises(PortError, match="refused"):
            await asyncio.wait_for(state.load("r1"), 5)
        await state.close()


@pytest.mark.parametrize(("changes", "seconds"), [({}, "30"), ({"keepalives_idle": "7"}, "7")])
async def test_a_host_that_vanished_is_noticed_within_a_bound(
    tmp_path: Path, changes: dict[str, str], seconds: str
) -> None:
    """Nobody waits for ever on a connection that says nothing any more; whoever knows better says so."""
    async with PostgresState(other(**changes), schema=schema_of(tmp_path)) as state:
        said = await state._ask(lambda connection: connection.info.get_parameters())

    assert (seconds, "10", "3", "60000") == (
        *(said["keepalives_idle"], said["keepalives_interval"], said["keepalives_count"], said["tcp_user_timeout"]),
    )


async def test_a_call_waits_for_a_free_connection_within_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where another program holds a lock, the call ends and says so, and the store is of use again."""
    monkeypatch.setattr("turnwright_adapters.postgres.database.WAIT_SECONDS", 0.2)
    author = Author()
    async with state_at(tmp_path, connections=1) as state:
        await opened(state, author)
        with raw(tmp_path) as meddle, meddle.transaction():
            meddle.execute("SELECT * FROM runs FOR UPDATE")
            told_why = await asyncio.gather(
                *[state.renew("r1", 1, seconds=LONG) for _ in range(2)], return_exceptions=True
            )

        assert {PortError} == {type(answer) for answer in told_why}
        assert any(["lock timeout" in str(answer) for answer in told_why])
        assert await state.renew("r1", 1, seconds=LONG)


# --- who is on it


async def test_nothing_runs_on_after_the_last_user_is_gone(tmp_path: Path) -> None:
    """Ports on one schema share a thread; with the last of them, closed or forgotten, it ends and hangs up."""
    schema = schema_of(tmp_path)
    address = other(application_name=schema)
    state, forgotten = PostgresState(address, schema=schema), PostgresState(address, schema=schema)
    keys = PostgresIdempotency(address, schema=schema)
    assert [] == working_on(tmp_path)
    await state.load("r1")
    await forgotten.load("r1")
    await keys.begin("a", "k", "d")
    await state.close()
    await state.close()
    with pytest.raises(PortError, match="closed"):
        await state.load("r1")
    del forgotten
    gc.collect()
    assert isinstance(await keys.begin("a", "k", "d"), InFlight)
    assert (1, True) == (len(working_on(tmp_path)), connected(tmp_path) > 0)

    await keys.close()

    assert ([], 0) == (working_on(tmp_path), connected(tmp_path))


async def test_a_forgotten_store_ends_by_itself(tmp_path: Path) -> None:
    """Whoever makes a store for each engine and never closes it leaves no thread behind."""
    state = state_at(tmp_path)
    await opened(state, Author())
    (thread,) = working_on(tmp_path)

    del state
    gc.collect()

    await asyncio.to_thread(thread.join, 10)
    assert [] == working_on(tmp_path)


@pytest.mark.promise("T-10")
async def test_a_cancelled_call_stops_its_statement(tmp_path: Path) -> None:
    """Nobody waits on the server for what nobody waits for here; close does not wait for it either."""
    async with state_at(tmp_path, connections=1) as state:
        await opened(state, Author())
        with raw(tmp_path) as meddle, meddle.transaction():
            meddle.execute("SELECT * FROM runs FOR UPDATE")
            waiting = asyncio.ensure_future(state.renew("r1", 1, seconds=LONG))
            await asyncio.to_thread(somebody_waits, meddle)
            waiting.cancel()

            async with asyncio.timeout(5):  # half of what the statement would have waited
                assert 1 == len(await state.runs())  # on the one connection there is


def somebody_waits(look: psycopg.Connection, number: int = 1) -> None:
    """Return when so many statements wait for a lock."""
    until(lambda: look.execute("SELECT FROM pg_locks WHERE NOT granted").rowcount >= number)


def until(condition: Callable[[], bool]) -> None:
    """Return when it holds; it asks the server each time."""
    for _ in range(10_000):
        if condition():
            return
    raise AssertionError("it never came to hold")


def test_loops_in_several_threads_share_a_store(tmp_path: Path) -> None:
    """Each gets its own answers."""
    state = state_at(tmp_path)
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
    """A lease that was written under a later time stays as long as it was promised."""
    async with state_at(tmp_path) as state:
        await opened(state, Author(), seconds=30)
        with raw(tmp_path) as meddle:  # as if the server's clock had been 600 s ahead when the lease was written
            meddle.execute("UPDATE runs SET clock = clock + 600, expires = expires + 600")

        assert Busy(30) == await state.acquire("r1", holder="b", seconds=30)
        assert await state.renew("r1", 1, seconds=40)
        assert Busy(40) == await state.acquire("r1", holder="b", seconds=30)
        with raw(tmp_path) as meddle:
            meddle.execute("UPDATE runs SET expires = clock")
        assert Lease("r1", 2, 1, 30, 1) == await state.acquire("r1", holder="b", seconds=30)
        assert Busy(30) == await state.acquire("r1", holder="c", seconds=30)


# --- many at once


@pytest.fixture
async def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Held]:
    """A store whose appends queue up behind one to run `r0`, while somebody has locked the journal."""
    monkeypatch.setattr("turnwright_adapters.postgres.database.WAIT_SECONDS", 1.0)
    async with state_at(tmp_path) as state:
        authors = [Author(f"r{number}") for number in range(20)]
        for author in authors:
            await opened(state, author)
        with raw(tmp_path) as meddle, raw() as look:
            meddle.execute("BEGIN; LOCK TABLE journal IN EXCLUSIVE MODE")
            first = asyncio.ensure_future(state.append("r0", 1, 1, "a-2", authors[0].turn()))
            await asyncio.to_thread(somebody_waits, look)
            yield Held(state, authors, first, meddle)


@frozen
class Held:
    """The store, who writes to it, the append that the others wait for, and the connection that holds it up."""

    state: PostgresState
    authors: list[Author]
    first: asyncio.Future[Append]
    meddle: psycopg.Connection

    def append(self, author: Author, name: str = "a-2", expected: int = 1) -> asyncio.Future[Append]:
        """Begin to append a turn, and let it queue up."""
        return asyncio.ensure_future(self.state.append(author.run_id, 1, expected, name, author.turn()))

    async def let_go(self) -> None:
        """Let the first append be made, and then the others, which have come by then."""
        await asyncio.sleep(0)
        self.meddle.execute("COMMIT")
        await self.first


async def test_what_queued_up_is_committed_together(held: Held) -> None:
    """Of 20 appends, all but the first go in one transaction, and each run has its own entries."""
    appends = [held.append(author) for author in held.authors[1:]]
    await held.let_go()

    assert {Appended(1 + len(held.authors[0].entries[1:]))} == {*await asyncio.gather(*appends)}
    assert (2,) == held.meddle.execute("SELECT count(DISTINCT xmin::text) FROM journal WHERE seq > 1").fetchone()
    for author in held.authors:
        assert told(author.entries) == told(await held.state.load(author.run_id))


async def test_of_two_appends_to_one_place_that_go_together_one_is_made(held: Held) -> None:
    """The other one learns why not; one that was sent twice is made once, and acknowledged twice."""
    turn, other_turn = held.authors[1].turn(), Author("r1").turn()
    asked = [("a-2", turn), ("a-2", turn), ("b-2", other_turn)]
    appends = [asyncio.ensure_future(held.state.append("r1", 1, 1, name, facts)) for name, facts in asked]
    await held.let_go()

    made = 1 + len(turn)
    first, again, late = await asyncio.gather(*appends)
    assert {(Appended(made), Appended(made), Conflict(made)), (Conflict(made), Conflict(made), Appended(made))} >= {
        (first, again, late)
    }
    assert made == len(await held.state.load("r1"))


async def test_of_appends_that_go_together_only_the_culprit_fails(held: Held) -> None:
    """One to a run that is not there, by an owner of old, to a run that is locked, and with an id that is no text."""
    authors = [Author("nobody"), *held.authors[1:4], Author("\ud800")]
    with raw() as other:
        other.execute(SQL("SET search_path = {}").format(Identifier(held.state._place.schema)))
        other.execute("UPDATE runs SET epoch = 2 WHERE run_id = 'r1'")
        other.execute("BEGIN; SELECT FROM runs WHERE run_id = 'r2' FOR UPDATE")
        appends = [held.append(author) for author in authors]
        await held.let_go()
        unknown, fenced, locked, made, odd = await asyncio.gather(*appends, return_exceptions=True)

    assert (Fenced(2), Appended(len(authors[3].entries))) == (fenced, made)
    for error, words in ((unknown, "unknown run 'nobody'"), (locked, "lock timeout")):
        assert isinstance(error, PortError) and words in str(error)
    assert isinstance(odd, UnicodeEncodeError)
    assert 1 == len(await held.state.load("r2"))


async def test_a_run_that_somebody_holds_up_holds_up_no_other(tmp_path: Path) -> None:
    """Its own append waits, by itself, and is made when it can be."""
    async with state_at(tmp_path) as state:
        authors = [Author(f"r{number}") for number in range(3)]
        for author in authors:
            await opened(state, author)
        with raw(tmp_path) as meddle, raw() as look:
            meddle.execute("BEGIN; SELECT FROM runs WHERE run_id = 'r0' FOR UPDATE")
            appends = [asyncio.ensure_future(state.append(each.run_id, 1, 1, "a-2", each.turn())) for each in authors]
            others = await asyncio.gather(*appends[1:])
            await asyncio.to_thread(somebody_waits, look)
            waits = not appends[0].done()
            meddle.execute("COMMIT")

            assert (True, {Appended(len(authors[0].entries))}) == (waits, {*others, await appends[0]})


async def test_what_queued_up_is_done_before_the_end(held: Held) -> None:
    """A store that is closed while appends wait makes them all."""
    appends = [held.append(author) for author in held.authors[1:]]
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(held.state.close())
    await asyncio.sleep(0)
    held.meddle.execute("COMMIT")
    await closing

    assert {Appended} == {type(answer) for answer in await asyncio.gather(held.first, *appends)}


STATEMENTS = (
    (postgres_state.APPEND, {"said": b"[]", "bodies": b""}),
    (postgres_state.APPEND_ALONE, {"said": b"[]", "bodies": b""}),
    (postgres_state.READ_INBOXES, (b"[]",)),
    (postgres_state.READ_JOURNAL, ("", "r1", 0)),
    (postgres_state.READ_EVIDENCE, ("", "r1", 0)),
    (postgres_state.TAKE, {"tenant": "", "run_id": "r1", "holder": "a", "seconds": 1.0}),
    (postgres_state.RENEW, {"tenant": "", "run_id": "r1", "epoch": 1, "seconds": 1.0}),
)


@pytest.mark.parametrize(("statement", "values"), STATEMENTS)
async def test_no_statement_reads_more_rows_than_it_is_about(
    tmp_path: Path, statement: LiteralString, values: Params
) -> None:
    """Its plan holds while a table grows, also one that was made when the table was empty."""

    def explained(connection: psycopg.Connection) -> str:
        return "\n".join([line for (line,) in connection.execute("EXPLAIN " + statement, values).fetchall()])

    async with state_at(tmp_path) as state:
        plan = await state._ask(explained)

    assert "Index" in plan
    assert "Seq Scan" not in plan


async def test_threads_with_nothing_to_do_hang_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a burst one of them stays, with its connection."""
    monkeypatch.setattr("turnwright_adapters.postgres.database.IDLE_SECONDS", 0.01)
    schema = schema_of(tmp_path)
    async with PostgresState(other(application_name=schema), schema=schema) as state:
        await opened(state, Author())
        with raw(tmp_path) as meddle:
            meddle.execute("BEGIN; SELECT FROM runs FOR UPDATE")
            renewals = [asyncio.ensure_future(state.renew("r1", 1, seconds=LONG)) for _ in range(4)]
            with raw() as look:
                await asyncio.to_thread(somebody_waits, look, 4)
            meddle.execute("COMMIT")
            assert [True] * 4 == await asyncio.gather(*renewals)

        await asyncio.to_thread(until, lambda: (1, 1) == (connected(tmp_path), len(working_on(tmp_path))))
        assert await state.renew("r1", 1, seconds=LONG)


# --- what it holds


@settings(max_examples=40)  # each connects
@given(st.lists(st.text(st.sampled_from("\0\\0a") | st.characters(exclude_categories=["Cs"])), min_size=1, max_size=3))
async def test_every_text_is_kept_as_it_is(ids: list[str]) -> None:
    """Also NUL, which Postgres has no place for, and what stands for it; none is taken for another."""
    keys = PostgresIdempotency(conninfo(), schema="texts")
    for name in ids:
        await keys.begin("n" + name, name, "d" + name)
        await keys.commit("n" + name, name, name)
    assert [Committed(name) for name in ids] == [await keys.begin("n" + name, name, "d" + name) for name in ids]
    await keys.close()


async def test_runs_keys_and_accounts_live_in_one_schema(tmp_path: Path) -> None:
    """The three ports share a schema and its connections, and a run uses all of them."""

    @tool(key=lambda arguments: str(arguments["cents"]), cost={"cents": 5})
    def pay(cents: int) -> str:
        """Pay."""
        return f"paid {cents}"

    agent = AgentDefinition("payer", "Pay.", tools=[pay])
    schema = schema_of(tmp_path)
    async with (
        PostgresState(conninfo(), schema=schema) as state,
        PostgresIdempotency(conninfo(), schema=schema) as keys,
        PostgresBudgets(conninfo(), {("team", "cents"): 9, ("team", "requests"): 100}, schema=schema) as budgets,
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
        assert ["paid 5", "paid 5"] == [message.text for message in ended.transcript if message.role == "tool"]


@pytest.mark.promise("N-11")
async def test_accounts_in_any_order_never_wait_in_a_circle(tmp_path: Path) -> None:
    """Forty reservations over two scopes, named in either order, settled and released at once: none fails."""
    limits = {("a", "cents"): 100, ("b", "cents"): 100}
    async with PostgresBudgets(conninfo(), limits, schema=schema_of(tmp_path)) as budgets:

        async def spend(number: int) -> None:
            scopes = ["a", "b"] if number % 2 else ["b", "a"]
            assert Reserved() == await budgets.reserve(f"e{number}", scopes, {"cents": 2})
            await (budgets.settle(f"e{number}", {"cents": 1}) if number % 4 else budgets.release(f"e{number}"))

        await asyncio.gather(*[spend(number) for number in range(40)])

        assert [(100, 30, 0)] * 2 == [await budgets.standing(scope, "cents") for scope in "ab"]


@pytest.mark.promise("N-04")
async def test_an_erased_run_is_found_by_no_query(tmp_path: Path) -> None:
    """The evidence still verifies, and the other run is whole."""
    author, second = Author("r1"), Author("r2")
    async with state_at(tmp_path) as state:
        for each in (author, second):
            await opened(state, each, said=CANARY if each is author else "something else")
            await state.post(each.run_id, Steer(UserMessage(CANARY if each is author else "left")))
        assert CANARY in everything_in(tmp_path)

        await state.erase("r1")

        assert CANARY not in everything_in(tmp_path)
        assert author.entries[-1].item[-1] == verify(await state.evidence("r1"))
        assert told(second.entries) == told(await state.load("r2"))
        assert 1 == len(await state.read("r2"))


def everything_in(place: Path) -> str:
    """All rows of all tables that hold content."""
    with raw(place) as look:
        return " ".join(
            [
                bytes(body or b"").decode(errors="replace")
                for query in ("SELECT body FROM journal", "SELECT body FROM inbox", "SELECT result FROM idempotency")
                for (body,) in look.execute(query.encode()).fetchall()
            ]
        )


@pytest.mark.promise("N-04")
async def test_a_store_may_keep_evidence_alone(tmp_path: Path) -> None:
    """With content dropped no body stays, and a word goes with the entry that folds it."""
    model = ScriptedModel([text("hi, " + CANARY)])
    async with state_at(tmp_path, content="drop") as state:
        ended = await run_agent(AgentDefinition("a", "Talk."), CANARY, Ports(model=model, state=state), run_id="r1")

        assert isinstance(ended, Completed)
        assert CANARY not in everything_in(tmp_path)
        assert ended.evidence_head == verify(await state.evidence("r1"))


@pytest.mark.promise("N-04")
async def test_sealed_content_is_unreadable_in_the_tables(tmp_path: Path) -> None:
    """Journal, inbox and results of keys are sealed, bound to their places; evidence is not, as it has no content."""
    cipher = AesGcmCipher({"k": new_key()}, current="k")
    author = Author()
    schema = schema_of(tmp_path)
    async with (
        PostgresState(conninfo(), schema=schema, cipher=cipher) as state,
        PostgresIdempotency(conninfo(), schema=schema, cipher=cipher) as keys,
    ):
        await opened(state, author, said=CANARY)
        await state.append("r1", 1, 1, "a-2", author.turn(CANARY))
        await state.post("r1", Steer(UserMessage(CANARY)))
        await keys.begin("acme/pay", "k", "d")
        await keys.commit("acme/pay", "k", CANARY)
        assert CANARY not in everything_in(tmp_path)
        assert told(author.entries) == told(await state.load("r1"))
        assert Committed(CANARY) == await keys.begin("acme/pay", "k", "d")

        with raw(tmp_path) as meddle:
            meddle.execute("UPDATE journal SET body = (SELECT body FROM journal WHERE seq = 3) WHERE seq = 2")

        with pytest.raises(PortError, match="changed or moved"):
            await state.load("r1")


@pytest.mark.promise("N-04")
async def test_a_word_that_the_owner_of_a_run_could_not_read_is_refused(tmp_path: Path) -> None:
    """It would keep the run from ever going on; whoever says it is told to use a store like the run's own."""
    cipher = AesGcmCipher({"k": new_key()}, current="k")
    async with state_at(tmp_path) as plain, state_at(tmp_path, cipher=cipher) as sealed:
        await opened(plain, Author("plain"))
        await opened(sealed, Author("sealed"))

        with pytest.raises(PortError, match="'sealed' is sealed, and this store has no cipher"):
            await plain.post("sealed", Cancel())
        with pytest.raises(PortError, match="'plain' is not sealed, and this store seals"):
            await sealed.post("plain", Cancel())
        assert [1, 1] == [await plain.post("plain", Cancel()), await sealed.post("sealed", Cancel())]


async def test_tenants_never_meet(tmp_path: Path) -> None:
    """Two tenants with equal run ids, reservations and accounts each have their own."""
    async with state_at(tmp_path, tenant="a") as a, state_at(tmp_path, tenant="b") as b:
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
    limits, schema = {("team", "cents"): 5}, schema_of(tmp_path)
    async with (
        PostgresBudgets(conninfo(), limits, tenant="a", schema=schema) as a_budgets,
        PostgresBudgets(conninfo(), limits, tenant="b", schema=schema) as b_budgets,
    ):
        assert Reserved() == await a_budgets.reserve("x", ["team"], {"cents": 5})
        assert (5, 0, 0) == await b_budgets.standing("team", "cents")
        assert Reserved() == await b_budgets.reserve("x", ["team"], {"cents": 5})


@pytest.mark.case("per-11")
async def test_what_was_said_has_one_identity_at_every_load(tmp_path: Path) -> None:
    """Calls are named by run, turn and place before anything is written; two loads, by two owners, are equal."""

    @tool(approval="required")
    def pay(cents: int) -> str:
        """Pay."""
        return f"paid {cents}"

    agent = AgentDefinition("payer", "Pay.", tools=[pay])
    model = ScriptedModel([call("pay", cents=5), text("done")])
    async with state_at(tmp_path) as state:
        waiting = await run_agent(agent, "go", Ports(model=model, state=state), run_id="r1")
        assert isinstance(waiting, Suspended)
        first = await state.load("r1")
    async with state_at(tmp_path, connections=2) as again:
        assert told(first) == told(await again.load("r1"))
        (pending,) = waiting.pending

        ended = await resume_agent(
            agent, "r1", Ports(model=model, state=again), decisions={pending.effect_id: "approve"}
        )

        assert isinstance(ended, Completed)
        assert waiting.transcript == ended.transcript[: len(waiting.transcript)]


@pytest.mark.case("app-06")
@pytest.mark.parametrize(
    ("answer", "heard"), [(0, "0"), (False, "false"), ("", ""), (None, "null"), ([], "[]"), ({}, "{}")]
)
async def test_an_answer_that_is_false_is_an_answer(tmp_path: Path, answer: object, heard: str) -> None:
    """Who was asked what came of an effect, and says 0 or nothing, was heard: the model gets exactly that."""
    entered = asyncio.Event()

    @tool
    async def count() -> object:
        """Count."""
        entered.set()
        return await asyncio.get_running_loop().create_future()

    agent = AgentDefinition("counter", "Count.", tools=[count])
    async with state_at(tmp_path) as state:
        ports = Ports(model=ScriptedModel([call("count"), text("done")]), state=state)
        cut_off = asyncio.ensure_future(run_agent(agent, "go", ports, run_id="r1"))
        await entered.wait()
        cut_off.cancel()
        await asyncio.wait([cut_off])
        waiting = await run_agent(agent, "go", ports, run_id="r1")
        assert isinstance(waiting, Suspended)
        (pending,) = waiting.pending

        ended = await resume_agent(agent, "r1", ports, resolutions={pending.effect_id: Happened(answer)})

        assert isinstance(ended, Completed)
        assert [heard] == [message.text for message in ended.transcript if message.role == "tool"]


def test_a_process_that_closes_nothing_ends_quietly(tmp_path: Path) -> None:
    """It warns of nothing, and what its loop cut off at the end was taken back."""
    program = (
        "import asyncio, sys\n"
        "from turnwright_adapters.postgres import PostgresState\n"
        "state = PostgresState(sys.argv[1], schema=sys.argv[2])\n"
        "async def main():\n"
        "    await state.acquire('r1', holder='a', seconds=9)\n"
        "    cut_off = asyncio.ensure_future(state.acquire('r2', holder='a', seconds=9))\n"
        "    await asyncio.sleep(0)\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-X", "dev", "-c", program, conninfo(), schema_of(tmp_path)]

    ended = subprocess.run(command, check=False, timeout=60, capture_output=True, text=True)

    assert (0, "") == (ended.returncode, ended.stderr)
    with psycopg.connect(conninfo()) as look:
        left = look.execute(SQL("SELECT run_id FROM {}.runs").format(Identifier(schema_of(tmp_path)))).fetchall()
    assert [("r1",)] == left
