"""The local execution environment: real files and real programs."""

from __future__ import annotations

import asyncio
import math
import os
import resource
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from turnwright.environment import SHOWN_BYTES, SHOWN_LINES, Entry, Environment
from turnwright.errors import PortError
from turnwright_adapters.local_environment import LocalEnvironment
from turnwright_contracts import EnvironmentSuite


@pytest.mark.promise("I-08", "T-05")
class TestLocalEnvironment(EnvironmentSuite):
    """It keeps the promises of the port."""

    def make(self, place: Path) -> AbstractAsyncContextManager[Environment]:
        (place / "root").mkdir()
        return LocalEnvironment(place / "root", outputs=place)


def python(program: str) -> Sequence[str]:
    """A program in Python, that needs nothing of its variables."""
    return [sys.executable, "-I", "-c", program]


def lives(pid: int) -> bool:
    """Whether a program still runs; a zombie does not."""
    with suppress(OSError):
        return "Z" not in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    return False


def names(place: str | Path) -> list[str]:
    """What stands in a directory."""
    return sorted([each.name for each in Path(place).iterdir()])


def text_of(place: str) -> str:
    """What a file holds."""
    return Path(place).read_text(encoding="utf-8")


def mode_of(place: str | Path) -> int:
    """Who may do what with a file."""
    return Path(place).stat().st_mode & 0o777


async def until(holds: Callable[[], bool]) -> None:
    """Wait until *holds*; the test's own bound ends it."""
    while not holds():  # noqa: ASYNC110 - a program tells nobody
        await asyncio.sleep(0.005)


