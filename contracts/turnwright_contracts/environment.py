"""What every execution environment must do: see `turnwright.environment.Environment`."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from turnwright.environment import SHOWN_BYTES, SHOWN_LINES, Entry, Environment
from turnwright.errors import PortError
from turnwright_contracts.running import scenario

__all__ = ["EnvironmentSuite"]


class EnvironmentSuite:
    """Subclass it and say how an environment is made that is empty. It must have `sh` and what POSIX gives one."""

    def make(self, place: Path) -> AbstractAsyncContextManager[Environment]:
        """Give an empty environment."""
        raise NotImplementedError

    @scenario
    async def test_a_file_holds_what_was_written_last(self, tmp_path: Path) -> None:
        """Its directories are made, and it stands among the entries."""
        async with self.make(tmp_path) as environment:
            await environment.write("a/b.bin", b"\x00\xff")
            await environment.write("a/b.bin", b"one")
            await environment.edit("a/b.bin", lambda data: data + b" two")

            assert b"one two" == await environment.read("a/b.bin")
            assert [Entry("b.bin", "file", 7)] == list(await environment.entries("a"))
            assert [("a", "directory")] == [(entry.name, entry.kind) for entry in await environment.entries()]

    @scenario
    async def test_a_change_that_fails_changes_nothing(self, tmp_path: Path) -> None:
        """And what it raised is told."""

        def fails(data: bytes) -> bytes:
            raise ZeroDivisionError

        async with self.make(tmp_path) as environment:
            await environment.write("a", b"one")
            with pytest.raises(ZeroDivisionError):
                await environment.edit("a", fails)

            assert b"one" == await environment.read("a")
            assert ["a"] == [entry.name for entry in await environment.entries()]

    @scenario
    async def test_changes_happen_in_the_order_of_their_asking(self, tmp_path: Path) -> None:
        """Each sees what the one before it made."""
        async with self.make(tmp_path) as environment:
            await environment.write("a", b"")
            await asyncio.gather(*[environment.edit("a", _adds(f"{n}")) for n in range(10)])

            assert b"0123456789" == await environment.read("a")

    @pytest.mark.parametrize("path", ["../out", "/etc/passwd", "a/../../out", "a\0b", "none"])
    @scenario
    async def test_a_path_that_leads_nowhere_is_refused(self, tmp_path: Path, path: str) -> None:
        """Out of the environment, or to what is not there."""
        async with self.make(tmp_path) as environment:
            for attempt in (
                environment.read(path),
                environment.edit(path, lambda data: data),
                environment.entries(path),
                environment.run(["true"], cwd=path),
            ):
                with pytest.raises(PortError):
                    await attempt

    @scenario
    async def test_a_file_that_is_too_large_is_not_read(self, tmp_path: Path) -> None:
        """By one byte."""
        async with self.make(tmp_path) as environment:
            await environment.write("a", b"x" * 11)
            with pytest.raises(PortError):
                await environment.read("a", at_most=10)

            assert 11 == len(await environment.read("a", at_most=11))

    @scenario
    async def test_a_program_has_a_code_an_output_and_a_directory(self, tmp_path: Path) -> None:
        """Its arguments are read by no shell, its input is empty, and a code other than 0 is no error."""
        pieces: list[bytes] = []
        async with self.make(tmp_path) as environment:
            await environment.write("sub/here", b"")
            ran = await environment.run(
                ["sh", "-c", 'ls; cat; echo "$0" >&2; exit 3', "$(id); *"], cwd="sub", on_output=pieces.append
            )

        assert (3, False, "here\n$(id); *\n") == (ran.exit_code, ran.timed_out, ran.output)
        assert (2, 14, 8, False, None) == (ran.lines, ran.size, ran.last_line, ran.truncated, ran.saved)
        assert ran.output.encode() == b"".join(pieces)

    @scenario
    async def test_of_a_long_output_the_end_is_shown(self, tmp_path: Path) -> None:
        """Whole lines where that is possible, and all of it is somewhere."""
        many = f"i=0; while [ $i -lt {SHOWN_LINES + 5} ]; do echo $i; i=$((i+1)); done"
        async with self.make(tmp_path) as environment:
            lines = await environment.run(["sh", "-c", many])
            line = await environment.run(["sh", "-c", f"printf 'é%.0s' $(seq {SHOWN_BYTES})"])

        assert [str(n) for n in range(5, SHOWN_LINES + 5)] == lines.output.splitlines()
        assert (SHOWN_LINES + 5, True) == (lines.lines, lines.truncated)
        assert (1, 2 * SHOWN_BYTES, {"é"}) == (line.lines, line.last_line, {*line.output})
        assert None not in {lines.saved, line.saved}

    @pytest.mark.parametrize("timeout", [0, -1.0, math.nan, math.inf])
    @scenario
    async def test_a_timeout_that_means_nothing_is_refused(self, tmp_path: Path, timeout: float) -> None:
        """And nothing runs."""
        async with self.make(tmp_path) as environment:
            with pytest.raises(ValueError, match="timeout"):
                await environment.run(["touch", "ran"], timeout=timeout)

            assert [] == list(await environment.entries())

    @scenario
    async def test_a_program_whose_time_is_up_keeps_what_it_wrote(self, tmp_path: Path) -> None:
        """It is ended, and its code is nobody's."""
        async with self.make(tmp_path) as environment:
            ran = await environment.run(["sh", "-c", "echo so far; sleep 600"], timeout=1.0)

        assert (None, True, "so far\n") == (ran.exit_code, ran.timed_out, ran.output)

    @scenario
    async def test_whoever_holds_the_pipe_holds_nobody_up(self, tmp_path: Path) -> None:
        """A program is over when it has exited."""
        async with self.make(tmp_path) as environment:
            ran = await environment.run(["sh", "-c", "sleep 600 & echo over"])

        assert (0, "over\n") == (ran.exit_code, ran.output)

    @scenario
    async def test_a_cancelled_program_ends(self, tmp_path: Path) -> None:
        """The next one runs."""
        begun = asyncio.Event()
        async with self.make(tmp_path) as environment:
            running = asyncio.ensure_future(
                environment.run(["sh", "-c", "echo on; sleep 600"], on_output=lambda _: begun.set())
            )
            await begun.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running

            assert "next\n" == (await environment.run(["echo", "next"])).output

    @scenario
    async def test_closing_ends_what_runs(self, tmp_path: Path) -> None:
        """Whoever waits for it is told; closing again does nothing."""
        begun = asyncio.Event()
        async with self.make(tmp_path) as environment:
            running = asyncio.ensure_future(
                environment.run(["sh", "-c", "echo on; sleep 600"], on_output=lambda _: begun.set())
            )
            await begun.wait()
            await environment.aclose()
            await environment.aclose()

            with pytest.raises(PortError):
                await running

    @scenario
    async def test_a_program_has_the_variables_that_it_is_given(self, tmp_path: Path) -> None:
        """And none of the host's."""
        async with self.make(tmp_path) as environment:
            ran = await environment.run(["/bin/sh", "-c", 'echo "$GIVEN-$HOME-$USER"'], env={"GIVEN": "one"})

        assert "one--\n" == ran.output

    @scenario
    async def test_a_program_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        """And arguments that are none are refused at once."""
        async with self.make(tmp_path) as environment:
            with pytest.raises(PortError, match="no-such-program"):
                await environment.run(["no-such-program"])
            for argv in ("ls -l", [], ["a\0b"]):
                with pytest.raises(ValueError, match="argv"):
                    await environment.run(argv)


def _adds(more: str) -> Callable[[bytes], bytes]:
    return lambda data: data + more.encode()
