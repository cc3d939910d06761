"""`turnwright chat`: a conversation with the stateful agent, on a terminal and for a script."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path

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
            terminal.wait_for("cancelled: aborted")
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


def test_a_line_that_is_typed_while_the_agent_works_steers_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is queued at once, and delivered at the next turn of the same answer."""
    may_end = threading.Event()

    def answer(messages: Messages) -> Iterator[str]:
        if messages[-1]["content"] == "begin":
            yield "Beginning"
            may_end.wait(60)
            yield " ends."
        else:
            yield from recall(messages)

    with serving(answer) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        with Terminal("chat", "-m", "openai:parrot") as terminal:
            terminal.wait_for("> ")
            terminal.type("begin\n")
            terminal.wait_for("Beginning")
            terminal.type("/usage\n")
            terminal.wait_for("commands wait until the answer is there")
            terminal.type("hurry\n")
            terminal.wait_for("queued: hurry")
            may_end.set()
            terminal.wait_for("I heard: begin / Beginning ends. / hurry\n")
            terminal.wait_for("> ")
            terminal.type("/exit\n")

            assert 0 == terminal.end()


def script(monkeypatch: pytest.MonkeyPatch, *lines: str, more: tuple[str, ...] = ()) -> int:
    """Have a script say *lines*."""
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join([*lines, ""])))
    return main(["chat", "-m", "openai:parrot", *more])


@pytest.mark.usefixtures("conversing")
def test_commands_tell_of_the_conversation_and_change_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Help, tools, usage, another model, and the conversation in a file that is not written over."""
    saved = tmp_path / "said.json"
    lines = ("/help", "/tools", "red", "/usage", "/model openai:other", "blue", f"/save {saved}", f"/save {saved}")

    code = script(monkeypatch, *lines)

    told = capsys.readouterr()
    said = json.loads(saved.read_text())
    assert ["red", "I heard: red", "blue", "I heard: red / I heard: red / blue"] == [
        "".join([part["text"] for part in message["parts"]]) for message in said
    ]
    for line in ("/continue ", "no tools", "1 requests, ", "openai:other answers from now on", f"saved: {saved}"):
        assert line in told.out
    assert (2, True) == (code, "name a new file" in told.err)


@pytest.mark.usefixtures("conversing")
@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("/sing", "there is no '/sing' as it was given"),
        ("/continue", "there is nothing yet"),
        ("/image", "no path"),
        ("/image notes.txt what", "'notes.txt' is no picture by its name"),
        ("/image gone.png", "gone.png: No such file"),
        ("/file", "what 'no path' holds is not told by its name"),
        ("/file gone.pdf sum up", "gone.pdf: No such file"),
        ("/model nowhere:x", "nowhere"),
    ],
)
def test_a_command_that_cannot_be_done_is_one_line_and_the_conversation_goes_on(
    line: str, complaint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next line is answered as ever."""
    code = script(monkeypatch, line, "red")

    told = capsys.readouterr()
    assert (2, 1, True) == (code, len(told.err.splitlines()), "I heard: red" in told.out)
    assert complaint in told.err


@pytest.mark.promise("I-01")
def test_a_picture_is_shown_by_its_path(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The model gets its bytes and the words beside it."""
    path = tmp_path / "cat.png"
    path.write_bytes(b"\x89PNG cat")
    seen: list[object] = []

    def answer(messages: Messages) -> Iterator[str]:
        seen.extend(messages[-1]["content"])
        yield "a cat"

    with serving(answer) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        code = script(monkeypatch, f"/image {path} who is this?")

    data = base64.b64encode(path.read_bytes()).decode()
    assert (0, True) == (code, f"data:image/png;base64,{data}" in json.dumps(seen))
    assert "who is this?" in json.dumps(seen)


@pytest.mark.promise("I-01")
def test_a_document_is_given_by_its_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The model gets its bytes, its name and the words beside it; of a text its text."""
    (tmp_path / "bill.pdf").write_bytes(b"%PDF-1.4 bill")
    (tmp_path / "note.txt").write_text("call ada", encoding="utf-8")
    seen: list[object] = []

    def answer(messages: Messages) -> Iterator[str]:
        seen.append(messages[-1]["content"])
        yield "a bill"

    with serving(answer) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        code = script(monkeypatch, f"/file {tmp_path / 'bill.pdf'} what is due?", f"/file {tmp_path / 'note.txt'}")

    bill = base64.b64encode(b"%PDF-1.4 bill").decode()
    assert 0 == code
    assert [
        [
            {"type": "text", "text": "what is due?"},
            {"type": "file", "file": {"filename": "bill.pdf", "file_data": f"data:application/pdf;base64,{bill}"}},
        ],
        "What is this?\nThe file note.txt:\ncall ada\n",
    ] == seen


@pytest.mark.usefixtures("conversing")
def test_a_conversation_in_a_store_goes_on_in_another_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The session that was named is found again, with all that was said."""
    more = ("--state", f"sqlite:{tmp_path / 'chat.db'}", "--session", "s1")
    script(monkeypatch, "red", more=more)

    code = script(monkeypatch, "blue", more=more)

    assert (0, True) == (code, "I heard: red / I heard: red / blue" in capsys.readouterr().out)
