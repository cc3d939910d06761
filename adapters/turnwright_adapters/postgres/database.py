"""One Postgres schema and the thread that talks to it, shared by all ports of this process that name both.

Rule: every connection lives in a loop of its own, in that thread, so a port belongs to nobody's loop and outlives each.
An order is a coroutine function of a connection. It is one statement, or a transaction that it opens itself; it runs at
READ COMMITTED and relies on conditions, row locks and unique keys alone.

What libpq says about a connection names host, port, database and user, and never the password; neither do we.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Final, Self, TypeAlias, TypeVar

import psycopg
import psycopg_pool
from attrs import field, frozen
from psycopg import AsyncConnection, IsolationLevel
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow

from turnwright.errors import PortError
from turnwright_adapters.postgres.schema import migrate
from turnwright_adapters.postgres.texts import speak_text

__all__ = ["OnServer"]

T = TypeVar("T")

Pool: TypeAlias = psycopg_pool.AsyncConnectionPool[AsyncConnection[TupleRow]]
Order: TypeAlias = Callable[[AsyncConnection], Awaitable[T]]

WAIT_SECONDS: Final = 10.0
"""How long an order waits for a connection, and a statement for a lock that another one holds."""
STATEMENT_SECONDS: Final = 60.0
"""How long a statement may take."""
GOODBYE_SECONDS: Final = 5.0
"""How long the end of a port, and of the process, waits for what is still on its way."""

SETTINGS: Final = """
SELECT set_config('search_path', quote_ident(%(schema)s), false),
       set_config('lock_timeout', %(wait)s, false),
       set_config('statement_timeout', %(statement)s, false),
       set_config('idle_in_transaction_session_timeout', %(wait)s, false),
       -- An acknowledged append is on the disk; a server that waits for more than its own goes on doing so.
       CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', false) END
