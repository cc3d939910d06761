"""A session outlives its process: transcript, queues and the unfinished run are where they were."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.agent import living as living_module
from tests.agent.living import living
from turnwright import AgentError, DidNotHappen, Happened, MemoryState, ModelError, PortError, RunBusy, Suspended, tool
from turnwright.agent import Agent
from turnwright.inbox import Word
from turnwright.messages import UserMessage
from turnwright.outcomes import Completed
from turnwright.ports import Append, Entry
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


@pytest.mark.promise("P-08", "P-11")
@pytest.mark.parametrize("name", ["chat.1", "chat.inbox", "chat.1.inbox", "chat.inbox.1"])
async def test_no_session_is_another_ones_whatever_it_is_called(name: str) -> None:
    """A name that looks like that of a run or of an inbox is a name; nothing is said in the wrong conversation."""
    state = MemoryState()
    sessions = [Agent(ScriptedModel([text("1"), text("2")]), state=state, session_id=each) for each in ("chat", name)]
    for agent in sessions:
        await agent.follow_up(f"queued in {agent.session_id}")
    for agent in sessions:
        await agent.prompt(f"said in {agent.session_id}")

    for agent in sessions:
        words = [f"user: {how} in {agent.session_id}" for how in ("said", "queued")]
        assert [words[0], "assistant: 1", words[1], "assistant: 2"] == told(agent)
    assert ["completed"] * 2 + ["suspended"] * 2 == sorted([each.status for each in await state.runs()])


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


class Unsure(MemoryState):
    """A store that loses answers to calls of *method*: from its call *number* on, so many *times*. The work is done."""

    def __init__(self, method: str, number: int = 1, *, times: int = 1) -> None:
        super().__init__()
        self._method = method
        self._before = number - 1
        self.times = times
        self.loads: list[str] = []

    def _lose(self, method: str) -> None:
        if method != self._method:
            return
        self._before -= 1
        if self._before < 0 < self.times:
            self.times -= 1
            raise PortError("the answer was lost")

    async def post(self, run_id: str, word: Word) -> int:
        """Put a word in the inbox."""
        place = await super().post(run_id, word)
        self._lose("post")
        return place

    async def read(self, run_id: str, after: int = 0) -> Sequence[tuple[int, Word]]:
        """The words."""
        words = await super().read(run_id, after)
        self._lose("read")
        return words

    async def load(self, run_id: str, after: int = 0) -> Sequence[Entry]:
        """The entries."""
        self.loads.append(run_id)
        return await super().load(run_id, after)

    async def append(self, run_id: str, epoch: int, expected: int, append_id: str, facts: Sequence[Entry]) -> Append:
        """Write."""
        appended = await super().append(run_id, epoch, expected, append_id, facts)
        self._lose("append")
        return appended


@pytest.mark.promise("P-08")
@pytest.mark.parametrize("number", [1, 2, 3])
async def test_what_was_queued_while_the_answer_was_lost_is_kept_once(number: int) -> None:
    """Of which nobody said whether it was kept: it is not kept twice, and no message of it is said twice."""
    state = Unsure("post", number)
    agent = Agent(ScriptedModel([]), state=state, session_id="s1")
    same = UserMessage("same")
    agent.follow_up([same, same])
    last = agent.follow_up("last")

    with pytest.raises(PortError):
        await last
    await last

    other = Agent(ScriptedModel([]), state=state, session_id="s1")
    await other.load()
    assert ["same", "same", "last"] == waiting(other) == waiting(agent)


@pytest.mark.promise("P-08")
async def test_a_session_that_could_not_be_read_is_read_the_next_time() -> None:
    """Nothing that was queued in an earlier process is forgotten because the store failed once."""
    state = Unsure("read")
    await Agent(ScriptedModel([]), state=state, session_id="s1").follow_up("then")
    agent = Agent(ScriptedModel([text("1"), text("2")]), state=state, session_id="s1")

    with pytest.raises(PortError):
        await agent.prompt("go")
    await agent.prompt("go")

    assert ["user: go", "assistant: 1", "user: then", "assistant: 2"] == told(agent)


@pytest.mark.promise("P-01")
async def test_a_session_is_read_once_by_all_who_want_it_at_a_time() -> None:
    """Also where a prompt begins meanwhile, and while it works: nothing is said twice."""
    state = MemoryState()
    model = ScriptedModel([text("1"), text("2")])
    await Agent(model, state=state, session_id="s1").prompt("a")
    agent = Agent(model, state=state, session_id="s1")
    agent.subscribe(lambda event, _: agent.load() if event.type == "turn_end" else None)

    await asyncio.gather(agent.load(), agent.load(), agent.prompt("b"))

    assert ["user: a", "assistant: 1", "user: b", "assistant: 2"] == told(agent)


@pytest.mark.promise("P-13")
@pytest.mark.parametrize("session", ["s1", None])
async def test_a_prompt_whose_opening_was_not_answered_leaves_no_agent_that_cannot_go_on(session: str | None) -> None:
    """It may be open or not; the next prompt works, also of an agent to whose session nobody will come back."""
    state = Unsure("append", times=1000)
    agent = Agent(ScriptedModel([text("hi"), text("hi")]), state=state, session_id=session)

    with pytest.raises(PortError):
        await agent.prompt("one")
    state.times = 0
    await agent.prompt("two")

    assert ["user: two", "assistant: hi"] == told(agent)[-2:]


@pytest.mark.promise("P-01")
async def test_what_an_open_run_waits_for_is_known_from_one_reading() -> None:
    """A long journal is not read twice to know it."""

    @tool(approval="required")
    async def pay() -> str:
        """Pay."""
        return "paid"

    state = Unsure("")
    first = Agent(ScriptedModel([call("pay")]), tools=[pay], state=state, session_id="s1")
    await first.prompt("go")
    state.loads.clear()

    agent = Agent(ScriptedModel([call("pay")]), tools=[pay], state=state, session_id="s1")
    await agent.load()

    assert first.pending == agent.pending
    assert ["s1.1", "s1.2"] == state.loads


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