@pytest.mark.promise("I-08")
async def test_files_are_read_written_and_changed(tmp_path: Path) -> None:
    """Directories are made, modes are kept, and a change that fails changes nothing."""
    async with LocalEnvironment(tmp_path) as local:
        await local.write("a/b.txt", b"one")
        (tmp_path / "a" / "b.txt").chmod(0o750)
        await local.edit("a/b.txt", lambda text: text + b" two")
        with pytest.raises(ZeroDivisionError):
            await local.edit("a/b.txt", lambda text: bytes(1 // (len(text) - 7)))

        assert isinstance(local, Environment)
        assert b"one two" == await local.read("a/b.txt")
        assert 0o750 == mode_of(tmp_path / "a" / "b.txt")
        assert [Entry("a", "directory")] == await local.entries()
        assert [Entry("b.txt", "file", 7)] == await local.entries("a")


@pytest.mark.promise("I-08")
@pytest.mark.parametrize("path", ["../out", "/etc/passwd", "inside/../../out", "link/out", "to-out", "a\0b"])
async def test_no_path_leads_out(tmp_path: Path, path: str) -> None:
    """By dots, by the root, or by a link; neither to read, to write, nor to run in."""
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "out").write_text("theirs", encoding="utf-8")
    (root / "link").symlink_to(tmp_path)
    (root / "to-out").symlink_to(tmp_path / "out")
    async with LocalEnvironment(root) as local:
        for attempt in (
            local.read(path),
            local.write(path, b"mine"),
            local.edit(path, lambda _: b"mine"),
            local.entries(path),
            local.run(["true"], cwd=path),
        ):
            with pytest.raises(PortError):
                await attempt

    assert "theirs" == (tmp_path / "out").read_text(encoding="utf-8")


@pytest.mark.promise("I-08")
async def test_a_named_pipe_is_no_file_and_holds_nobody_up(tmp_path: Path) -> None:
    """A thread that waits for the other end of a pipe could never be called back."""
    os.mkfifo(tmp_path / "pipe")
    async with LocalEnvironment(tmp_path) as local:
        for attempt in (local.read("pipe"), local.edit("pipe", lambda text: text)):
            with pytest.raises(PortError, match="is no file"):
                await attempt

        assert [Entry("pipe", "other")] == await local.entries()


@pytest.mark.promise("I-08")
async def test_a_change_that_stops_an_iteration_is_told(tmp_path: Path) -> None:
    """No StopIteration finds its way out of a thread: its caller would wait for ever."""

    def change(text: bytes) -> bytes:
        raise StopIteration(text)

    async with LocalEnvironment(tmp_path) as local:
        await local.write("a.txt", b"one")
        with pytest.raises(RuntimeError, match="StopIteration"):
            await local.edit("a.txt", change)

        assert b"one" == await local.read("a.txt")


@pytest.mark.promise("I-08")
async def test_what_goes_while_a_directory_is_looked_at_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write beside it, or a program, may take a file away at any moment."""
    (tmp_path / "stays").write_bytes(b"1")
    (tmp_path / "goes").write_bytes(b"1")
    scan = os.scandir

    def late(place: Path) -> nullcontext[list[os.DirEntry[str]]]:
        found = [*scan(place)]
        (tmp_path / "goes").unlink()
        return nullcontext(found)

    monkeypatch.setattr(os, "scandir", late)
    async with LocalEnvironment(tmp_path) as local:
        found = await local.entries()

    assert ["stays"] == [each.name for each in found]


@pytest.mark.promise("I-08")
async def test_a_private_file_is_private_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written is never readable for more people than what it replaces."""
    (tmp_path / "key").write_bytes(b"old")
    (tmp_path / "key").chmod(0o600)
    modes: list[int] = []
    change = Path.chmod

    def look(beside: Path, mode: int) -> None:
        modes.append(mode_of(beside))
        change(beside, mode)

    monkeypatch.setattr(Path, "chmod", look)
    async with LocalEnvironment(tmp_path) as local:
        await local.write("key", b"new")

    assert [0o600] == modes
    assert 0o600 == mode_of(tmp_path / "key")


PIECES = st.sampled_from(
    ["..", ".", "", "a", "b", "out", "in", "loop", "up", "far", "~", "a\0", "\udc80", "\ud800", "x" * 300]
)
PATHS = st.lists(PIECES, max_size=6).map("/".join)


def a_tree_with_ways_out(place: Path) -> tuple[Path, Path]:
    """A root with links that lead into it, out of it, and round in a circle; and what lies beside it."""
    root, outside = place / "root", place / "theirs"
    (root / "a" / "b").mkdir(parents=True)
    outside.mkdir()
    (outside / "a").write_bytes(b"secret")
    for link, to in {"out": outside, "in": "a/b", "loop": "loop", "up": "..", "far": "a/../out/a"}.items():
        (root / link).symlink_to(to)
        (root / "a" / link).symlink_to(to)
    return root, outside


@pytest.mark.promise("I-08")
@given(st.lists(st.tuples(st.sampled_from(["read", "write", "edit", "entries"]), PATHS), min_size=1, max_size=8))
@settings(max_examples=150)
async def test_whatever_a_path_is_made_of_nothing_outside_is_read_or_changed(asked: Sequence[tuple[str, str]]) -> None:
    """Dots, links, links of links, circles, and what is no path: it works below the root, or it is a PortError."""
    with tempfile.TemporaryDirectory() as place:
        root, outside = a_tree_with_ways_out(Path(place))
        async with LocalEnvironment(root) as local:
            for what, path in asked:
                with suppress(PortError):
                    match what:
                        case "read":
                            assert b"secret" != await local.read(path)
                        case "write":
                            await local.write(path, b"ours")
                        case "edit":
                            await local.edit(path, lambda text: text + b"!")
                        case _:
                            assert "theirs" not in [each.name for each in await local.entries(path)]

        assert ["root", "theirs"] == names(place)
        assert ["a"] == names(outside)
        assert b"secret" == (outside / "a").read_bytes()


async def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A missing file, a directory, one that is too large."""
    (tmp_path / "big").write_bytes(b"x" * 11)
    async with LocalEnvironment(tmp_path) as local:
        for path in ("none", ".", "big"):
            with pytest.raises(PortError, match=path):
                await local.read(path, at_most=10)
        assert 11 == len(await local.read("big", at_most=11))
        with pytest.raises(PortError, match="none"):
            await local.edit("none", lambda text: text)


@pytest.mark.promise("I-08")
async def test_changes_of_one_file_happen_in_the_order_of_their_asking(tmp_path: Path) -> None:
    """Case C10: under whatever name, while other files are free; a slow first one is not overtaken."""
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    gate = threading.Event()

    def slow(text: bytes) -> bytes:
        gate.wait(30.0)
        return text + b"0"

    async with LocalEnvironment(tmp_path) as local:
        changes = [
            asyncio.ensure_future(local.edit("a", slow)),
            *[
                asyncio.ensure_future(local.edit("ab"[each % 2], lambda text, n=each: text + b"%d" % n))
                for each in range(1, 10)
            ],
        ]
        await local.write("other", b"free")
        gate.set()
        await asyncio.gather(*changes)

        assert b"0123456789" == await local.read("a")


@pytest.mark.promise("I-08")
async def test_a_cancelled_change_is_over_before_the_next(tmp_path: Path) -> None:
    """Case C10: its lock is held until it has settled."""
    (tmp_path / "a").write_bytes(b"")
    begun, gate = threading.Event(), threading.Event()

    def slow(text: bytes) -> bytes:
        begun.set()
        gate.wait(30.0)
        return text + b"1"

    async with LocalEnvironment(tmp_path) as local:
        first = asyncio.ensure_future(local.edit("a", slow))
        await asyncio.to_thread(begun.wait, 30.0)
        second = asyncio.ensure_future(local.edit("a", lambda text: text + b"2"))
        waiting = asyncio.ensure_future(local.edit("a", lambda text: text + b"3"))
        await asyncio.sleep(0)
        first.cancel()
        waiting.cancel()
        gate.set()
        ended = await asyncio.gather(first, second, waiting, return_exceptions=True)

        assert [asyncio.CancelledError, type(None), asyncio.CancelledError] == [type(each) for each in ended]
        assert b"12" == await local.read("a")


@pytest.mark.promise("I-08")
async def test_a_program_is_run_to_its_end(tmp_path: Path) -> None:
    """Its code, both its streams, its directory; no shell reads its arguments, and its input is empty."""
    (tmp_path / "sub").mkdir()
    pieces: list[bytes] = []
    program = (
        "import os,sys; print(os.getcwd(), sys.argv[1], sys.stdin.read()); print('oh', file=sys.stderr); sys.exit(3)"
    )
    async with LocalEnvironment(tmp_path) as local:
        ran = await local.run([*python(program), "$(id); *"], cwd="sub", on_output=pieces.append)

    assert 3 == ran.exit_code
    assert {f"{tmp_path}/sub $(id); * ", "oh"} == {*ran.output.splitlines()}
    assert ran.output.encode() == b"".join(pieces)
    assert (2, len(ran.output), False, None) == (ran.lines, ran.size, ran.truncated, ran.saved)


@pytest.mark.promise("I-08")
@pytest.mark.parametrize(
    ("program", "lines", "size", "last_line", "shown"),
    [
        ("print('a\\nb')", 2, 4, 1, b"a\nb\n"),
        ("print('a\\nbc', end='')", 2, 4, 2, b"a\nbc"),
        ("print('a\\n\\n')", 3, 4, 0, b"a\n\n\n"),
        ("pass", 0, 0, 0, b""),
        ("print('x' * 200000)", 1, 200_001, 200_000, None),
        ("print('a'); print('x' * 200000, end='')", 2, 200_002, 200_000, None),
    ],
)
async def test_lines_are_counted_as_people_count_them(
    tmp_path: Path, program: str, lines: int, size: int, last_line: int, shown: bytes | None
) -> None:
    """Case C11: a newline at the end begins no line; a last line that is too long is cut and its size told."""
    async with LocalEnvironment(tmp_path, outputs=tmp_path) as local:
        ran = await local.run(python(program))

    assert (lines, size, last_line) == (ran.lines, ran.size, ran.last_line)
    if shown is not None:
        assert shown.decode() == ran.output
    else:
        assert ran.truncated
        assert SHOWN_BYTES - 1 <= len(ran.output) <= SHOWN_BYTES


@pytest.mark.promise("I-08")
async def test_characters_are_not_cut(tmp_path: Path) -> None:
    """Case C11: what is shown of a long line begins with a whole character."""
    async with LocalEnvironment(tmp_path, outputs=tmp_path) as local:
        for cut in range(4):
            program = f"import sys; sys.stdout.buffer.write('🙂'.encode() * 40000 + b'x' * {cut})"
            ran = await local.run(python(program))

            assert {"🙂", "x"} >= {*ran.output}
            assert ran.output.endswith("🙂" + "x" * cut)


@pytest.mark.promise("I-08")
async def test_an_output_that_is_cut_is_saved_whole(tmp_path: Path) -> None:
    """Case C14: also one that has too many lines and few bytes; one that is shown whole leaves no file."""
    async with LocalEnvironment(tmp_path, outputs=tmp_path) as local:
        short = await local.run(python("print('hi')"))
        left = names(tmp_path)
        ran = await local.run(python("print(*range(3000), sep='\\n')"))

    assert (None, []) == (short.saved, left)
    assert (3000, True) == (ran.lines, ran.truncated)
    assert [str(each) for each in range(3000 - SHOWN_LINES, 3000)] == ran.output.splitlines()
    assert ran.saved is not None
    assert [str(each) for each in range(3000)] == text_of(ran.saved).splitlines()
    assert 0o600 == mode_of(ran.saved)


@pytest.mark.promise("I-08")
@pytest.mark.parametrize("timeout", [0, 0.0, -1, math.nan, math.inf, 1e12])
async def test_a_timeout_that_means_nothing_is_refused(tmp_path: Path, timeout: float) -> None:
    """Case C12: at once, and nothing ran."""
    async with LocalEnvironment(tmp_path) as local:
        with pytest.raises(ValueError, match="timeout"):
            await local.run(["touch", "ran"], timeout=timeout)

    assert [] == names(tmp_path)


STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
print(os.getpid(), flush=True)
time.sleep(600)
"""
"""A program that ignores being asked, with a grandchild that has left its group and its parent."""


@pytest.mark.promise("I-08")
async def test_a_program_whose_time_is_up_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    """Case C15: its output so far is kept, and nothing of it lives."""
    async with LocalEnvironment(tmp_path, grace=0.1) as local:
        ran = await local.run(python(STUBBORN), timeout=3.0)

    assert (None, True) == (ran.exit_code, ran.timed_out)
    pids = [int(each) for each in ran.output.split()]
    assert 2 == len(pids)
    assert [] == [pid for pid in pids if lives(pid)]


@pytest.mark.promise("I-08")
async def test_a_cancelled_program_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    """Case C15: before the cancellation leaves."""
    seen: list[bytes] = []
    async with LocalEnvironment(tmp_path, grace=0.1) as local:
        running = asyncio.ensure_future(local.run(python(STUBBORN), on_output=seen.append))
        await until(lambda: b"".join(seen).count(b"\n") == 2)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    assert [] == [pid for pid in map(int, b"".join(seen).split()) if lives(pid)]


@pytest.mark.promise("I-08")
async def test_a_program_that_is_cancelled_as_it_starts_leaves_nothing_behind(tmp_path: Path) -> None:
    """At every step of its start, though it may have started others before we know that it runs."""
    left: list[str] = []
    async with LocalEnvironment(tmp_path, outputs=tmp_path) as local:
        for steps in range(1, 8):
            (tmp_path / "pids").write_bytes(b"")
            running = asyncio.ensure_future(local.run(["sh", "-c", "sleep 60 & echo $! >> pids; sleep 60"]))
            for _ in range(steps):
                await asyncio.sleep(0)
            time.sleep(0.03)  # noqa: ASYNC251 - it goes on while our loop stands
            running.cancel()
            await asyncio.wait([running])
            left += [pid for pid in text_of(str(tmp_path / "pids")).split() if lives(int(pid))]

    assert [] == left


@pytest.mark.promise("I-08")
async def test_who_watches_an_output_changes_nothing(tmp_path: Path) -> None:
    """What it raises is reported; the program ends as it would, and every piece is counted."""
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: reported.append(told.get("exception")))

    def fail(piece: bytes) -> None:
        raise ZeroDivisionError(piece)

    async with LocalEnvironment(tmp_path, outputs=tmp_path) as local:
        ran = await local.run(python("print('all')"), on_output=fail)

    assert (0, "all\n") == (ran.exit_code, ran.output)
    assert [ZeroDivisionError] == [type(each) for each in reported]


