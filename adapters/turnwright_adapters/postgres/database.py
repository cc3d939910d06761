"""One Postgres schema and the threads that talk to it, shared by all ports of this process that name both.

Rule: a thread has one connection and does one order at a time on it, so a port belongs to nobody's loop and outlives
each. There are as many threads as orders at once, up to a bound, and those with nothing to do end. An order is a
function of a connection. It is one statement, or a transaction that it opens itself; it runs at READ COMMITTED and
relies on conditions, row locks and unique keys alone. Orders of one kind may be done together: all those that came
while the last were on their way go as one statement, and so share its round trip and its sync.

A server that restarts is waited for, within the patience of an order; and an order whose connection it took along is
done once more where that changes nothing: what asks for a lease, a key or a place in an inbox fails instead, since
nobody knows whether it got it.

The connections are synchronous, because waiting for an answer in C, in a thread of its own, takes half of the
processor time that an event loop's two wake-ups take.

What libpq says about a connection names host, port, database and user, and never the password; neither do we.
"""

from __future__ import annotations

import asyncio
import atexit
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread, current_thread
from time import monotonic, sleep
from typing import ClassVar, Final, Self, TypeAlias, TypeVar, cast

import psycopg
from attrs import define, field, frozen
from psycopg import Connection, IsolationLevel
from psycopg.abc import ConnDict
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import PGconn, Ping

from turnwright.definition import Durability
from turnwright.errors import PortError
from turnwright_adapters._orders import Order, tell
from turnwright_adapters.postgres.schema import migrate
from turnwright_adapters.postgres.texts import speak_text

__all__ = ["Alone", "OnServer"]

T = TypeVar("T")
P = TypeVar("P")


@frozen
class Alone:
    """Says of one of many that *work* is to be done for it alone, since that may take its time."""

    work: Callable[[Connection], object]


Together: TypeAlias = Callable[[Connection, Sequence[P]], Sequence[T | Alone | Exception]]
"""Work that is done for many at once. It may be repeated: what was done already is answered as it was then."""

WAIT_SECONDS: Final = 10.0
"""How long an order waits for a connection, and a statement for a lock that another one holds."""
STATEMENT_SECONDS: Final = 60.0
"""How long a statement may take."""
GROUP: Final = 64
"""How many orders are done together."""
IDLE_SECONDS: Final = 60.0
"""How long a thread waits for something to do before it hangs up; one of them stays."""
PATIENCE: Final[ConnDict] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""How libpq finds that a server cannot be reached, or that its host is gone, unless the caller says otherwise."""
GOODBYE_SECONDS: Final = 5.0
"""How long the end of a port, and of the process, waits for what is still on its way."""

SETTINGS: Final = """
SELECT set_config('search_path', quote_ident(%(schema)s), false),
       set_config('lock_timeout', %(wait)s, false),
       set_config('statement_timeout', %(statement)s, false),
       set_config('idle_in_transaction_session_timeout', %(wait)s, false),
       -- Every statement finds its rows by an index; a plan that was made while there were few would read them all.
       set_config('enable_seqscan', 'off', false),
       set_config('jit', 'off', false),
       -- An acknowledged append is on the disk; a server that waits for more than its own goes on doing so.
       CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', false) END
