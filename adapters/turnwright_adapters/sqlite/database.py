"""One SQLite file and the threads that work on it, shared by all ports of this process that name the file.

Rule: one thread writes. It commits together what has queued up while the last commit was on its way to the disk, so
many runs share the price of one fsync. Two threads read, each on a connection of its own. Other processes are kept
apart by SQLite's lock on the file, and runs by their leases and epochs.

An order is a function of a connection: it looks first and writes last, so that one that refuses has written nothing.
If one of a group fails, all are undone and each is done again by itself.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sqlite3
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from sqlite3 import Connection
from threading import Lock, Thread
from time import monotonic
from typing import Final, Self, TypeAlias, TypeVar, cast

from attrs import define

from turnwright.errors import PortError
from turnwright_adapters._orders import Order, tell
from turnwright_adapters.sqlite.mounts import refuse_network_mount
from turnwright_adapters.sqlite.schema import migrate

__all__ = ["BUSY_SECONDS", "OnFile"]

T = TypeVar("T")

BUSY_SECONDS: Final = 10.0
"""How long an order waits for another process that writes."""
GROUP: Final = 256
"""How many orders one transaction takes."""
READERS: Final = 2
FEW: Final = 8
"""How many orders a reader takes at once, to tell those who wait with one wake-up."""
GOODBYE_SECONDS: Final = 5.0
"""How long the end of the process waits for what is still on its way to the disk."""


class OnFile:
    """A port on a SQLite file: it opens the file at first use, and gives it back when it is closed or forgotten.

    It belongs to no event loop: any number of loops may use it, one after another or at the same time.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if os.fspath(path) in ("", ":memory:"):
            raise ValueError(f"path names a file, not {os.fspath(path)!r}; for runs in memory use MemoryState")
        self.path = Path(os.path.realpath(path))
        self._database: Database | None = None
        self._forgotten: weakref.finalize[[], OnFile] | None = None
        self._closed = False

    async def close(self) -> None:
        """Finish what was asked for and give the file back. Harmless when repeated; afterwards every call fails."""
        self._closed = True
        database, self._database = self._database, None
        if database is not None:
            assert self._forgotten is not None
            self._forgotten.detach()
            database.leave()
            await database.finished()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def _write(self, work: Callable[[Connection], T], *, durable: bool = True) -> asyncio.Future[T]:
        """Order *work* in a transaction; what is not *durable* survives the process, but perhaps not the power."""
        return cast("asyncio.Future[T]", _put(self._opened().writes, work, durable=durable).future)

    async def _take(
        self, take: Callable[[Connection], T], undo: Callable[[Connection, T], None], *, durable: bool = True
    ) -> T:
        """Order *take* in a transaction; if nobody waits for what it took any more, order *undo*."""
        database = self._opened()
        order = _put(database.writes, take, durable=durable)

        def give_back(connection: Connection) -> None:
            if order.error is None:
                undo(connection, cast("T", order.value))

        try:
            return cast("T", await order.future)
        except asyncio.CancelledError:
            _put(database.writes, give_back, durable=durable)  # it comes after what it undoes
            raise

    def _read(self, work: Callable[[Connection], T]) -> asyncio.Future[T]:
        """Order *work* that only looks."""
        return cast("asyncio.Future[T]", _put(self._opened().reads, work).future)

    def _opened(self) -> Database:
        if self._database is None:
            if self._closed:
                raise PortError(f"{type(self).__name__}({str(self.path)!r}) is closed; make another one")
            self._database = Database.at(self.path)
            self._forgotten = weakref.finalize(self, self._database.forget)
            self._forgotten.atexit = False
        return self._database


@define(eq=False)
class Work(Order):
    """Something to do on a connection; where it is *durable*, it is on the disk when it is answered."""

    work: Callable[[Connection], object]
    durable: bool

    def perform(self, connection: Connection) -> None:
        """Do it and keep the answer."""
        self.value = self.work(connection)
        self.error = None


@define(eq=False)
class Forgotten:
    """A user of *database* was collected without having left."""

    database: Database


def _put(queue: SimpleQueue[Item], work: Callable[[Connection], object], *, durable: bool = False) -> Work:
    order = Work(work, durable)
    queue.put(order)
    return order