@pytest.mark.promise("I-08")
async def test_a_full_disk_takes_nothing_from_what_is_shown(tmp_path: Path) -> None:
    """What cannot be saved is shown and counted all the same."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with LocalEnvironment(tmp_path, outputs=tmp_path) as local:
        running = asyncio.ensure_future(local.run(python("print('x' * 100000)")))
        try:
            await until(lambda: any([name.endswith(".out") for name in names(tmp_path)]))
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
            ran = await running
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert (0, 100_001, "x" * 100 + "\n") == (ran.exit_code, ran.size, ran.output[-101:])


@pytest.mark.promise("I-08")
async def test_whoever_holds_the_pipe_holds_nobody_up(tmp_path: Path) -> None:
    """Cases C13 and C15: a program is over when it has exited; what it left behind is ended, and heard no more."""
    seen: list[bytes] = []
    program = "import subprocess, sys; print(subprocess.Popen(['sh', '-c', 'sleep 600; echo late']).pid)"
    async with LocalEnvironment(tmp_path) as local:
        ran = await local.run(python(program), on_output=seen.append)
        heard = b"".join(seen)
        other = await local.run(["echo", "next"])

    assert (0, "next\n") == (ran.exit_code, other.output)
    assert not lives(int(ran.output))
    assert heard == b"".join(seen) == ran.output.encode()


@pytest.mark.promise("I-08")
async def test_whoever_goes_on_writing_holds_nobody_up(tmp_path: Path) -> None:
    """Case C15: what was left behind is heard for a while only, and it needs no variables of ours to be found."""
    goes_on = "while :; do echo y; sleep 0.02; done"
    program = f"import subprocess; print(subprocess.Popen(['env', '-i', 'sh', '-c', '{goes_on}']).pid, flush=True)"
    async with LocalEnvironment(tmp_path) as local:
        ran = await local.run(python(program))

    pids = [each for each in ran.output.split() if each != "y"]
    assert (0, 1) == (ran.exit_code, len(pids))
    assert not lives(int(pids[0]))


@pytest.mark.promise("I-08")
async def test_closing_ends_every_program(tmp_path: Path) -> None:
    """Case C15: all that run at the time; whoever waits for one is told, and closing again does nothing."""
    seen: list[bytes] = []
    async with LocalEnvironment(tmp_path, grace=0.1) as local:
        program = python("import os, time; print(os.getpid(), flush=True); time.sleep(600)")
        running = [asyncio.ensure_future(local.run(program, on_output=seen.append)) for _ in range(3)]
        await until(lambda: b"".join(seen).count(b"\n") == 3)
        await local.aclose()
        await local.aclose()
        ended = await asyncio.gather(*running, return_exceptions=True)

    assert [PortError] * 3 == [type(each) for each in ended]
    assert [] == [pid for pid in map(int, b"".join(seen).split()) if lives(pid)]


@pytest.mark.promise("I-08")
async def test_a_program_has_the_variables_that_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case C16: those and none of ours; without any, the few that are named. The mark is how we find it."""
    monkeypatch.setenv("OUR_SECRET", "canary")
    program = python("import os; print(*sorted(os.environ.keys() - {'TURNWRIGHT_PROCESS', 'LC_CTYPE'}))")
    async with LocalEnvironment(tmp_path, inherited=["PATH"]) as local:
        outputs = [(await local.run(program, env=env)).output for env in ({}, {"A": "1", "B": "2"}, None)]

    assert ["\n", "A B\n", "PATH\n"] == outputs


