"""A session outlives its process: transcript, queues and the unfinished run are where they were."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.agent import living as living_module
from tests.agent.living import living
from turnwright import AgentError, DidNotHappen, Happened, MemoryState, ModelError, RunBusy, Suspended, tool
from turnwright.agent import Agent
from turnwright.outcomes import Completed
from turnwright.testing import ScriptedModel, call, text
from turnwright.tools import Replay

BOUND = 30.0


def killed_while_it_pays(database: str, world: Path, replay: Replay) -> None:
    """Start a process, and kill it when its tool runs and something is queued."""
    command = [sys.executable, "-m", living_module.__name__, database, str(world), replay]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "ready" == process.stdout.readline().strip()
        process.kill()
        process.wait(BOUND)


def expire(database: str) -> None:
    """Let every lease have run out, as time would."""
    with closing(sqlite3.connect(database, isolation_level=None)) as meddle:
        meddle.execute("UPDATE runs SET expires = 0")


def told(agent: Agent) -> list[str]:
    """The transcript in words."""
    return [f"{each.role}: {each.text}" for each in agent.state.messages]


def waiting(agent: Agent) -> list[str]:
    """What is queued, in words."""
    return [each.text for item in agent.queued for each in item.messages]


@pytest.mark.promise("P-01", "P-08", "T-01")
@pytest.mark.parametrize("replay", ["never", "safe"])
async def test_a_killed_agent_goes_on_in_another_process(tmp_path: Path, replay: Replay) -> None:
    """Killed while a tool ran and messages were queued: they are delivered, and no `never` tool runs twice."""
    database, world = str(tmp_path / "s.db"), tmp_path / "world"
    await asyncio.to_thread(killed_while_it_pays, database, world, replay)
    agent = living(database, world, replay)
    with pytest.raises(RunBusy):
        await agent.continue_()
    expire(database)

    outcome = await agent.continue_()
    if replay == "never":
        assert isinstance(outcome, Suspended)
        assert ("in-doubt", ["and quickly", "what then?"]) == (outcome.reason, waiting(agent))
        outcome = await agent.continue_(resolutions={outcome.pending[0].effect_id: Happened("paid")})

    assert isinstance(outcome, Completed)
    assert [
        *["user: hello", "assistant: hello", "user: pay", "assistant: ", "tool: paid"],
        *["user: and quickly", "assistant: done", "user: what then?", "assistant: more"],
    ] == told(agent)
    assert ["paid\n"] * (1 if replay == "never" else 2) == world.read_text().splitlines(keepends=True)
    again = living(database, world, replay)
    await again.load()
    assert ([*agent.state.messages], ()) == ([*again.state.messages], again.queued)


@pytest.mark.promise("P-08", "P-11")
async def test_what_was_queued_while_idle_and_a_reset_outlive_the_agent() -> None:
    """Also before the session was ever read by this agent, and in the order in which it was said."""
    state = MemoryState()
    model = ScriptedModel([text("1"), text("2"), text("3"), text("4")])

    def agent() -> Agent:
        return Agent(model, state=state, session_id="s1")

    first = agent()
    await first.prompt("forgotten")
    await first.follow_up("forgotten too")
    await agent().reset()
    second = agent()
    await second.follow_up("a")
    await agent().follow_up("b")
    third = agent()
    third.follow_up("c")

    await third.load()
    assert ([], ["a", "b", "c"]) == (told(third), waiting(third))
    await third.continue_()

    assert ["user: a", "assistant: 1", "user: b", "assistant: 2", "user: c", "assistant: 3"] == told(third)
    last = agent()
    await last.load()
    assert (told(third), ()) == (told(last), last.queued)


@pytest.mark.promise("P-11")
@pytest.mark.case("loo-10")
async def test_two_agents_of_one_session_do_not_mix() -> None:
    """While one works the other is refused; afterwards it reads what it missed, and its own prompt is not lost."""
    state = MemoryState()
    running, go_on = asyncio.Event(), asyncio.Event()

    @tool(replay="safe")
    async def work() -> str:
        """Work."""
        running.set()
        await go_on.wait()
        return "worked"

    model = ScriptedModel([text("1"), call("work"), text("2"), text("3")])
    one, other = [Agent(model, tools=[work], state=state, session_id="s1") for _ in range(2)]
    await one.prompt("a")
    await other.load()
    working = asyncio.ensure_future(one.prompt("b"))
    await running.wait()

    before = told(other)
    with pytest.raises(RunBusy):
        await other.prompt("c")
    go_on.set()
    await working
    await other.prompt("d")

    assert ["user: a", "assistant: 1"] == before
    assert [*told(one), "user: d", "assistant: 3"] == told(other)


@pytest.mark.promise("P-08", "P-13")
async def test_what_a_failed_run_had_of_the_queue_is_delivered_once_by_another_agent() -> None:
    """The run had been handed the message, and its journal does not say that it was delivered."""
    state = MemoryState()
    replies = iter([ModelError("overloaded", "later"), text("1"), text("2")])
    model = ScriptedModel([lambda _: next(replies)] * 9)

    def agent() -> Agent:
        return Agent(model, state=state, session_id="s1")

    first = agent()
    await first.follow_up("then")
    kept = first.follow_up("not this")
    await kept
    await first.prompt("go")
    second = agent()
    await second.load()
    second.cancel_queued(kept.id)

    await second.continue_()

    assert ["user: go", "assistant: ", "assistant: 1", "user: then", "assistant: 2"] == told(second)
    third = agent()
    await third.load()
    assert (told(second), ()) == (told(third), third.queued)
    assert third.state.error_message is None or "overloaded" in third.state.error_message


@pytest.mark.promise("P-10")
async def test_an_agent_that_waits_for_somebody_says_for_what() -> None:
    """A call in doubt: a prompt is refused until somebody says what happened, or gives the run up."""
    state = MemoryState()

    @tool
    async def pay() -> str:
        """Pay."""
        task.cancel()
        await asyncio.Event().wait()
        return "paid"

    agent = Agent(ScriptedModel([call("pay"), text("well")]), tools=[pay], state=state, session_id="s1")
    task = asyncio.ensure_future(agent.prompt("go"))
    with pytest.raises(asyncio.CancelledError):
        await task
    outcome = await agent.continue_()
    assert isinstance(outcome, Suspended)
    (pending,) = agent.pending

    with pytest.raises(Exception, match=pending.effect_id):
        await agent.prompt("and?")
    await agent.continue_(resolutions={pending.effect_id: DidNotHappen()})

    assert ("assistant: well", ()) == (told(agent)[-1], agent.pending)


@pytest.mark.promise("P-10", "P-11")
async def test_a_run_that_waits_for_a_person_is_not_ended_by_a_prompt_of_another_process() -> None:
    """It is refused there too, with the call that waits; whoever aborts gives the run up, and the prompt goes on."""
    state = MemoryState()

    @tool(approval="required")
    async def pay() -> str:
        """Pay."""
        return "paid"

    model = ScriptedModel([call("pay"), text("done")])

    def agent() -> Agent:
        return Agent(model, tools=[pay], state=state, session_id="s1")

    await agent().prompt("go")
    other = agent()

    with pytest.raises(AgentError) as refused:
        await other.prompt("and?")
    assert ("waiting", "approval") == (refused.value.code, other.pending[0].kind)
    other.abort()
    await other.prompt("never mind")

    assert ["user: never mind", "assistant: done"] == told(other)[-2:]
    assert "not executed" in told(other)[2]


def test_the_agent_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Word for word."""
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    _, _, section = readme.partition("## Talk with it")
    snippet = section.split("```python\n")[1].split("```")[0]

    exec(compile(snippet, "README.md", "exec"), {})

    assert capsys.readouterr().out.startswith("agent_start\nturn_start\nmessage_start\nmessage_end\n")
