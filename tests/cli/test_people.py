"""What people say to a run that is kept in a store, from processes of their own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from threading import Timer
from typing import TypeAlias

import pytest

from tests.cli.agents import DESK, NESTED, TILL
from tests.cli.conftest import Record
from tests.cli.keeping import Kept, doubted, suspended
from tests.cli.server import Messages, serving
from tests.cli.terminal import TURNWRIGHT, WITHIN, Terminal
from tests.postgres import conninfo
from turnwright import Decision, Ports, run_agent
from turnwright.cli import main
from turnwright.cli.loading import load
from turnwright.facts import ApprovalDecided, CallResolved, InboxReceived, RunCancelled, RunCompleted
from turnwright.inbox import Approve
from turnwright.ports import Lease
from turnwright.testing import Reply, ScriptedModel, call, text
from turnwright_adapters.sqlite import SqliteState

REFUND: Sequence[Reply] = [call("refund", order="1042", cents=4500), text("It is on its way to you.")]

PARROT: Sequence[str] = ["-m", "openai:parrot"]

Answering: TypeAlias = list[Mapping[str, str]]


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answering]:
    """Let a server answer for openai that understands everything; gives the messages of its newest request."""
    heard: Answering = []

    def answer(messages: Messages) -> Iterator[str]:
        heard[:] = messages
        yield "Understood."

    with serving(answer) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        yield heard


def turnwright(*words: str) -> tuple[int, str, str]:
    """Run the command in a process of its own: its exit code, and what it said on either stream."""
    ended = subprocess.run(
        [TURNWRIGHT, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=WITHIN
    )
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.promise("N-05", "N-09")
def test_a_run_that_waits_is_approved_and_resumed_by_other_processes(record: Record, tmp_path: Path) -> None:
    """One process runs up to the question, one says yes to what it is shown, and one pays and answers."""
    replay = record(DESK, "My teapot broke", REFUND, decisions=["approve"])
    store = ["--state", f"sqlite:{tmp_path / 'runs.db'}"]

    code, out, _ = turnwright("run", DESK, "My teapot broke", "--replay", replay, "--json", *store)
    run = json.loads(out)
    approved, shown, _ = turnwright("approve", run["run_id"], "1.0", "--by", "anna", *store)
    resumed, told, _ = turnwright("resume", DESK, run["run_id"], "--replay", replay, *store)

    digest = run["pending"][0]["digest"]
    assert (3, 0, 0) == (code, approved, resumed)
    assert f'refund asks for approval\n{{\n  "cents": 4500,\n  "order": "1042"\n}}\ndigest {digest}\n' in shown
    assert ["← refund: paid 4500 back for 1042", "It is on its way to you."] == told.splitlines()[2:4]
    kept = Kept(tmp_path / "runs.db", run["run_id"])
    assert [Approve(f"{kept.run_id}:1.0", digest, "anna", 1)] == kept.words()
    assert [("anna", digest)] == [(each.by, each.digest) for each in kept.facts() if isinstance(each, ApprovalDecided)]


@pytest.mark.promise("N-10")
def test_of_two_processes_that_resume_one_goes_on_and_the_other_is_told(record: Record, tmp_path: Path) -> None:
    """The payment is made once; the other process says that the run is busy, with an exit code of its own."""
    replies = [call("pay", cents=500), text("Paid.")]
    replay = record(TILL, "My teapot broke", replies, decisions=["approve"])
    kept = suspended(tmp_path / "runs.db", TILL, replies)
    till = tmp_path / "till"
    assert 0 == main(["approve", kept.run_id, "1.0", *kept.state])

    command = [TURNWRIGHT, "resume", TILL, kept.run_id, "--replay", replay, *kept.state]
    pipe = subprocess.PIPE
    environ = {**os.environ, "TILL": str(till), "PYTHONUNBUFFERED": "1"}
    both = [subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environ) for _ in range(2)]
    timers = [Timer(WITHIN, each.kill) for each in both]
    for timer in timers:
        timer.start()
    for each in both:  # until it pays, or is told that it cannot
        assert each.stdout is not None
        next((line for line in each.stdout if line.startswith("→ pay")), None)
    told = [each.communicate("go on\n")[1] for each in both]
    for timer in timers:
        timer.cancel()

    codes = [each.returncode for each in both]
    busy = told[codes.index(5)]
    assert ([0, 5], "500\n") == (sorted(codes), till.read_text(encoding="utf-8"))
    assert re.fullmatch(
        rf"turnwright: run '{kept.run_id}' is busy: another holder works on it; retry in \d+\.\d s\n", busy
    )


@pytest.mark.promise("N-10")
def test_a_resume_may_wait_for_a_run_that_another_has(
    tmp_path: Path, answering: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --wait it is told at once; with it, it goes on when the other's lease has run out, as after a kill."""
    kept = doubted(tmp_path / "runs.db")
    assert 0 == main(["resolve", kept.run_id, "1.0", "--happened", "paid", *kept.state])

    async def hold() -> None:
        async with SqliteState(kept.path) as state:
            assert isinstance(await state.acquire(kept.run_id, holder="other", seconds=600.0), Lease)

    asyncio.run(hold())
    resume = ["resume", DESK, kept.run_id, "-m", "openai:parrot", *kept.state]
    told = main(resume)
    busy = capsys.readouterr().err
    with closing(sqlite3.connect(kept.path)) as meddle, meddle:
        meddle.execute("UPDATE runs SET expires = ?", (time.time() + 1,))
    waited = main([*resume, "--wait", "30"])

    assert (5, True, 0) == (told, "is busy: another holder works on it" in busy, waited)