@pytest.mark.promise("I-08")
async def test_what_cannot_be_run_is_told_before_it_is_tried(tmp_path: Path) -> None:
    """Case C16: a directory that is not there, a program that is not there, arguments that are none."""
    (tmp_path / "file").write_bytes(b"")
    async with LocalEnvironment(tmp_path) as local:
        for cwd in ("none", "file"):
            with pytest.raises(PortError, match=f"'{cwd}' is no directory"):
                await local.run(["touch", "ran"], cwd=cwd)
        with pytest.raises(PortError, match="no-such-program"):
            await local.run(["no-such-program"])
        for argv in ("ls -l", [], ["a\0b"]):
            with pytest.raises(ValueError, match="argv"):
                await local.run(argv)

    assert ["file"] == names(tmp_path)


async def test_a_program_that_kills_itself_says_so(tmp_path: Path) -> None:
    """Its code is the signal's, below 0."""
    async with LocalEnvironment(tmp_path) as local:
        ran = await local.run(python("import os; os.kill(os.getpid(), 9)"))

    assert -signal.SIGKILL == ran.exit_code


async def test_a_flood_leaves_no_descriptor_and_little_in_memory(tmp_path: Path) -> None:
    """Of 20 MB its end is kept, and every descriptor is closed."""
    async with LocalEnvironment(tmp_path, outputs=tmp_path) as local:
        await local.run(["true"])
        before = len(names("/proc/self/fd"))
        ran = await local.run(["sh", "-c", "yes 0123456789 | head -c 20000000"])

        assert before == len(names("/proc/self/fd"))
    assert 20_000_000 == ran.size
    assert len(ran.output) <= SHOWN_BYTES
    assert ran.saved is not None
    assert 20_000_000 == len(text_of(ran.saved))
