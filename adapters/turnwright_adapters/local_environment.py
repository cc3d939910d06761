"""Files and programs of this host, below one directory: an execution environment without walls.

Rule: a program is over when it has exited, whoever holds its pipes, and nothing that it started outlives its `run`
(tests/adapters/test_local_environment.py).

This is not a security boundary. A path is checked and then used, so a program that runs here may change what lies in
between; a program may do whatever its user may.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
import stat
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, Self, TypeVar
from weakref import WeakValueDictionary

from turnwright.environment import LONGEST_TIMEOUT, SHOWN_BYTES, SHOWN_LINES, Entry, EntryKind, Ran
from turnwright.errors import PortError
from turnwright.tools import called

__all__ = ["LocalEnvironment"]

GRACE: Final = 2.0
"""Seconds that a program has between being asked to end and being killed."""

DYING: Final = 10.0
"""Seconds that killed programs may take to be gone: only one that the kernel itself holds up takes as long."""

DRAIN: Final = 0.2
"""Seconds of silence after which the output of an exited program is taken for all of it."""

LONGEST_DRAIN: Final = 2.0
"""Seconds that it is read on if it is never silent."""

MOST_LEFT: Final = 64
"""Pieces that are read of what the pipe still holds when all is over; it holds one, or the host allows more."""

LARGEST_OUTPUT: Final = 2**28
"""Bytes of an output that are saved; what comes after is counted and dropped."""

NO_GROUP: Final = -1

MARK: Final = "TURNWRIGHT_PROCESS"
"""The one variable that every program has: by it we find what it started, wherever that has gone."""

T = TypeVar("T")


class LocalEnvironment:
    """The directory *root* and the programs of this host.

    *inherited* names the variables of ours that programs have unless they are given others. Whole outputs that were
    too long to show are kept in *outputs*, by default the host's directory for temporary files.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        inherited: Sequence[str] = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "USER"),
        outputs: str | Path | None = None,
        grace: float = GRACE,
    ) -> None:
        self._root = Path(os.path.realpath(root))
        if not self._root.is_dir():
            raise ValueError(f"the root {str(root)!r} is no directory")
        self._inherited = tuple(inherited)
        self._outputs = outputs
        self._grace = grace
        self._locks: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()
        self._running: set[asyncio.Task[Ran]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def read(self, path: str, *, at_most: int = 2**24) -> bytes:
        """The bytes of a file; see `turnwright.environment.Environment`."""
        place = self._place(path)
        return await _settled(path, lambda: _read(place, path, at_most))

    async def write(self, path: str, data: bytes) -> None:
        """Make *data* the whole of a file."""
        place = self._place(path)
        await self._alone(place, path, lambda: _write(place, data))

    async def edit(self, path: str, change: Callable[[bytes], bytes]) -> None:
        """Replace what a file holds by what *change* makes of it."""
        place = self._place(path)
        await self._alone(place, path, lambda: _write(place, change(_read(place, path))))

    async def entries(self, path: str = ".") -> Sequence[Entry]:
        """What stands in a directory."""
        place = self._place(path)
        return await _settled(path, lambda: _entries(place))

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str = ".",
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        on_output: Callable[[bytes], None] | None = None,
    ) -> Ran:
        """Run a program to its end."""
        if isinstance(argv, str) or not argv or any(["\0" in word for word in argv]):
            raise ValueError("argv is a program and its arguments, each a text without NUL")
        if timeout is not None and not 0 < timeout <= LONGEST_TIMEOUT:
            raise ValueError(f"timeout must be above 0 and at most {LONGEST_TIMEOUT:g} seconds, not {timeout!r}")
        where = self._place(cwd)
        if not where.is_dir():
            raise PortError(f"cannot run {argv[0]!r}: {cwd!r} is no directory")
        mark = secrets.token_hex(16)
        given = {name: os.environ[name] for name in self._inherited if name in os.environ} if env is None else env
        running = asyncio.ensure_future(self._run(argv, where, {**given, MARK: mark}, mark, timeout, on_output))
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        try:
            return await running
        except asyncio.CancelledError:
            if running.cancelled() and not _is_cancelled():
                raise PortError(f"{argv[0]!r} was ended: its environment was closed") from None
            raise

    async def aclose(self) -> None:
        """End every program that still runs."""
        running = [*self._running]
        for each in running:
            each.cancel()
        if running:
            await asyncio.wait(running)

    def _place(self, path: str) -> Path:
        """Return where *path* leads to, links followed. PortError if that is not below the root."""
        try:
            if b"\0" in os.fsencode(path):
                raise ValueError("NUL")  # behind a circle of links, nobody else would look
            place = Path(os.path.realpath(self._root / path))
        except (OSError, ValueError) as error:
            raise PortError(f"{path!r:.200} is no path") from error
        if not place.is_relative_to(self._root):
            raise PortError(f"{path!r:.200} leads out of the environment; give a path below its root")
        return place

    async def _alone(self, place: Path, path: str, work: Callable[[], None]) -> None:
        """Do *work* on a file when all that was asked for before is done; a lock serves in the order of its callers."""
        lock = self._locks.get(place)
        if lock is None:
            lock = self._locks[place] = asyncio.Lock()
        async with lock:
            await _settled(path, work)

    async def _run(
        self,
        argv: Sequence[str],
        where: Path,
        env: Mapping[str, str],
        mark: str,
        timeout: float | None,
        on_output: Callable[[bytes], None] | None,
    ) -> Ran:
        with _Output(self._outputs, on_output) as output:
            try:
                process = await asyncio.create_subprocess_exec(
                    *argv,
                    cwd=where,
                    env=env,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output.pipe,
                    stderr=output.pipe,
                    start_new_session=True,
                )
            except OSError as error:
                raise PortError(f"cannot run {argv[0]!r}: {error.strerror}") from error
            except asyncio.CancelledError:  # in the moment of its start; what it has started by now is not told to us
                await _end_survivors(mark)
                raise
            output.begin()
            code: int | None = None
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(timeout):
                        code = await process.wait()
                        await output.drained()
            finally:
                await self._end(process, mark)
            return output.ran(code)

    async def _end(self, process: asyncio.subprocess.Process, mark: str) -> None:
        """End the program and what it started: asked first if it still runs, then killed."""
        try:
            if process.returncode is None:
                _signal(process.pid, signal.SIGTERM)
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._grace):
                        await process.wait()
        finally:
            _signal(process.pid, signal.SIGKILL)
            await _end_survivors(mark, process.pid)
            await process.wait()


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _settled(path: str, work: Callable[[], T]) -> T:
    """Do *work* in a thread. A cancellation leaves when the thread is done, since nothing can stop it."""
    working = asyncio.ensure_future(asyncio.to_thread(called, work, (), {}))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        while not working.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([working])
        with suppress(Exception):
            working.result()
        raise
    except OSError as error:
        raise PortError(f"{path!r:.200}: {error.strerror or error}") from error