"""

OFF: Final = """
SELECT string_agg(name || ' = off', ' and ' ORDER BY name) FROM pg_settings
WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off'
"""
"""With any of these off, a server loses what it acknowledged, or all it has, when the power fails."""


@frozen
class Place:
    """A database, as libpq is told of it, and a schema of it."""

    conninfo: str = field(repr=False)
    schema: str
    connections: int
    durability: Durability

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

    A server that was told not to care for a loss of power (`fsync = off`) is refused, unless *durability* says that
    `process` is enough.
    """

    def __init__(
        self,
        conninfo: str,
        *,
        schema: str = "turnwright",
        connections: int = 8,
        durability: Durability = "power",
    ) -> None:
        if durability not in ("process", "power"):
            raise ValueError(f"durability is power or process, not {durability!r}")
        if connections < 1:
            raise ValueError(f"connections is 1 or more, not {connections}")
        if not schema or "\0" in schema or len(schema.encode()) > 63:
            raise ValueError(f"the name of a schema has 1 to 63 bytes, not like {schema[:80]!r}")
        if not _readable(conninfo):
            raise ValueError("conninfo cannot be read; write postgresql://user@host:port/database")
        self._place = Place(conninfo, schema, connections, durability)
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

    async def _ask(self, work: Callable[[Connection], T], *, repeat: bool = False) -> T:
        """Do *work*, twice if need be where *repeat* says that this is harmless.

        Cancelling stops the statement too; whether it was done is then unknown.
        """
        task = self._connected().put(work, repeat=repeat)
        try:
            return cast("T", await task.future)
        except asyncio.CancelledError:
            task.drop()
            raise

    async def _ask_together(self, work: Together[P, T], piece: P) -> T:
        """Do *work* for *piece*, and for what others ask meanwhile. Cancelling forgets the answer, not the work."""
        return cast("T", await self._connected().put_together(work, piece).future)

    async def _take(
        self, take: Callable[[Connection], T], undo: Callable[[Connection, T], None], *, repeat: bool = False
    ) -> T:
        """Do *take*; if nobody waits for what it took any more, do *undo* before anything else is done."""
        server = self._connected()
        task = server.put(take, repeat=repeat)

        def give_back(connection: Connection) -> None:
            task.ended.wait()
            if task.error is None:
                undo(connection, cast("T", task.value))

        try:
            return cast("T", await task.future)
        except asyncio.CancelledError:
            server.put(give_back, ahead=True)
            raise

    def _connected(self) -> Server:
        if self._server is None:
            if self._closed:
                raise PortError(f"{type(self).__name__} on {self._place} is closed; make another one")
            self._server = Server.at(self._place)
            self._forgotten = weakref.finalize(self, self._server.forget)
            self._forgotten.atexit = False
        return self._server


@define(eq=False)
class Task(Order):
    """Something to do on a connection, after *after*. It can be dropped, and others can wait for it."""

    work: Callable[[Connection], object]
    may_repeat: bool = False
    after: tuple[Task, ...] = ()
    since: float = field(factory=monotonic)
    ended: Event = field(factory=Event)
    _lock: Lock = field(factory=Lock)
    _on: Connection | None = None
    _dropped: bool = False

    def perform(self, connection: Connection) -> None:
        """Do it, unless it was dropped meanwhile."""
        with self._lock:
            if self._dropped:
                return
            self._on = connection
        try:
            self.value = self.work(connection)
        finally:
            with self._lock:
                self._on = None

    def drop(self) -> None:
        """Nobody waits for the answer any more: do not begin, or stop the statement that is on its way."""
        with self._lock:
            self._dropped = True
            if self._on is not None:
                Thread(target=self._stop, name="turnwright stop", daemon=True).start()

    def _stop(self) -> None:
        with self._lock, suppress(psycopg.Error):  # the lock keeps the connection from going on to another order
            if self._on is not None:
                self._on.cancel_safe(timeout=GOODBYE_SECONDS)


@define(eq=False)
class Part(Order):
    """One of those who are served together."""

    piece: object


@define(eq=False)
class Batch:
    """Work that is to be done for all who wait for it once a thread takes it up: *parts*."""

    work: Callable[..., Sequence[object]]
    parts: Sequence[Part] = ()
    may_repeat: ClassVar[bool] = True
    since: float = field(factory=monotonic)

    def perform(self, connection: Connection) -> None:
        """Serve all at once; if that fails, one by one, so that only the culprit fails."""
        try:
            self._serve(connection, self.parts)
        except Exception:
            if len(self.parts) == 1 or connection.closed:
                raise
            for part in self.parts:
                try:
                    self._serve(connection, [part])
                except Exception as error:  # noqa: BLE001 - whoever waits is told
                    part.error = error

    def _serve(self, connection: Connection, parts: Sequence[Part]) -> None:
        for part, answer in zip(parts, self.work(connection, [part.piece for part in parts]), strict=True):
            if isinstance(answer, Exception):
                part.error = answer
            else:
                part.value = answer


@define(eq=False)
class Forgotten:
    """A user of *server* was collected without having left."""

    server: Server


Item: TypeAlias = Task | Batch | Forgotten | None
"""What a thread is handed: something to do, word of a lost user, or None at the end."""


