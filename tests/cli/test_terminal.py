"""`turnwright run` with a person at the terminal: asked for approvals, and interrupted by Ctrl-C."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.cli.agents import DESK
from tests.cli.conftest import Record
from tests.cli.server import Messages, serving
from tests.cli.terminal import Terminal
from turnwright import Decision
from turnwright.testing import call, text

REFUND = [call("refund", order="1042", cents=4500), text("Thank you for waiting.")]
QUESTION = "Allow it? y, n, or n and a reason for the model: "
CTRL_C = "\x03"
CTRL_D = "\x04"


def test_a_call_that_a_person_approves_runs(record: Record) -> None:
    """They see the tool, the validated arguments and their digest; anything but yes or no is asked again."""
    replay = record(DESK, "My teapot broke", REFUND, decisions=["approve"])

    with Terminal("run", DESK, "My teapot broke", "--replay", replay) as terminal:
        terminal.wait_for('refund asks for approval\n{\n  "cents": 4500,\n  "order": "1042"\n}\ndigest ')
        terminal.wait_for(QUESTION)
        terminal.type("perhaps\n")
        terminal.wait_for(QUESTION)
        terminal.type("y\n")
        terminal.wait_for("← refund: paid 4500 back for 1042\n")
        terminal.wait_for("Thank you for waiting.\n")

        assert 0 == terminal.end()


@pytest.mark.promise("N-07")
def test_a_denial_and_its_reason_are_told_to_the_model(record: Record) -> None:
    """The recording answers only a request in which the reason stands as it was typed."""
    replay = record(DESK, "My teapot broke", REFUND, decisions=[Decision(approved=False, reason="it was insured")])

    with Terminal("run", DESK, "My teapot broke", "--replay", replay) as terminal:
        terminal.wait_for(QUESTION)
        terminal.type("n it was insured\n")
        terminal.wait_for("← refund: denied: it was insured\n")
        terminal.wait_for("Thank you for waiting.\n")

        assert (0, False) == (terminal.end(), "paid" in terminal.seen)


def test_what_was_typed_before_the_question_is_no_answer(record: Record) -> None:
    """Keys pressed while nothing was asked cannot approve what nobody has seen."""
    replay = record(DESK, "My teapot broke", REFUND, decisions=["deny"])

    with Terminal("run", DESK, "My teapot broke", "--replay", replay) as terminal:
        terminal.type("y\n")
        terminal.wait_for(QUESTION)
        terminal.type("n\n")
        terminal.wait_for("Thank you for waiting.\n")

        assert (0, False) == (terminal.end(), "paid" in terminal.seen)


@pytest.mark.parametrize(("key", "code"), [(CTRL_D, 3), (CTRL_C, 130)])
def test_a_question_that_is_left_stays_open(record: Record, key: str, code: int) -> None:
    """Ending the input or interrupting is neither yes nor no: nothing runs, and the call is listed as pending."""
    replay = record(DESK, "My teapot broke", REFUND)

    with Terminal("run", DESK, "My teapot broke", "--replay", replay) as terminal:
        terminal.wait_for(QUESTION)
        terminal.type(key)
        terminal.wait_for("refund asks for approval")
        terminal.wait_for("suspended (approval)")

        assert (code, False) == (terminal.end(), "paid" in terminal.seen)


def test_ctrl_c_ends_an_answer_in_good_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run suspends, what was said stays readable, no traceback is shown and no process is left."""
    over = threading.Event()

    def answer(messages: Messages) -> Iterator[str]:
        yield "Let me think"
        over.wait(60)

    with serving(answer) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        with Terminal("run", DESK, "Hello", "-m", "openai:parrot") as terminal:
            terminal.wait_for("Let me think")
            terminal.type(CTRL_C)
            terminal.wait_for("suspended (cancelled): interrupted; nothing of it runs any more")
            code = terminal.end()
        over.set()

    assert (130, False, False) == (code, "Traceback" in terminal.seen, terminal.has_left_something())


@pytest.mark.parametrize("tool", ["pay", "block"])
def test_ctrl_c_leaves_no_tool_running_and_says_what_is_in_doubt(record: Record, tool: str) -> None:
    """Also a thread that nothing can interrupt ends with the process; nobody is told that the call did not happen."""
    replay = record(DESK, "Pay", [call(tool), text("")], harmless=True)

    with Terminal("run", DESK, "Pay", "--replay", replay) as terminal:
        terminal.wait_for(f"running {tool}")
        terminal.type(CTRL_C)
        terminal.wait_for(f"{tool} is in doubt")
        terminal.wait_for("find out whether it took effect before you run again")
        code = terminal.end()

        assert (130, False, False) == (code, "Traceback" in terminal.seen, terminal.has_left_something())


def test_colour_is_for_terminals_and_never_from_content(record: Record) -> None:
    """The command's own words are coloured; a tool that says "clear the screen" is only quoted."""
    replay = record(DESK, "My teapot broke", [call("look_up", order="1042"), text("\x1b[2Jgone [red]x[/red]")])

    with Terminal("run", DESK, "My teapot broke", "--replay", replay) as terminal:
        code = terminal.end()

    assert (0, True, False) == (code, "\x1b[" in terminal.raw, "\x1b[2J" in terminal.raw)
    assert "\\x1b[2Jgone [red]x[/red]\n" in terminal.seen


def test_the_making_of_an_output_is_faint_and_the_output_is_not(record: Record) -> None:
    """The model's own JSON may be wrong and be written again; what was accepted stands out."""
    replay = record(f"{DESK}:counting", [1, 2], [text('{"sum":3}')])

    with Terminal("run", f"{DESK}:counting", "[1, 2]", "--replay", replay) as terminal:
        code = terminal.end()

    assert (0, True, True) == (
        code,
        '\x1b[2m{"sum":3}\x1b[0m' in terminal.raw,
        '\r\n{\r\n  "sum": 3\r\n}' in terminal.raw,
    )
