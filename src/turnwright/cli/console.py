"""Show a run to a person, and ask them. Rule: content is printed as it is, never as markup, and only through `visible`.

The answer, the calls and their results go to one stream as they happen; why a run did not complete, and what the
command cannot do, goes to the standard error. Colour and a spinner are for terminals alone.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, assert_never

from rich.console import Console
from rich.status import Status

from turnwright.admission import rendering
from turnwright.cli.visible import one_line, visible
from turnwright.deltas import AttemptReset, ReasoningDelta, TextDelta, ToolCallDelta, UsageDelta
from turnwright.inbox import Approve, Deny
from turnwright.lifecycle import (
    AgentEnd,
    AgentStart,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
    TurnStart,
)
from turnwright.messages import AssistantMessage, ToolMessage
from turnwright.outcomes import Cancelled, Completed, Failed, Pending, Suspended
from turnwright.streaming import StreamItem

__all__ = ["Screen"]

RESULT_LINES: Final = 8
RESULT_LENGTH: Final = 1000
"""How much of a tool's result is shown; the model and the journal have all of it."""

QUESTION: Final = "Allow it? y, n, or n and a reason for the model: "


class Screen:
    """Where a person watches runs, one after another.

    With *answer_apart* the standard output is left to somebody else, and everything goes to the standard error.
    """

    def __init__(self, *, answer_apart: bool = False) -> None:
        self._out = _console(stderr=answer_apart)
        self._err = _console(stderr=True)
        self.text_style: str | None = None
        """How the model's text looks. Faint where it is but the making of an output that is shown after it."""
        self.settled: frozenset[str] = frozenset()
        """The calls whose results are known before the run goes on. They are not shown as starting: none runs again."""
        self._spinner: Status | None = None
        self._in_line = False
        """Whether the last thing shown was text that has not ended its line."""
        self._said = False
        """Whether the text of the message that is being said was shown piece by piece."""
        self._running: dict[str, str] = {}
        plain = self._out.options.ascii_only
        self._arrows = ("->", "<-") if plain else ("→", "←")
        self._spinner_name = "line" if plain else "dots"

    @property
    def can_ask(self) -> bool:
        """Whether a person is there who sees a question and can answer it."""
        return sys.stdin.isatty() and self._out.file.isatty()

    # --- a run

    def show(self, item: StreamItem[object]) -> None:
        """Show the next thing that happened in a run."""
        match item:
            case TextDelta():
                self._said = True
                self._text(item.text)
            case MessageStart(role="assistant"):
                self._said = False
            case MessageEnd(role="assistant", message=AssistantMessage() as message):
                if not self._said:
                    self._text(message.text)
                self._end_line()
            case AttemptReset():
                self.note("asked again, because that answer was lost")
            case ToolExecutionStart():
                self._start_call(item)
            case ToolExecutionUpdate():
                self._print(f"  {one_line(item.text)}", style="dim")
            case ToolExecutionEnd():
                self._end_call(item)
            case TurnStart():
                self.wait("thinking")
            case AgentEnd():
                self.rest()
            case ReasoningDelta() | ToolCallDelta() | UsageDelta():
                pass
            case AgentStart() | MessageStart() | MessageUpdate() | MessageEnd() | TurnEnd():
                pass
            case Completed() | Suspended() | Failed() | Cancelled():
                pass
            case _:
                assert_never(item)

    def wait(self, what: str) -> None:
        """Say what is being waited for, until the next thing is shown; on a terminal only."""
        self._end_line()
        if self._spinner is None:
            self._spinner = self._out.status("", spinner=self._spinner_name)
            self._spinner.start()
        # A renderable of its own, so that nothing in it is read as markup.
        self._spinner.update(status=self._out.render_str(one_line(what, width=60), markup=False, emoji=False))

    def rest(self) -> None:
        """Wait for nothing any more, and end the line."""
        self._end_line()
        self._stop_waiting()

    def label(self, label: str) -> None:
        """Head what follows with *label*."""
        self._print(one_line(label), style="bold")

    def note(self, text: str) -> None:
        """Say something that is neither the model's nor a tool's."""
        self._print(visible(text), style="dim")

    def answer(self, line: bytes) -> None:
        """Give a program one line on the standard output, which is its alone."""
        sys.stdout.buffer.write(line)
        sys.stdout.flush()

    def line(self, line: str) -> None:
        """Show one line of a list or an account."""
        self._print(visible(line))

    def text(self, text: str) -> None:
        """Show an output that is text, and was not shown while it was being said."""
        self._print(visible(text))

    def output(self, output: object) -> None:
        """Show an output that is more than text."""
        self._print(visible(json.dumps(output, ensure_ascii=False, indent=2)))

    def ask(self, pending: Pending) -> Approve | Deny | None:
        """Ask whether a call may run with exactly what is shown. None: they did not say."""
        # What was typed before the question could be seen is no answer to it.
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
        self.pending(pending)
        while line := self._answer(QUESTION):
            word, _, reason = line.strip().partition(" ")
            match word.lower():
                case "y" | "yes" if not reason:
                    return Approve(pending.effect_id, pending.digest, by="terminal", level=pending.level)
                case "n" | "no":
                    return Deny(pending.effect_id, reason.strip(), by="terminal")
                case _:
                    pass
        return None

    def pending(self, pending: Pending) -> None:
        """Show what a run waits for: the call, whole, and the digest that binds it."""
        asks = "asks for approval" if pending.kind == "approval" else f"is in doubt: {one_line(pending.why)}"
        level = f" of level {pending.level}" if pending.level > 1 else ""
        self._print(f"{visible(pending.tool)} {asks}{level}", style="bold yellow")
        self._print(visible(rendering(pending.arguments)))
        self._print(f"digest {pending.digest}", style="dim")

    # --- people

    def error(self, message: str) -> None:
        """Say in one line what went wrong."""
        self.rest()
        self._err.out(one_line(message, width=2000), style="red")

    def warn(self, lines: Sequence[str]) -> None:
        """Say something that must not be missed."""
        self.rest()
        width = max([len(line) for line in lines])
        for line in ["=" * width, *map(one_line, lines), "=" * width]:
            self._err.out(line, style="bold yellow")

    # --- the parts

    def _start_call(self, call: ToolExecutionStart) -> None:
        if call.tool_call_id in self.settled:
            return
        self._print(f"{self._arrows[0]} {visible(call.tool_name)} {one_line(call.arguments)}", style="cyan")
        self._running[call.tool_call_id] = call.tool_name
        self._wait_for_tools()

    def _end_call(self, call: ToolExecutionEnd) -> None:
        self._running.pop(call.tool_call_id, None)
        shown = "nobody knows whether it took effect" if call.result is None else _bounded(call.result)
        text = f"{self._arrows[1]} {visible(call.tool_name)}: {shown}"
        self._print(text, style="red" if call.is_error else "green")
        self._wait_for_tools()

    def _wait_for_tools(self) -> None:
        if self._running:
            self.wait(f"running {', '.join(self._running.values())}")
        else:
            self._stop_waiting()

    def _answer(self, question: str) -> str:
        """Ask, and return the line that a person typed, empty if they ended the input."""
        with _heard_signals() as signals:
            self._print(question, end="")
            self._in_line = True
            select.select([sys.stdin, signals], [], [])
            line = sys.stdin.readline()
        self._in_line = not line  # what was typed ends with its own
        return line

    def _text(self, text: str) -> None:
        if text:
            self._stop_waiting()
            self._out.out(visible(text), style=self.text_style, end="")
            self._in_line = not text.endswith("\n")

    def _print(self, text: str, *, style: str | None = None, end: str = "\n") -> None:
        self._end_line()
        self._out.out(text, style=style, end=end)

    def _end_line(self) -> None:
        if self._in_line:
            self._in_line = False
            self._out.out("")

    def _stop_waiting(self) -> None:
        if self._spinner is not None:
            self._spinner.stop()
            self._spinner = None


def _console(*, stderr: bool) -> Console:
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)


@contextmanager
def _heard_signals() -> Iterator[int]:
    """Give what becomes readable when a signal comes, because one that comes just before a read does not end it."""
    heard, told = os.pipe()
    os.set_blocking(told, False)
    before = signal.set_wakeup_fd(told)
    try:
        yield heard
    finally:
        signal.set_wakeup_fd(before)
        os.close(heard)
        os.close(told)


def _bounded(result: ToolMessage) -> str:
    text = result.text
    lines = visible(text[:RESULT_LENGTH]).splitlines()[:RESULT_LINES]
    shown = "\n  ".join(lines)
    left = len(text) - len("\n".join(lines))
    return f"{shown} (and {left:,} characters more)" if left > 0 else shown