class Server:
    """The threads that talk to one place. `leave` it as often as it was given out by `at`."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._users = 0
        self._items: SimpleQueue[Item] = SimpleQueue()
        self._threads: set[Thread] = set()
        self._outstanding = 0
        """How many orders were put and are not done."""
        self._ahead: set[Task] = set()
        self._waiting: dict[object, list[Part]] = {}
        """Those who wait for work that is done together; while it has a place here, a thread is or will be at it."""
        self._ended = False
        self._welcoming = Lock()
        self._welcome_said = False
        self._losses = 0
        """How often a connection was lost; those that were made before are not trusted any more."""

    @staticmethod
    def at(place: Place) -> Server:
        """The server of this process for *place*, which counts one more user."""
        with _lock:
            server = _servers.get(place)
            if server is None:
                server = _servers[place] = Server(place)
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
        """`leave`, for the garbage collector, which may call at any moment, in a thread that holds our lock too.

        A put is all that may be done then; a thread that serves us does the rest.
        """
        self._items.put(Forgotten(self))

    def end(self) -> None:
        """Let what was asked for be done, then hang up."""
        with _lock:
            if self._ended:
                return
            self._ended = True
        self._items.put(None)

    def join(self) -> None:
        """Wait for the end, within a bound."""
        until = monotonic() + 2 * GOODBYE_SECONDS
        for thread in self._threads.copy():
            thread.join(max(0.0, until - monotonic()))

    def put(self, work: Callable[[Connection], object], *, repeat: bool = False, ahead: bool = False) -> Task:
        """Have *work* done; where it is *ahead*, before whatever is asked for from now on."""
        with _lock:
            task = Task(work, repeat, after=tuple(self._ahead))
            if ahead:
                self._ahead.add(task)
            self._hand_out(task)
        return task

    def put_together(self, work: Together[P, T], piece: P) -> Part:
        """Have *work* done for *piece*, together with all the others that wait for it."""
        part = Part(piece)
        with _lock:
            if work in self._waiting:
                self._waiting[work].append(part)
            else:
                self._waiting[work] = [part]
                self._hand_out(Batch(work))
        return part

    def _hand_out(self, item: Task | Batch) -> None:
        """Give *item* to a thread. Under our lock."""
        self._outstanding += 1
        if len(self._threads) < min(self._outstanding, self._place.connections):
            thread = Thread(target=self._serve, name=f"turnwright {self._place.schema}", daemon=True)
            thread.start()
            self._threads.add(thread)
        self._items.put(item)

    # --- in a thread

    def _serve(self) -> None:
        connection: Connection | None = None
        losses = 0
        while (item := self._next()) is not None:
            if isinstance(item, Forgotten):
                item.server.leave()
                continue
            if connection is not None and losses != self._losses:
                connection.close()
                connection = None
            losses = self._losses
            orders = [item] if isinstance(item, Task) else self._take_up(item)
            connection = self._do(item, orders, connection)
            self._put_down(item)
            tell([order for order in orders if not isinstance(order.value, Alone)])
            del item, orders  # they would keep alive whoever ordered last
        if connection is not None:
            connection.close()
        with _lock:
            self._threads.discard(current_thread())

    def _next(self) -> Item:
        """Wait for something to do. None: there will be nothing, or others are enough for what there is."""
        while True:
            try:
                item = self._items.get(timeout=IDLE_SECONDS)
            except Empty:
                with _lock:
                    if len(self._threads) > max(1, self._outstanding):
                        self._threads.discard(current_thread())
                        return None
            else:
                if item is None:
                    more = not self._items.empty()
                    self._items.put(None)  # for the next thread, or for us once what came after it is done
                    if more:
                        continue
                return item

    def _take_up(self, batch: Batch) -> Sequence[Part]:
        with _lock:
            waiting = self._waiting[batch.work]
            batch.parts, self._waiting[batch.work] = waiting[:GROUP], waiting[GROUP:]
        return batch.parts

    def _put_down(self, item: Task | Batch) -> None:
        with _lock:
            self._outstanding -= 1
            if isinstance(item, Task):
                self._ahead.discard(item)
                item.ended.set()
                return
            for part in item.parts:
                if isinstance(part.value, Alone):
                    self._hand_out(Task(part.value.work, may_repeat=True, future=part.future))
            if self._waiting[item.work]:
                self._hand_out(Batch(item.work))
            else:
                del self._waiting[item.work]

    def _do(self, item: Task | Batch, orders: Sequence[Order], connection: Connection | None) -> Connection | None:
        """Do *item*, and keep in *orders* what came of it. The connection, if there still is one."""
        for is_last in (not item.may_repeat, True):
            try:
                if monotonic() > item.since + WAIT_SECONDS:
                    raise PortError(
                        f"{self._place}: no connection within {WAIT_SECONDS:g} s; "
                        f"all {self._place.connections} connections are busy"
                    )
                if isinstance(item, Task):
                    for each in item.after:
                        each.ended.wait()
                if connection is None:
                    connection = self._connect(item.since + WAIT_SECONDS)
                item.perform(connection)
            except Exception as error:  # noqa: BLE001 - whoever waits is told
                if connection is not None and connection.closed and not is_last:
                    self._losses += 1
                    connection = None
                    continue
                for order in orders:
                    order.error = error
            break
        for order in orders:
            if order.error is not None:
                order.error = _told(self._place, order.error)
        if connection is not None and connection.closed:
            self._losses += 1  # if the server went away, all the others have lost it as well
            return None
        return connection

    def _reach(self, conninfo: str, until: float) -> Connection:
        """Connect. A server that comes up, or was there before, is waited for *until* then, unless we are to end."""
        pause = 0.05
        while True:
            try:
                return Connection.connect(conninfo, autocommit=True)
            except psycopg.OperationalError:
                said = PGconn.ping(conninfo.encode())
                is_coming = said == Ping.REJECT or (said == Ping.NO_RESPONSE and self._welcome_said)
                if not is_coming or self._ended or monotonic() + pause > until:
                    raise
            sleep(pause)
            pause = min(2 * pause, 0.5)

    def _connect(self, until: float) -> Connection:
        said = {**PATIENCE, **conninfo_to_dict(self._place.conninfo)}
        connection = self._reach(make_conninfo("", **said), until)
        try:
            speak_text(connection)
            connection.isolation_level = IsolationLevel.READ_COMMITTED
            seconds = {"wait": f"{WAIT_SECONDS:g}s", "statement": f"{STATEMENT_SECONDS:g}s"}
            connection.execute(SETTINGS, {"schema": self._place.schema, **seconds})
            if self._place.durability == "power":
                self._refuse_careless(connection)
            with self._welcoming:
                if not self._welcome_said:
                    self._welcome(connection)
                    self._welcome_said = True
        except BaseException:
            connection.close()
            raise
        return connection

    def _refuse_careless(self, connection: Connection) -> None:
        (off,) = connection.execute(OFF).fetchone() or (None,)
        if off is not None:
            raise PortError(
                f"{self._place}: the server runs with {off}, and may lose what it acknowledged when the power fails; "
                "turn it on, or accept that with durability='process'"
            )

    def _welcome(self, connection: Connection) -> None:
        asked = connection.execute(
            "SELECT current_setting('server_encoding'), current_setting('transaction_read_only')"
        ).fetchone()
        encoding, read_only = asked or ("", "")
        if encoding != "UTF8":
            raise PortError(f"{self._place}: the database is in {encoding}; create one with ENCODING 'UTF8'")
        if read_only == "on":
            raise _read_only(self._place)
        migrate(connection, self._place.schema, str(self._place))


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


def _told(place: Place, error: Exception) -> Exception:
    """*error* as a port raises it."""
    match error:
        case psycopg.errors.ReadOnlySqlTransaction():
            told = _read_only(place)
        case psycopg.errors.InsufficientPrivilege():
            told = PortError(
                f"{place}: {_line(error)}; let this user create it, or make the schema and give it to this user"
            )
        case psycopg.Error() | OSError():
            told = PortError(f"{place}: {_line(error)}")
        case _:
            return error
    told.__cause__ = error
    return told


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _read_only(place: Place) -> PortError:
    return PortError(f"{place}: the server is read-only; name the primary, or let this user and database write")