"""


@frozen
class Place:
    """A database, as libpq is told of it, and a schema of it."""

    conninfo: str = field(repr=False)
    schema: str
    connections: int

    def __str__(self) -> str:
        """Name it, without the password and without whatever else the caller has put there."""
        said = conninfo_to_dict(self.conninfo)
        host = said.get("host") or said.get("hostaddr") or ""
        port = f":{said['port']}" if said.get("port") else ""
        return f"postgresql://{host}{port}/{said.get('dbname') or ''} (schema {self.schema})"


class OnServer:
    """A port on a Postgres schema: it connects at first use, and hangs up when it is closed or forgotten.

    It belongs to no event loop: any number of loops may use it, one after another or at the same time. *conninfo* is
    a URL or what else libpq takes; what it leaves out libpq reads from its environment and files, as it does for
    `psql`. Ports of one process with the same *conninfo*, *schema* and *connections* share their connections, of which
    there are so many at most. The schema and its tables are made at first use. A pooler between must keep sessions.
    """

    def __init__(self, conninfo: str, *, schema: str = "turnwright", connections: int = 8) -> None:
        if connections < 1:
            raise ValueError(f"connections is 1 or more, not {connections}")
        if not schema or "\0" in schema or len(schema.encode()) > 63:
            raise ValueError(f"the name of a schema has 1 to 63 bytes, not like {schema[:80]!r}")
        if not _readable(conninfo):
            raise ValueError("conninfo cannot be read; write postgresql://user@host:port/database")
        self._place = Place(conninfo, schema, connections)
        self._server: Server | None = None
        self._forgotten: weakref.finalize[[], OnServer] | None = None
        self._closed = False

    async def close(self) -> None:
        """Finish what was asked for and hang up. Harmless when repeated; afterwards every call fails."""
        self._closed = True
        server, self._server = self._server, None
        if server is not None:
            assert self._forgotten is not None
            self._forgotten.detach()
            if server.leave():
                await asyncio.to_thread(server.join)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def _ask(self, order: Order[T]) -> asyncio.Future[T]:
        """Do *order*. Cancelling stops the statement too; whether it was done is then unknown."""
        return asyncio.wrap_future(self._connected().ask(order))

    async def _take(self, take: Order[T], undo: Callable[[AsyncConnection, T], Awaitable[None]]) -> T:
        """Do *take*; if nobody waits for what it took any more, do *undo* before anything else is done."""
        server = self._connected()
        answer = server.ask(take)
        try:
            return await asyncio.shield(asyncio.wrap_future(answer))
        except asyncio.CancelledError:
            server.undo(answer, undo)
            raise

    def _connected(self) -> Server:
        if self._server is None:
            if self._closed:
                raise PortError(f"{type(self).__name__} on {self._place} is closed; make another one")
            self._server = Server.at(self._place)
            self._forgotten = weakref.finalize(self, self._server.forget)
            self._forgotten.atexit = False
        return self._server


class Server:
    """The connections to one place, and the loop that serves them. `leave` it as often as it was given out by `at`."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._users = 0
        self._pool: Pool | None = None
        self._orders: set[asyncio.Future[object]] = set()
        self._undoing: set[concurrent.futures.Future[None]] = set()
        self._there = Event()
        self._thread = Thread(target=self._serve, name=f"turnwright {place.schema}", daemon=True)

    @staticmethod
    def at(place: Place) -> Server:
        """The server of this process for *place*, which counts one more user."""
        with _lock:
            server = _servers.get(place)
            if server is None:
                server = _servers[place] = Server(place)
                server._thread.start()
                server._there.wait()
            server._users += 1
            return server

    def leave(self) -> bool:
        """One user less; with the last one the server ends. Whether it does."""
        with _lock:
            self._users -= 1
            if self._users:
                return False
            if _servers.get(self._place) is self:
                del _servers[self._place]
        self.end()
        return True

    def forget(self) -> None:
        """`leave`, for the garbage collector, which may call at any moment, in a thread that holds our lock too."""
        with suppress(RuntimeError):  # the loop ended with the process
            self._loop.call_soon_threadsafe(self.leave)

    def end(self) -> None:
        """Let what was asked for be done, then hang up."""
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._ended.set)

    def join(self) -> None:
        """Wait for the end, within a bound."""
        self._thread.join(2 * GOODBYE_SECONDS)

    def ask(self, order: Order[T]) -> concurrent.futures.Future[T]:
        """Start *order*, to be done after everything that is being undone."""
        with _lock:
            before = list(self._undoing)

        async def ask() -> T:
            if before:
                await asyncio.wait([asyncio.wrap_future(each) for each in before])
            return await self._perform(order)

        return asyncio.run_coroutine_threadsafe(ask(), self._loop)

    def undo(self, answer: concurrent.futures.Future[T], undo: Callable[[AsyncConnection, T], Awaitable[None]]) -> None:
        """Undo what *answer* took, or will have taken. What cannot be undone because the server is gone stays."""

        async def give_back() -> None:
            with suppress(Exception):
                taken = await asyncio.wrap_future(answer)
                await self._perform(lambda connection: undo(connection, taken))

        undoing = asyncio.run_coroutine_threadsafe(give_back(), self._loop)
        with _lock:
            self._undoing.add(undoing)
        undoing.add_done_callback(self._undoing.discard)

    # --- in the thread

    def _serve(self) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._until_the_end())

    async def _until_the_end(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._opening = asyncio.Lock()
        self._there.set()
        await self._ended.wait()
        undoing = [asyncio.wrap_future(each) for each in self._undoing.copy()]
        with suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_SECONDS):
                await asyncio.gather(*self._orders, *undoing, return_exceptions=True)
        if self._pool is not None:
            await self._pool.close(GOODBYE_SECONDS)

    async def _perform(self, order: Order[T]) -> T:
        """Do *order* on a connection of its own."""
        task = asyncio.current_task()
        assert task is not None
        self._orders.add(task)
        try:
            pool = self._pool or await self._opened()
            try:
                async with pool.connection() as connection:
                    return await order(connection)
            except psycopg.OperationalError:
                await pool.check()  # if the server went away, all the others have lost it as well
                raise
        except psycopg_pool.PoolTimeout as error:
            raise PortError(
                f"{self._place}: no connection within {WAIT_SECONDS:g} s; the server cannot be reached, "
                f"or all {self._place.connections} connections are busy"
            ) from error
        except psycopg.errors.ReadOnlySqlTransaction as error:
            raise _read_only(self._place) from error
        except psycopg.errors.InsufficientPrivilege as error:
            raise PortError(
                f"{self._place}: {_line(error)}; let this user create it, or make the schema and give it to this user"
            ) from error
        except (psycopg.Error, OSError) as error:
            raise PortError(f"{self._place}: {_line(error)}") from error
        finally:
            self._orders.discard(task)

    async def _opened(self) -> Pool:
        """Connect once by hand, because the pool keeps to itself why it cannot, then open the pool."""
        async with self._opening:
            if self._pool is None:
                said = conninfo_to_dict(self._place.conninfo)
                conninfo = make_conninfo(self._place.conninfo, connect_timeout=said.get("connect_timeout", 10))
                async with await AsyncConnection.connect(conninfo, autocommit=True) as connection:
                    await self._configure(connection)
                    await self._welcome(connection)
                pool = psycopg_pool.AsyncConnectionPool(
                    conninfo,
                    connection_class=AsyncConnection[TupleRow],
                    kwargs={"autocommit": True},
                    configure=self._configure,
                    min_size=1,
                    max_size=self._place.connections,
                    timeout=WAIT_SECONDS,
                    name=f"turnwright {self._place.schema}",
                    open=False,
                )
                await pool.open()
                self._pool = pool
            return self._pool

    async def _configure(self, connection: AsyncConnection) -> None:
        speak_text(connection)
        await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
        seconds = {"wait": f"{WAIT_SECONDS:g}s", "statement": f"{STATEMENT_SECONDS:g}s"}
        await connection.execute(SETTINGS, {"schema": self._place.schema, **seconds})

    async def _welcome(self, connection: AsyncConnection) -> None:
        asked = await connection.execute(
            "SELECT current_setting('server_encoding'), current_setting('transaction_read_only')"
        )
        encoding, read_only = await asked.fetchone() or ("", "")
        if encoding != "UTF8":
            raise PortError(f"{self._place}: the database is in {encoding}; create one with ENCODING 'UTF8'")
        if read_only == "on":
            raise _read_only(self._place)
        await migrate(connection, self._place.schema, str(self._place))


_lock = Lock()
_servers: dict[Place, Server] = {}


@atexit.register
def _hang_up() -> None:
    """Let what was asked for be done before the process ends."""
    with _lock:
        servers = list(_servers.values())
    for server in servers:
        server.end()
    for server in servers:
        server.join()


def _readable(conninfo: str) -> bool:
    """Whether libpq can read it. What it says of one that it cannot quotes it with the password, so it is not told."""
    try:
        make_conninfo(conninfo)
    except psycopg.ProgrammingError:
        return False
    return True


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _read_only(place: Place) -> PortError:
    return PortError(f"{place}: the server is read-only; name the primary, or let this user and database write")