def test_a_person_at_a_terminal_is_asked_when_a_run_is_resumed(record: Record, tmp_path: Path) -> None:
    """The question is that of run, and so is what follows."""
    replay = record(DESK, "My teapot broke", REFUND, decisions=["approve"])
    kept = suspended(tmp_path / "runs.db", DESK, REFUND)

    with Terminal("resume", DESK, kept.run_id, "--replay", replay, *kept.state) as terminal:
        terminal.wait_for("refund asks for approval\n")
        terminal.wait_for("Allow it? ")
        terminal.type("y\n")
        terminal.wait_for("← refund: paid 4500 back for 1042\n")
        terminal.wait_for("It is on its way to you.\n")

        assert 0 == terminal.end()


@pytest.mark.promise("N-07", "N-09")
def test_a_denial_is_recorded_and_told_to_the_model(record: Record, tmp_path: Path) -> None:
    """The recording answers only a request in which the reason stands."""
    no = Decision(approved=False, reason="it was insured")
    replay = record(DESK, "My teapot broke", REFUND, decisions=[no])
    kept = suspended(tmp_path / "runs.db", DESK, REFUND)

    denied = main(["deny", kept.run_id, f"{kept.run_id}:1.0", "--reason", "it was insured", "--by", "ben", *kept.state])
    resumed = main(["resume", DESK, kept.run_id, "--replay", replay, *kept.state])

    decided = [each for each in kept.facts() if isinstance(each, ApprovalDecided)]
    assert (0, 0) == (denied, resumed)
    assert [(False, "ben", "it was insured")] == [(each.approved, each.by, each.reason) for each in decided]


@pytest.mark.promise("N-07", "N-09")
@pytest.mark.case("app-09")
def test_a_call_that_is_refused_beside_one_that_waits_is_not_asked_about(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the one that waits is listed; after the resume each has its one result, and the output is typed."""
    both = [call("final_result", value="not-an-int"), call("refund", order="1042", cents=1)]
    kept = suspended(tmp_path / "runs.db", f"{DESK}:summing", [both])
    heard: list[Messages] = []

    def answer(messages: Messages) -> Iterator[str]:
        heard.append(messages)
        yield "42"

    with serving(answer) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        resume = ["resume", f"{DESK}:summing", kept.run_id, "-m", "openai:parrot", "--json", *kept.state]
        waits = main(resume)
        pending = json.loads(capfdbinary.readouterr().out)["pending"]
        approved = main(["approve", kept.run_id, "1.1", *kept.state])
        capfdbinary.readouterr()
        resumed = main(resume)

    results = [each["content"] for each in heard[0] if each["role"] == "tool"]
    assert (3, 0, 0, 1) == (waits, approved, resumed, len(heard))
    assert [f"{kept.run_id}:1.1"] == [each["effect_id"] for each in pending]
    assert ["there is no tool 'final_result'; available tools: refund", "paid 1 back for 1042"] == results
    assert 42 == json.loads(capfdbinary.readouterr().out)["output"]


@pytest.mark.promise("N-05", "N-09")
@pytest.mark.case("app-15")
@pytest.mark.parametrize(
    ("word", "done", "answer"),
    [(["approve"], ["one"], "did one"), (["deny", "--reason", "not now"], [], "denied: not now")],
)
def test_an_approval_in_a_run_within_a_run_is_found_and_answered(
    word: Sequence[str],
    done: Sequence[str],
    answer: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The innermost run is a run of the store like any other; answered, the outermost goes on through all."""
    path = tmp_path / "runs.db"
    monkeypatch.setenv("RUNS", str(path))
    monkeypatch.setenv("DONE", str(tmp_path / "done"))
    target = load(NESTED)

    async def pause() -> str:
        async with SqliteState(path) as state:
            model = ScriptedModel([call("ask_middle", words="one")])
            ports = Ports(model=model, state=state, cancellation=target.module.stop)
            return (await run_agent(target.definition, "Do it", ports)).run_id

    kept = Kept(path, asyncio.run(pause()))
    main(["runs", "--status", "suspended", "--definition", "inner", *kept.state])
    waiting = capsys.readouterr().out.split()[0]
    said = main([*word, waiting, "1.0", *kept.state])
    with serving(lambda messages: [messages[-1]["content"]]) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        resumed = main(["resume", NESTED, kept.run_id, "-m", "openai:parrot", *kept.state])

    happened = tmp_path / "done"
    assert (0, 0) == (said, resumed)
    assert list(done) == (happened.read_text(encoding="utf-8").splitlines() if happened.exists() else [])
    assert RunCompleted(answer) == kept.facts()[-1]


@pytest.mark.promise("I-07")
@pytest.mark.case("app-06")
@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("0", 0),
        ("false", False),
        ("", ""),
        ('""', ""),
        ("null", None),
        ("[]", []),
        ("{}", {}),
        ("paid 45 to anna", "paid 45 to anna"),
        ('{"cents": 4500}', {"cents": 4500}),
    ],
)
def test_what_a_call_in_doubt_returned_is_taken_as_it_was_said(said: str, value: object, tmp_path: Path) -> None:
    """Also what counts as false is an answer, and is not asked for again."""
    kept = doubted(tmp_path / "runs.db")

    code = main(["resolve", kept.run_id, "1.0", "--happened", said, *kept.state])

    word = kept.words()[0]
    assert (0, "resolve", True) == (code, word.type, getattr(word, "happened", None))
    assert (type(value), value) == (type(output := getattr(word, "output", ...)), output)


@pytest.mark.promise("I-07")
@pytest.mark.case("app-06")
@pytest.mark.parametrize(
    ("said", "happened", "output"),
    [
        (["--happened", '"0"'], True, "0"),
        (["--happened", "paid"], True, "paid"),
        (["--did-not-happen"], False, "this call did not take effect; it may be issued again"),
    ],
)
def test_a_run_goes_on_once_somebody_says_what_became_of_its_call(
    said: Sequence[str], happened: bool, output: str, tmp_path: Path, answering: Answering
) -> None:
    """The model receives exactly that, and the call is not run again."""
    kept = doubted(tmp_path / "runs.db")

    resolved = main(["resolve", kept.run_id, "1.0", *said, *kept.state])
    resumed = main(["resume", DESK, kept.run_id, "-m", "openai:parrot", *kept.state])

    facts = kept.facts()
    assert (0, 0, [output]) == (resolved, resumed, [each["content"] for each in answering if each["role"] == "tool"])
    assert [(happened, output)] == [(each.happened, each.output) for each in facts if isinstance(each, CallResolved)]
    assert 1 == [type(each).__name__ for each in facts].count("CallStarted")


def test_an_output_that_the_tool_would_not_return_changes_nothing(
    tmp_path: Path, answering: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    """The definition is known at the resume alone, which goes on waiting, and says how to answer."""
    kept = doubted(tmp_path / "runs.db", "charge")
    assert 0 == main(["resolve", kept.run_id, "1.0", "--happened", "a lot", *kept.state])

    code = main(["resume", DESK, kept.run_id, "-m", "openai:parrot", *kept.state])

    refused = [each.refused for each in kept.facts() if isinstance(each, InboxReceived)]
    assert (3, [], 1) == (code, answering, len(refused))
    assert "the output is not what the tool returns: " in refused[0]
    assert f"turnwright resolve {kept.run_id} 1.0 --state sqlite:{kept.path}" in capsys.readouterr().out


def test_with_the_agent_at_hand_an_output_that_its_tool_would_not_return_is_not_said(
    tmp_path: Path, answering: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever says it is told at once what was wrong, says it again, and the run goes on."""
    kept = doubted(tmp_path / "runs.db", "charge")
    resolve = ["resolve", kept.run_id, "1.0", "--agent", DESK, *kept.state]

    refused = main([*resolve, "--happened", "a lot"])
    told = capsys.readouterr().err
    words = kept.words()
    resolved, resumed = (
        main([*resolve, "--happened", "4500"]),
        main(["resume", DESK, kept.run_id, *PARROT, *kept.state]),
    )

    assert (2, [], 0, 0) == (refused, words, resolved, resumed)
    assert "the output is not what the tool returns: " in told
    assert ["4500"] == [each["content"] for each in answering if each["role"] == "tool"]


def test_another_agent_says_nothing_about_an_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It may have a tool of that name too; the line names both."""
    kept = doubted(tmp_path / "runs.db", "charge")

    assert 2 == main(["resolve", kept.run_id, "1.0", "--agent", TILL, "--happened", "4500", *kept.state])
    assert (f"is of agent 'desk', and {TILL} is 'till'" in capsys.readouterr().err, []) == (True, kept.words())


@pytest.mark.parametrize("agent", [["--agent", DESK], []])
def test_a_wrong_word_in_the_inbox_is_cured_by_a_right_one(
    agent: Sequence[str], tmp_path: Path, answering: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the agent at hand at once, without it after the run refused the wrong one; the account tells of both."""
    kept = doubted(tmp_path / "runs.db", "charge")
    assert 0 == main(["resolve", kept.run_id, "1.0", "--happened", "a lot", *kept.state])
    assert 0 == main(["why", kept.run_id, *kept.state])
    waits = capsys.readouterr().out
    resume = ["resume", DESK, kept.run_id, *PARROT, *kept.state]
    if not agent:
        assert 3 == main(resume)

    resolved = main(["resolve", kept.run_id, "1.0", "--happened", "4500", *agent, *kept.state])
    resumed = main(resume)

    assert (0, 0, ["4500"]) == (resolved, resumed, [each["content"] for each in answering if each["role"] == "tool"])
    assert "not heard yet" in waits
    capsys.readouterr()
    assert 0 == main(["why", kept.run_id, *kept.state])
    told = capsys.readouterr().out
    assert "refused the word resolve" in told and "the output is not what the tool returns: " in told


def test_what_is_said_to_a_run_reaches_the_model_before_its_next_answer(tmp_path: Path, answering: Answering) -> None:
    """A steering message waits with the run and is delivered with its results."""
    kept = doubted(tmp_path / "runs.db")

    steered = main(["steer", kept.run_id, "Be short.", *kept.state])
    resolved = main(["resolve", kept.run_id, "1.0", "--did-not-happen", *kept.state])
    resumed = main(["resume", DESK, kept.run_id, "-m", "openai:parrot", *kept.state])

    assert (0, 0, 0) == (steered, resolved, resumed)
    assert {"role": "user", "content": "Be short."} == answering[-1]


def test_a_cancelled_run_ends_with_its_calls_in_doubt(tmp_path: Path, answering: Answering) -> None:
    """The next owner ends it, without asking the model, and the exit code says so."""
    kept = doubted(tmp_path / "runs.db")

    cancelled = main(["cancel", kept.run_id, "--reason", "no longer wanted", "--by", "anna", *kept.state])
    resumed = main(["resume", DESK, kept.run_id, "-m", "openai:parrot", *kept.state])

    assert (0, 4, []) == (cancelled, resumed, answering)
    assert RunCancelled((f"{kept.run_id}:1.0",), "no longer wanted") == kept.facts()[-1]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["approve", "RUN", "1.7"], "no call '1.7' waits for approval; these do: 1.0 (refund)"),
        (["approve", "RUN", "nonsense"], "no call 'nonsense' waits for approval; these do: 1.0 (refund)"),
        (["resolve", "RUN", "1.0", "--did-not-happen"], "no call '1.0' is in doubt; none is now"),
        (["resolve", "RUN", "1.0"], "say either --happened"),
        (["resolve", "RUN", "1.0", "--happened", "1", "--did-not-happen"], "say either --happened"),
        (["approve", "other", "1.0"], "no run 'other' in sqlite:"),
        (["deny", "other", "1.0"], "the newest are RUN"),
        (["steer", "other", "Hello"], "the newest are RUN"),
        (["cancel", "other"], "the newest are RUN"),
        (["resume", DESK, "other", "-m", "openai:parrot"], "the newest are RUN"),
        (["resume", TILL, "RUN", "-m", "openai:parrot"], "run RUN is of agent 'desk', and "),
        (["runs", "--since", "yesterday"], "say how long ago, as in 2h"),
    ],
)
def test_a_word_that_fits_nothing_is_one_line_that_names_what_there_is(
    words: Sequence[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is said to the run."""
    kept = suspended(tmp_path / "runs.db", DESK, REFUND)

    code = main([*[each.replace("RUN", kept.run_id) for each in words], *kept.state])

    err = capsys.readouterr().err
    assert (2, 1, []) == (code, err.count("\n"), kept.words())
    assert told.replace("RUN", kept.run_id) in err


def test_a_call_is_decided_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A word that waits counts already: the second one is refused, whatever it says."""
    kept = suspended(tmp_path / "runs.db", DESK, REFUND)

    codes = [main([word, kept.run_id, "1.0", *kept.state]) for word in ("approve", "deny")]

    assert ([0, 2], 1) == (codes, len(kept.words()))
    assert "no call '1.0' waits for approval; none does now" in capsys.readouterr().err


@pytest.mark.promise("N-09")
def test_no_call_is_approved_in_a_journal_that_was_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody says yes to arguments that are not those that were asked about."""
    kept = suspended(tmp_path / "runs.db", DESK, REFUND)
    with closing(sqlite3.connect(kept.path)) as meddle, meddle:
        dearer = "CAST(replace(CAST(body AS TEXT), '4500', '9500') AS BLOB)"
        meddle.execute(f"UPDATE journal SET body = {dearer} WHERE kind = 'CallAdmitted'")

    code = main(["approve", kept.run_id, "1.0", *kept.state])

    told = "turnwright: journal entry 5: the evidence is not that of this CallAdmitted\n"
    assert (1, [], told) == (code, kept.words(), capsys.readouterr().err)


def test_a_run_that_has_ended_hears_nothing_and_tells_its_answer_again(
    tmp_path: Path, answering: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    """Resuming it asks nobody; a word to it is refused."""
    kept = doubted(tmp_path / "runs.db")
    main(["resolve", kept.run_id, "1.0", "--did-not-happen", *kept.state])
    main(["resume", DESK, kept.run_id, "-m", "openai:parrot", *kept.state])
    capsys.readouterr()
    asked = len(answering)

    again = main(["resume", DESK, kept.run_id, "-m", "openai:parrot", *kept.state])
    steered = main(["steer", kept.run_id, "Hello?", *kept.state])

    seen = capsys.readouterr()
    assert (0, 2, asked) == (again, steered, len(answering))
    assert "Understood." in seen.out.splitlines()
    assert f"turnwright: run {kept.run_id} is completed: it hears nothing any more\n" == seen.err


@pytest.mark.parametrize("words", [["approve", "RUN", "1.0"], ["steer", "RUN", "Hello"], ["resume", DESK, "RUN"]])
def test_a_run_whose_content_was_erased_cannot_go_on(
    words: Sequence[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is one line, and nothing is decided over what nobody can see any more."""
    kept = suspended(tmp_path / "runs.db", DESK, REFUND)

    async def erase() -> None:
        async with SqliteState(kept.path) as state:
            await state.erase(kept.run_id)

    asyncio.run(erase())
    code = main([*[each.replace("RUN", kept.run_id) for each in words], *kept.state])

    told = "journal entry 1: the content of this RunOpened was dropped or erased; only its evidence is left"
    assert (1, f"turnwright: {told}\n") == (code, capsys.readouterr().err)


def test_what_somebody_calls_themselves_cannot_touch_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever approves is named by their own word, which is shown like any other."""
    kept = suspended(tmp_path / "runs.db", DESK, REFUND)

    code = main(["approve", kept.run_id, "1.0", "--by", "anna\x1b[2J", *kept.state])

    assert (0, True) == (code, "approved by anna\\x1b[2J; " in capsys.readouterr().out)


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A mistyped path is an error, and no empty file that looks like a store."""
    path = tmp_path / "rnus.db"

    code = main(["runs", "--state", f"sqlite:{path}"])

    assert (2, f"turnwright: --state sqlite:{path}: there is no file {path}\n") == (code, capsys.readouterr().err)
    assert not path.exists()


def test_runs_are_listed_with_how_they_stand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Newest first, by status, agent and time; a program gets one object a run."""
    first = suspended(tmp_path / "runs.db", DESK, REFUND)
    second = suspended(tmp_path / "runs.db", TILL, [call("pay", cents=500)])

    def listed(*words: str) -> list[str]:
        assert 0 == main(["runs", *words, "--json", *first.state])
        return [json.loads(line)["run_id"] for line in capsys.readouterr().out.splitlines()]

    main(["runs", *first.state])
    lines = capsys.readouterr().out.splitlines()

    assert [second.run_id, first.run_id] == [line.split()[0] for line in lines]
    assert re.search(r"  suspended \(approval\)  +till$", lines[0])
    assert [second.run_id, first.run_id] == listed("--status", "suspended", "--since", "2h")
    assert [first.run_id] == listed("--definition", "desk")
    assert [second.run_id] == listed("--limit", "1")
    assert [] == listed("--since", "2999-01-01")


@pytest.mark.usefixtures("postgres")
def test_a_run_in_a_server_is_answered_from_anywhere(record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    """Another kind of store is another address, and all else is the same."""
    replay = record(DESK, "My teapot broke", REFUND, decisions=["approve"])
    store = ["--state", conninfo()]

    waits = main(["run", DESK, "My teapot broke", "--replay", replay, *store])
    run_id = re.findall(r"^run (\S+)$", capsys.readouterr().out, re.MULTILINE)[0]
    codes = [
        main(words)
        for words in (
            ["approve", run_id, "1.0", *store],
            ["resume", DESK, run_id, "--replay", replay, *store],
            ["runs", "--status", "completed", *store],
            ["why", run_id, *store],
        )
    ]

    out = capsys.readouterr().out
    assert (3, [0, 0, 0, 0]) == (waits, codes)
    assert (True, True) == (f"{run_id}  " in out, f"run {run_id} of desk: completed\n" in out)