# --- files


def _read(place: Path, path: str, at_most: int | None = None) -> bytes:
    with open(place, "rb", opener=_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise PortError(f"{path!r:.200} is no file")
        data = file.read() if at_most is None else file.read(at_most + 1)
    if at_most is not None and len(data) > at_most:
        raise PortError(f"{path!r:.200} has more than {at_most} bytes")
    return data


def _without_waiting(path: str, flags: int) -> int:
    """Open what may be a named pipe: nothing could stop a thread that waits for its other end."""
    return os.open(path, flags | os.O_NONBLOCK)


def _write(place: Path, data: bytes) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    beside = place.with_name(f".{secrets.token_hex(8)}.tmp")
    mode = _mode(place)
    try:
        # Who may not read the old may not read the new either, not even while it is written.
        with open(
            beside, "xb", opener=lambda path, flags: os.open(path, flags, 0o666 if mode is None else mode)
        ) as file:
            file.write(data)
        if mode is not None:
            beside.chmod(mode)
        beside.replace(place)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _mode(place: Path) -> int | None:
    """Who may do what with a file, None if there is none."""
    try:
        return stat.S_IMODE(place.stat().st_mode)
    except FileNotFoundError:
        return None


def _entries(place: Path) -> Sequence[Entry]:
    entries: list[Entry] = []
    with os.scandir(place) as found:
        for each in found:
            with suppress(FileNotFoundError):  # it went while we looked, as the file does in which a write begins
                entries.append(_entry(each))
    return sorted(entries, key=lambda entry: entry.name)


def _entry(found: os.DirEntry[str]) -> Entry:
    kind: EntryKind = "other"
    if found.is_symlink():
        kind = "link"
    elif found.is_dir(follow_symlinks=False):
        kind = "directory"
    elif found.is_file(follow_symlinks=False):
        return Entry(found.name, "file", found.stat(follow_symlinks=False).st_size)
    return Entry(found.name, kind)


# --- programs


def _signal(group: int, what: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, what)


async def _end_survivors(mark: str, group: int = NO_GROUP) -> None:
    """Kill what carries *mark* or is of *group*, also what has left the group, until there is none."""
    late = asyncio.get_running_loop().time() + DYING
    # A round may find what was started while the last one looked.
    while (survivors := _survivors(mark, group)) and asyncio.get_running_loop().time() < late:
        for pid in survivors:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.001)


