"""`turnwright run` without a terminal: what it shows, what it gives to programs, how it ends."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.agents import DESK, MAILS
from tests.cli.conftest import Record
from tests.cli.server import Messages, serving
from turnwright.cli import main
from turnwright.testing import call, text
from turnwright_adapters.sqlite import SqliteState

REFUND = [call("look_up", order="1042"), call("refund", order="1042", cents=4500), text("It is on its way to you.")]


def without_times(shown: str) -> str:
    """Return *shown* with every duration made the same."""
    return re.sub(r"\d+\.\d s", "0.0 s", shown)


def test_text_calls_and_results_are_shown_in_their_order(record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    """A person reads the call, its result, the answer, and what it all used."""
    replay = record(DESK, "My teapot broke", [call("look_up", order="1042"), text("Sorry.\nIt is paid back.")])

    code = main(["run", DESK, "My teapot broke", "--replay", replay])

    shown = [
        "desk with replay:recording.jsonl",
        '→ look_up {"order":"1042"}',
        "← look_up: order 1042: a teapot,\\x1b[2J [bold]broken[/bold]",
        "Sorry.",
        "It is paid back.",
        "completed in 0.0 s; 2 requests, 0 tokens in, 0 out, 1 tool call",
    ]
    assert (0, shown, "") == (code, without_times((seen := capsys.readouterr()).out).splitlines(), seen.err)


def test_text_is_shown_while_it_is_being_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The second piece is said only after the first was written, so nothing waits for the whole answer."""
    out = tmp_path / "out"

    def answer(messages: Messages) -> Iterator[str]:
        yield "first, "
        assert first_seen.wait(20)
        yield "then"

    first_seen = threading.Event()
    with serving(answer) as url, out.open("w", encoding="utf-8") as file:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        monkeypatch.setattr("sys.stdout", _Watched(file, "first, ", first_seen))
        code = main(["run", DESK, "Hello", "-m", "openai:parrot"])

    assert (0, "first, then") == (code, out.read_text(encoding="utf-8").splitlines()[1])


class _Watched:
    """A stream that tells when something was written to it."""

    def __init__(self, file: object, awaited: str, seen: threading.Event) -> None:
        self._file = file
        self._awaited = awaited
        self._seen = seen

    def write(self, text: str) -> int:
        if self._awaited in text:
            self._seen.set()
        return self._file.write(text)  # type: ignore[attr-defined, no-any-return]

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


