"""`turnwright chat`: a conversation whose every line is a run that sees the runs before it."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator

import pytest

from tests.cli.agents import DESK
from tests.cli.server import Messages, serving
from tests.cli.terminal import Terminal
from turnwright.cli import main

CTRL_C = "\x03"
CTRL_D = "\x04"


def recall(messages: Messages) -> Iterator[str]:
    """Answer with all that was said before, but for the instruction."""
    yield "I heard: "
    yield " / ".join([each["content"] for each in messages if each["role"] != "system"])


@pytest.fixture
def conversing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a server that recalls everything answer for openai."""
    with serving(recall) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        yield


@pytest.mark.usefixtures("conversing")
def test_a_line_is_answered_with_the_lines_before_it_in_sight() -> None:
    """The second answer holds the first line, its answer, and the second line, in this order."""
    with Terminal("chat", "-m", "openai:parrot") as terminal:
        terminal.wait_for("chat with openai:parrot")
        terminal.wait_for("> ")
        terminal.type("red\n")
        terminal.wait_for("I heard: red\n")
        terminal.wait_for("> ")
        terminal.type("blue\n")
        terminal.wait_for("I heard: red / I heard: red / blue\n")
        terminal.wait_for("> ")
        terminal.type("/exit\n")

        assert 0 == terminal.end()


def test_ctrl_c_interrupts_the_answer_and_not_the_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next line is answered as ever; Ctrl-D ends it all."""
    over = threading.Event()

    def answer(messages: Messages) -> Iterator[str]:
        if messages[-1]["content"] == "wait":
            yield "Well"
            over.wait(60)
        else:
            yield from recall(messages)

    with serving(answer) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        with Terminal("chat", DESK, "-m", "openai:parrot") as terminal:
            terminal.wait_for("> ")
            terminal.type("wait\n")
            terminal.wait_for("Well")
            terminal.type(CTRL_C)
            terminal.wait_for("suspended (cancelled)")
            terminal.wait_for("> ")
            terminal.type("go on\n")
            terminal.wait_for("I heard: wait / go on\n")
            terminal.wait_for("> ")
            terminal.press_until(CTRL_C, "/exit or Ctrl-D ends the conversation")
            terminal.wait_for("> ")
            terminal.type(CTRL_D)
            code = terminal.end()
        over.set()

    assert (0, False) == (code, "Traceback" in terminal.seen)


@pytest.mark.usefixtures("conversing")
def test_a_script_gives_its_lines_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No prompt is shown, blank lines say nothing, and the conversation ends with the input."""
    monkeypatch.setattr("sys.stdin", io.StringIO("red\n\nblue\n"))

    code = main(["chat", "-m", "openai:parrot"])

    shown = [line for line in capsys.readouterr().out.splitlines() if "completed" not in line]
    assert (0, ["I heard: red", "I heard: red / I heard: red / blue"]) == (code, shown)


def test_a_script_learns_from_the_exit_code_that_a_line_was_not_answered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server that nobody can reach is told as run tells it."""
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setattr("sys.stdin", io.StringIO("red\n"))

    assert (3, 1) == (main(["chat", "-m", "openai:gpt"]), capsys.readouterr().err.count("suspended (model)"))