def _survivors(mark: str, group: int) -> Sequence[int]:
    """Return the living programs that carry *mark* or are of *group*. Where there is no /proc, none are found."""
    wanted = f"{MARK}={mark}".encode()
    found: list[int] = []
    for place in _processes():
        with suppress(OSError):  # it has ended, or is another user's
            state, _, of_group, *_ = (place / "stat").read_bytes().rpartition(b")")[2].split()
            if state in {b"Z", b"X"}:
                continue
            if int(of_group) == group or wanted in (place / "environ").read_bytes().split(b"\0"):
                found.append(int(place.name))
    return found


def _processes() -> Iterable[Path]:
    with suppress(OSError):
        return [place for place in Path("/proc").iterdir() if place.name.isdecimal()]
    return ()


class _Output:
    """What a program writes: its end in memory, all of it in a file."""

    def __init__(self, outputs: str | Path | None, on_output: Callable[[bytes], None] | None) -> None:
        self._on_output = on_output
        self._outputs = outputs
        self._end = bytearray()
        self._size = 0
        self._newlines = 0
        self._last_line = 0
        self._ended_line = 0
        self._came = asyncio.Event()
        self._over = asyncio.Event()

    def __enter__(self) -> Self:
        self._file: BinaryIO = tempfile.NamedTemporaryFile(  # type: ignore[assignment]
            prefix="turnwright-", suffix=".out", dir=self._outputs, delete=False
        )
        self._kept = self._full = False
        self._read, self.pipe = os.pipe()
        os.set_blocking(self._read, False)
        return self

    def __exit__(self, *error: object) -> None:
        asyncio.get_running_loop().remove_reader(self._read)
        os.close(self._read)
        if self.pipe >= 0:
            os.close(self.pipe)
        with suppress(OSError):  # a full disk is no matter of the program
            self._file.close()
        if not self._kept:
            Path(self._file.name).unlink(missing_ok=True)

    def begin(self) -> None:
        """Take what comes, now that the program has its end of the pipe."""
        os.close(self.pipe)
        self.pipe = -1
        asyncio.get_running_loop().add_reader(self._read, self._take)

    async def drained(self) -> None:
        """Return when all is read; of a pipe that somebody else holds on to, when it is silent, or it is enough."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_DRAIN):
                while not self._over.is_set():
                    self._came.clear()
                    async with asyncio.timeout(DRAIN):
                        await self._came.wait()

    def ran(self, code: int | None) -> Ran:
        """Return what became of the program that wrote this."""
        for _ in range(MOST_LEFT):
            if self._over.is_set() or not self._take():
                break
        lines = self._newlines + (self._last_line > 0)
        shown = _shown(bytes(self._end))
        truncated = len(shown) < self._size
        self._kept = truncated
        return Ran(
            code,
            shown.decode(errors="replace"),
            lines,
            self._size,
            self._last_line or self._ended_line,
            truncated,
            self._file.name if truncated else None,
        )

    def _take(self) -> bool:
        """Take a piece, and say whether there was one."""
        try:
            piece = os.read(self._read, 2**16)
        except BlockingIOError:
            return False
        self._came.set()
        if not piece:
            self._over.set()
            asyncio.get_running_loop().remove_reader(self._read)
            return False
        self._save(piece)
        self._size += len(piece)
        self._newlines += piece.count(b"\n")
        *ended, rest = piece.split(b"\n")[-3:]
        if ended:
            self._ended_line = len(ended[-1]) + (self._last_line if piece.count(b"\n") == 1 else 0)
            self._last_line = 0
        self._last_line += len(rest)
        self._end += piece
        if len(self._end) > 4 * SHOWN_BYTES:
            del self._end[: -2 * SHOWN_BYTES]
        self._tell(piece)
        return True

    def _save(self, piece: bytes) -> None:
        if self._size >= LARGEST_OUTPUT or self._full:
            return
        try:
            self._file.write(piece)
        except OSError:
            self._full = True  # what is shown is in memory, and the program did nothing wrong

    def _tell(self, piece: bytes) -> None:
        if self._on_output is None:
            return
        try:
            self._on_output(piece)
        except Exception as error:  # noqa: BLE001 - who watches changes nothing
            told = {"message": "on_output failed; the program goes on", "exception": error}
            asyncio.get_running_loop().call_exception_handler(told)


def _shown(end: bytes) -> bytes:
    """Return of the *end* of an output what is shown: its last lines, or the end of one that is too long by itself."""
    lines = [line for line in re.split(rb"(?<=\n)", end) if line]
    shown: list[bytes] = []
    room = SHOWN_BYTES
    for line in reversed(lines[-SHOWN_LINES:]):
        if len(line) > room:
            break
        shown.append(line)
        room -= len(line)
    if shown or not lines:
        return b"".join(reversed(shown))
    cut = end[-SHOWN_BYTES:]
    start = next((place for place in range(4) if place < len(cut) and cut[place] & 0xC0 != 0x80), 0)
    return cut[start:]