def test_without_a_terminal_a_call_stays_pending_and_is_listed(
    record: Record, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody can be asked, so nothing is paid; the call, its arguments, its digest and the remedies are shown."""
    replay = record(DESK, "My teapot broke", REFUND)

    code = main(["run", DESK, "My teapot broke", "--replay", replay])

    seen = capsys.readouterr()
    assert 3 == code
    assert "paid 4500" not in seen.out
    assert re.search(
        r'refund asks for approval\n\{\n  "cents": 4500,\n  "order": "1042"\n\}\ndigest [0-9a-f]{64}\n', seen.out
    )
    assert (
        "suspended (approval): nobody has answered; run it on a terminal, or answer all with --yes or --no\n"
        == seen.err
    )


@pytest.mark.parametrize(
    ("option", "decision", "result"),
    [("--yes", "approve", "← refund: paid 4500 back for 1042"), ("--no", "deny", "← refund: denied")],
)
def test_one_option_answers_every_question(
    record: Record, capsys: pytest.CaptureFixture[str], option: str, decision: str, result: str
) -> None:
    """With --yes the call runs, with --no the model is told that it was denied; either way the run goes on."""
    replay = record(DESK, "My teapot broke", REFUND, decisions=[decision])

    code = main(["run", DESK, "My teapot broke", "--replay", replay, option])

    shown = capsys.readouterr().out.splitlines()
    assert (0, True, True) == (code, result in shown, "It is on its way to you." in shown)


def test_json_is_alone_on_the_standard_output(record: Record, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """A program reads one object a run; what people watch goes to the standard error."""
    replay = record(f"{DESK}:counting", [1, 2], [text('{"sum": 3}')])

    code = main(["run", f"{DESK}:counting", "[1, 2]", "--replay", replay, "--json"])

    out, err = capfdbinary.readouterr()
    told = json.loads(out)
    assert (0, 1, b"counting with replay") == (code, out.count(b"\n"), err[:20])
    assert {"outcome": "completed", "output": {"sum": 3}, "model": "replay:recording.jsonl"} == {
        name: told[name] for name in ("outcome", "output", "model")
    }
    assert {"requests": 1, "tool_calls": 0}.items() <= told["usage"].items()
    assert re.fullmatch(r"[0-9a-f]{64}", told["evidence_head"])


def test_json_names_what_a_run_waits_for(record: Record, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """A pending call is told with its effect id and digest, so that a program can decide over it."""
    replay = record(DESK, "My teapot broke", REFUND)

    code = main(["run", DESK, "My teapot broke", "--replay", replay, "--json"])

    told = json.loads(capfdbinary.readouterr().out)
    pending = told["pending"][0]
    assert (3, "suspended", "approval") == (code, told["outcome"], told["reason"])
    assert ("refund", {"order": "1042", "cents": 4500}) == (pending["tool"], pending["arguments"])
    assert f"{told['run_id']}:2.0" == pending["effect_id"]


def test_json_of_every_outcome_has_the_same_members(record: Record, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """A program need not ask first how a run ended to know where to look."""
    replay = record(DESK, "Hello", [text("Hello.")])
    members = []
    for said in ("Hello", "something that was not recorded"):
        main(["run", DESK, said, "--replay", replay, "--json"])
        members.append(json.loads(capfdbinary.readouterr().out).keys())

    assert members[0] == members[1]


def test_several_inputs_are_run_one_after_another_and_the_worst_counts(
    record: Record, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One answer is recorded and the other is not: both are tried, the module writes down what there is, and the
    command says that one waits.
    """
    box = tmp_path / "box"
    box.write_text("Hello\nWho are you?\n", encoding="utf-8")
    replay = record(MAILS, "Hello", [text("Good day.")])

    code = main(["run", MAILS, str(box), "--all", "--replay", replay])

    shown = capsys.readouterr().out.splitlines()
    drafts = box.with_suffix(".drafts")
    assert (3, f"written: {drafts}") == (code, shown[-1])
    assert ["mail 1", "mail 2"] == [line for line in shown if line.startswith("mail ")]
    assert "mail 1: Good day." == drafts.read_text(encoding="utf-8")


def test_without_all_only_the_first_input_is_run(
    record: Record, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The module is asked for the first of its inputs alone."""
    box = tmp_path / "box"
    box.write_text("Hello\nWho are you?\n", encoding="utf-8")
    replay = record(MAILS, "Hello", [text("Good day.")])

    code = main(["run", MAILS, str(box), "--replay", replay])

    assert (0, 1) == (code, capsys.readouterr().out.count("Good day."))


def test_a_run_that_needs_more_turns_says_which_option_gives_them(
    record: Record, capsys: pytest.CaptureFixture[str]
) -> None:
    """--max-turns bounds the run, which suspends."""
    replay = record(DESK, "My teapot broke", REFUND)

    code = main(["run", DESK, "My teapot broke", "--replay", replay, "--max-turns", "1"])

    told = "suspended (max_turns): it has used up its turns; raise --max-turns\n"
    assert (3, told) == (code, capsys.readouterr().err)


def test_a_run_without_valid_output_fails_with_the_issues(record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    """Failing is not waiting: the code differs, and the reason is told."""
    replay = record(f"{DESK}:counting", [1], [text("I cannot count.")] * 3)

    code = main(["run", f"{DESK}:counting", "[1]", "--replay", replay])

    assert (1, "failed (output): no valid output") == (code, capsys.readouterr().err[:32])


def test_what_was_recorded_can_be_replayed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """--record keeps what a model said; --replay needs no model for it."""
    path = str(tmp_path / "kept.jsonl")
    with serving(lambda _: ["Good ", "day."]) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        recorded = main(["run", DESK, "Hello", "-m", "openai:parrot", "--record", path])

    assert (0, 0) == (recorded, main(["run", DESK, "Hello", "--replay", path]))


def test_without_any_model_the_recording_beside_the_module_is_replayed_loudly(
    record: Record, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The first run of an example never fails, and never lets anybody think that a model answered."""
    module = tmp_path / "example.py"
    module.write_text(Path(MAILS).read_text(encoding="utf-8"), encoding="utf-8")
    box = tmp_path / "box"
    box.write_text("Hello", encoding="utf-8")
    recording = Path(record(str(module), "Hello", [text("Good day.")]))
    (tmp_path / "recordings").mkdir()
    recording.rename(tmp_path / "recordings" / "example.jsonl")

    code = main(["run", str(module), str(box)])

    seen = capsys.readouterr()
    assert (0, True) == (code, "Good day." in seen.out.splitlines())
    assert "NO MODEL ANSWERS HERE: this replays a recorded conversation." == seen.err.splitlines()[1]


def test_a_run_with_a_store_is_kept_while_it_waits(
    record: Record, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Another opening of the file finds the run that was named, waiting for its approval."""
    path = tmp_path / "runs.db"
    replay = record(DESK, "My teapot broke", REFUND)

    code = main(["run", DESK, "My teapot broke", "--replay", replay, "--state", f"sqlite:{path}"])

    async def kept() -> list[str]:
        async with SqliteState(path) as state:
            return [head.run_id for head in await state.runs(status="suspended")]

    named = re.findall(r"^run (\S+)$", capsys.readouterr().out, re.MULTILINE)
    assert (3, named, 1) == (code, asyncio.run(kept()), len(named))