class Database:
    """The open file: two queues and the threads that serve them. `leave` it as often as it was given out by `at`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.writes: SimpleQueue[Item] = SimpleQueue()
        self.reads: SimpleQueue[Item] = SimpleQueue()
        self._users = 0
        self._identity: tuple[int, int] | None = None
        self._synchronous = "FULL"
        name = f"turnwright {path.name}"
        self._readers = [Thread(target=self._serve_reads, name=f"{name} reader", daemon=True) for _ in range(READERS)]
        self._threads = [Thread(target=self._serve_writes, name=f"{name} writer", daemon=True), *self._readers]

    @staticmethod
    def at(path: Path) -> Database:
        """The database of this process at *path*, which counts one more user."""
        with _lock:
            database = _databases.get(path)
            if database is None or not database._is_there():
                database = _databases[path] = Database(path)
                for thread in database._threads:
                    thread.start()
            database._users += 1
            return database

    def leave(self) -> None:
        """One user less; with the last one the database ends."""
        with _lock:
            self._users -= 1
            if self._users:
                return
            if _databases.get(self.path) is self:
                del _databases[self.path]
        self.end()

    def forget(self) -> None:
        """`leave`, for the garbage collector, which may call at any moment, in a thread that holds our lock too.

        A put is all that may be done then; the writer's thread does the rest.
        """
        self.writes.put(Forgotten(self))

    def end(self) -> None:
        """Let the threads do what is queued and end."""
        for _ in range(READERS):
            self.reads.put(None)
        self.writes.put(None)

    async def finished(self) -> None:
        """Wait for the threads, if nobody uses the database any more."""
        if not self._users:
            await asyncio.to_thread(self.join)

    def join(self) -> None:
        """Wait for the threads, within a bound."""
        until = monotonic() + GOODBYE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, until - monotonic()))

    def _is_there(self) -> bool:
        """Whether the file that we opened is still the one at that path."""
        try:
            return self._identity is None or self._identity == _identity(self.path)
        except FileNotFoundError:
            return False

    # --- in the writer's thread

    def _serve_writes(self) -> None:
        connection: Connection | None = None
        while orders := _next(self.writes, GROUP):
            try:
                if connection is None:
                    connection = _open(self.path)
                    self._identity = _identity(self.path)
                    self._synchronous = "FULL"
                self._commit(connection, orders)
            except Exception as error:  # noqa: BLE001 - whoever waits is told
                for order in orders:
                    order.error = _told(self.path, error)
            tell(orders)
            del orders  # it would keep alive whoever ordered last
        if connection is not None:
            for reader in self._readers:  # of two that close at once, neither is the last, and the log would stay
                reader.join(GOODBYE_SECONDS)
            connection.close()

    def _commit(self, connection: Connection, orders: Sequence[Work]) -> None:
        """Do *orders* in one transaction; if that fails, each in its own, so that only the culprit fails."""
        try:
            self._transact(connection, orders)
        except Exception as error:  # noqa: BLE001 - whoever waits is told
            if len(orders) == 1:
                orders[0].error = _told(self.path, error)
            else:
                for order in orders:
                    self._commit(connection, [order])

    def _transact(self, connection: Connection, orders: Sequence[Work]) -> None:
        # A commit that is not synced is safe in a crash of the process, and the next synced one takes it along. It
        # serves leases: when the power fails, their holders on this host are gone as well.
        synchronous = "FULL" if any([order.durable for order in orders]) else "NORMAL"
        if synchronous != self._synchronous:
            connection.execute("PRAGMA synchronous = FULL" if synchronous == "FULL" else "PRAGMA synchronous = NORMAL")
            self._synchronous = synchronous
        connection.execute("BEGIN IMMEDIATE")
        try:
            for order in orders:
                order.perform(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    # --- in a reader's thread

    def _serve_reads(self) -> None:
        connection: Connection | None = None
        while orders := _next(self.reads, FEW):
            connection = self._look(connection, orders)
            tell(orders)
            del orders  # as above
        if connection is not None:
            connection.close()

    def _look(self, connection: Connection | None, orders: Sequence[Work]) -> Connection | None:
        for order in orders:
            try:
                if connection is None:
                    connection = _open(self.path)
                    connection.execute("PRAGMA query_only = ON")
                order.perform(connection)
            except Exception as error:  # noqa: BLE001 - whoever waits is told
                order.error = _told(self.path, error)
        return connection


_lock = Lock()
_databases: dict[Path, Database] = {}


@atexit.register
def _close_all() -> None:
    """Leave every file whole at the end of the process, so that it can be copied alone."""
    with _lock:
        databases = list(_databases.values())
    for database in databases:
        database.end()
        database.join()


Item: TypeAlias = Work | Forgotten | None
"""What a thread is handed: something to do, word of a lost user, or None at the end."""


def _next(queue: SimpleQueue[Item], most: int) -> list[Work]:
    """Wait for an order and take with it what else is there; nothing when the queue has ended."""
    orders: list[Work] = []
    order = queue.get()
    while order is not None:
        if isinstance(order, Forgotten):
            order.database.leave()
        else:
            orders.append(order)
            if len(orders) == most:
                return orders
        try:
            order = queue.get_nowait() if orders else queue.get()
        except Empty:
            return orders
    if orders:
        queue.put(None)  # for the next time
    return orders


def _told(path: Path, error: Exception) -> Exception:
    """*error* as a port raises it."""
    if not isinstance(error, sqlite3.Error | OSError):
        return error
    waited = f" (waited {BUSY_SECONDS:g} s for another process)" if "locked" in str(error) else ""
    told = PortError(f"{path}: {error}{waited}")
    told.__cause__ = error
    return told


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _open(path: Path) -> Connection:
    """Open the file as this package wants it: WAL, durable, nothing in it trusted, freed content overwritten."""
    if not path.parent.is_dir():
        raise PortError(f"{path}: there is no directory {path.parent}; create it first")
    refuse_network_mount(path)
    path.touch(mode=0o600)  # what agents hear is nobody else's business
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, cached_statements=256)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute("PRAGMA secure_delete = ON")
        # Where fsync alone leaves things in the drive's own memory, as on macOS; no other system knows the difference.
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute("PRAGMA checkpoint_fullfsync = ON")
        migrate(connection, path)
        connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection
