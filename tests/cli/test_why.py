"""`turnwright why`: the account of a run, from its journal and its evidence alone."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.agents import DESK
from tests.cli.keeping import Kept, doubted, suspended
from turnwright import Decision, Ports, resume_agent, run_agent
from turnwright.cli import main
from turnwright.cli.loading import load
from turnwright.errors import ModelError
from turnwright.messages import Usage
from turnwright.testing import Reply, ScriptedModel, call, fails, text
from turnwright_adapters.sqlite import SqliteState

CANARY = "canary\x1b[2J"
REFUND = call("refund", order=CANARY, cents=4500)


def denied(path: Path) -> Kept:
    """Run an agent whose model fails once, asks for two refunds, of which one is denied, and then answers."""
    replies: Sequence[Reply] = [
        fails(ModelError("overloaded", "too many"), then=[REFUND, call("refund", order="1043", cents=1)]),
        text(f"Sorry, {CANARY}", usage=Usage(1, 1200, 34)),
    ]

    async def run() -> str:
        definition = load(DESK).definition
        async with SqliteState(path) as state:
            ports = Ports(model=ScriptedModel(replies), state=state)
            run_id = (await run_agent(definition, "My teapot broke", ports)).run_id
            await resume_agent(definition, run_id, ports)
            no = Decision(approved=False, by="ben", reason=f"insured {CANARY}")
            said = {f"{run_id}:1.0": no, f"{run_id}:1.1": "approve"}
            await resume_agent(definition, run_id, ports, decisions=said)
        return run_id

    return Kept(path, asyncio.run(run()))


def told(kept: Kept, capsys: pytest.CaptureFixture[str], code: int = 0) -> list[str]:
    """What `why` says of a run, without times."""
    capsys.readouterr()
    assert code == main(["why", kept.run_id, *kept.state])
    lines = capsys.readouterr().out.splitlines()
    return [re.sub(r"\d+ ms", "0 ms", re.sub(r"^ +\d+\.\d{3} s  ", "- ", line)) for line in lines]


@pytest.mark.promise("T-09")
def test_a_run_is_told_from_its_opening_to_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What ran, paused, was denied and retried, and what it used; what others wrote cannot touch the terminal."""
    kept = denied(tmp_path / "runs.db")

    lines = told(kept, capsys)

    canary = "canary\\x1b[2J"
    argued = '{"cents":4500,"order":"canary\\u001b[2J"}'
    other = '{"cents":1,"order":"1043"}'
    digests = [line.rpartition(" ")[2] for line in lines if "asked for approval" in line]
    assert f"run {kept.run_id} of desk: completed" == lines[0]
    assert [
        "- opened: My teapot broke",
        "- turn 1 began",
        "- asked the model",
        "- the model failed (overloaded) after 0 ms: too many",
        "- paused (model): overloaded: too many",
        "- went on",
        "- asked the model again (attempt 2)",
        f"- the model answered (tool_calls) after 0 ms; 0 tokens in, 0 out: refund {argued}; refund {other}",
        f"- call 1.0 (refund) may run once it is approved: {argued}",
        f"- call 1.1 (refund) may run once it is approved: {other}",
        f"- call 1.0 (refund) asked for approval: digest {digests[0]}",
        f"- call 1.1 (refund) asked for approval: digest {digests[1]}",
        "- paused (approval)",
        f"- heard the word deny: by ben: {kept.run_id}:1.0: insured {canary}",
        f"- call 1.0 (refund) was denied: by ben: insured {canary}",
        f"- heard the word approve: {kept.run_id}:1.1",
        "- call 1.1 (refund) was approved",
        "- went on",
        "- call 1.1 (refund) started",
        "- call 1.1 (refund) finished after 0 ms: paid 1 back for 1043",
        "- turn 2 began",
        "- asked the model",
        f"- the model answered (stop) after 0 ms; 1,200 tokens in, 34 out: Sorry, {canary}",
        f"- completed: Sorry, {canary}",
        "used: 3 requests, 1,200 tokens in, 34 out, 1 tool call",
    ] == lines[2:-1]
    assert re.fullmatch(r"evidence: all 24 entries verified, head [0-9a-f]{64}", lines[-1])


@pytest.mark.promise("I-07", "T-09")
def test_a_call_in_doubt_is_told_until_somebody_resolves_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """First with its remedy, then with the word that waits to be heard."""
    kept = doubted(tmp_path / "runs.db")

    before = told(kept, capsys)
    main(["resolve", kept.run_id, "1.0", "--happened", "paid", "--by", "anna", *kept.state])
    after = told(kept, capsys)

    assert "- call 1.0 (pay) is in doubt: nobody knows whether it took effect: cancelled" in before
    assert any(line.startswith("call 1.0 (pay) is in doubt: find out whether it took effect") for line in before)
    assert f"not heard yet: resolve: by anna: {kept.run_id}:1.0: it returned paid" in after


@pytest.mark.promise("T-09")
def test_a_run_whose_content_was_erased_still_has_an_account(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The evidence tells all but what was said, and verifies; that the content is gone is told too."""
    kept = denied(tmp_path / "runs.db")

    async def erase() -> None:
        async with SqliteState(kept.path) as state:
            await state.erase(kept.run_id)

    whole = told(kept, capsys)
    asyncio.run(erase())
    left = told(kept, capsys)

    assert [line.partition(": ")[0] for line in whole[2:26]] == left[2:26]
    assert ["used: 3 requests, 1,200 tokens in, 34 out, 1 tool call", whole[-1]] == left[26:28]
    assert left[28].startswith("content: journal entry 1: the content of this RunOpened was dropped or erased")
    assert not any("canary" in line or "teapot" in line for line in left)


@pytest.mark.promise("T-09")
@pytest.mark.parametrize(
    ("change", "entry"),
    [
        ("UPDATE journal SET body = CAST(replace(CAST(body AS TEXT), 'teapot', 'kettle') AS BLOB) WHERE seq = 1", 1),
        ("UPDATE journal SET code = 'approved' WHERE seq = 15", 15),
        ("UPDATE journal SET at = at + 1 WHERE seq = 7", 7),
        ("DELETE FROM journal WHERE seq = 20", 20),
    ],
)
def test_what_was_changed_afterwards_is_told_with_its_entry(
    change: str, entry: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The account is given all the same, and the exit code says that it cannot be trusted."""
    kept = denied(tmp_path / "runs.db")
    with closing(sqlite3.connect(kept.path)) as meddle, meddle:
        assert 1 == meddle.execute(change).rowcount

    lines = told(kept, capsys, code=1)

    broken = [line for line in lines if line.startswith("evidence: ")]
    assert f"evidence: BROKEN at entry {entry}: journal entry {entry}: " in broken[0]


@pytest.mark.promise("T-09")
def test_a_program_is_told_everything_in_full(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """One object: how it stands, what it used, the open calls whole, and every step with its evidence."""
    kept = suspended(tmp_path / "runs.db", DESK, [REFUND])
    capfdbinary.readouterr()

    code = main(["why", kept.run_id, "--json", *kept.state])

    out, err = capfdbinary.readouterr()
    shown = json.loads(out)
    call = shown["open_calls"][0]
    assert (0, 1, b"") == (code, out.count(b"\n"), err)
    assert ("suspended", "approval", "desk", True) == (
        *(shown["status"], shown["reason"], shown["definition"]),
        shown["evidence"]["verified"],
    )
    assert ("1.0", "refund", "approval", {"order": CANARY, "cents": 4500}) == (
        *(call["call"], call["tool"], call["standing"]),
        call["arguments"],
    )
    assert list(range(1, 8)) == [step["seq"] for step in shown["steps"]]
    assert shown["evidence"]["head"] == shown["steps"][-1]["head"]


def test_an_unknown_run_is_one_line_that_names_those_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is told of it."""
    kept = suspended(tmp_path / "runs.db", DESK, [REFUND])

    code = main(["why", "r\x1b[2J", *kept.state])

    seen = capsys.readouterr()
    assert (2, "") == (code, seen.out)
    assert f"turnwright: no run 'r\\x1b[2J' in sqlite:{kept.path}; the newest are {kept.run_id}\n" == seen.err
