"""The golden orders: what a listener hears, in which order, of each kind of run."""

from __future__ import annotations

import asyncio

import pytest

from tests.agent.listening import Heard
from turnwright import Block, ModelError, ToolOutput, tool
from turnwright.agent import Agent, ToolCallContext
from turnwright.deltas import TextDelta, UsageDelta
from turnwright.messages import AssistantMessage, Usage
from turnwright.ports import ModelRequest
from turnwright.testing import ScriptedModel, call, text

pytestmark = pytest.mark.promise("P-02")

SAID = ["ms(user)", "me(user)"]
ANSWER = ["ms(asst)", "mu", "me(asst)"]


@tool(replay="safe")
async def look() -> str:
    """Look."""
    return "seen"


@tool(replay="safe")
async def glance() -> str:
    """Glance."""
    return "seen"


async def test_a_a_plain_prompt() -> None:
    """Order A: the prompt, the answer, the end."""
    agent = Agent(ScriptedModel([text("hi")]))
    heard = Heard(agent)

    await agent.prompt("hello")

    assert ["agent_start", "turn_start", *SAID, *ANSWER, "turn_end(0)", "agent_end(2)"] == heard.order
    assert [*range(1, len(heard.events) + 1)] == [event.seq for event in heard.events]


async def test_b_one_tool() -> None:
    """Order B: the call between two turns, its result a message of the first."""
    agent = Agent(ScriptedModel([call("look"), text("done")]), tools=[look])
    heard = Heard(agent)

    await agent.prompt("go")

    assert [
        *["agent_start", "turn_start", *SAID, *ANSWER, "te_start(look)", "te_end(look)", "ms(tr look)", "me(tr look)"],
        *["turn_end(1)", "turn_start", *ANSWER, "turn_end(0)", "agent_end(4)"],
    ] == heard.order


@pytest.mark.promise("P-05")
async def test_c_two_tools_at_once_end_in_their_own_order_and_are_told_in_that_of_the_calls() -> None:
    """Orders C and A7: the second is faster."""
    fast_is_done = asyncio.Event()

    @tool(replay="safe")
    async def slow() -> str:
        """Be slow."""
        await fast_is_done.wait()
        return "slow"

    @tool(replay="safe")
    async def fast() -> str:
        """Be fast."""
        return "fast"

    agent = Agent(ScriptedModel([[call("slow"), call("fast")], text("done")]), tools=[slow, fast])
    heard = Heard(agent)
    agent.subscribe(lambda event, _: fast_is_done.set() if event.type == "tool_execution_end" else None)

    await agent.prompt("go")

    assert [
        *["te_start(slow)", "te_start(fast)", "te_end(fast)", "te_end(slow)"],
        *["ms(tr slow)", "me(tr slow)", "ms(tr fast)", "me(tr fast)", "turn_end(2)"],
    ] == heard.order[7:16]


@pytest.mark.promise("P-05")
async def test_d_two_tools_one_after_the_other() -> None:
    """Order D: each result is told before the next call starts."""
    agent = Agent(
        ScriptedModel([[call("look"), call("glance")], text("done")]),
        tools=[look, glance],
        tool_execution="sequential",
    )
    heard = Heard(agent)

    await agent.prompt("go")

    assert [
        *["te_start(look)", "te_end(look)", "ms(tr look)", "me(tr look)"],
        *["te_start(glance)", "te_end(glance)", "ms(tr glance)", "me(tr glance)", "turn_end(2)"],
    ] == heard.order[7:16]


@pytest.mark.promise("P-06")
async def test_e_a_blocked_call_has_its_end_before_the_others_start() -> None:
    """Order E: blocked at the preflight, told with the rest."""

    def block(context: ToolCallContext, _: object) -> Block | None:
        return Block("no") if context.call.name == "look" else None

    agent = Agent(
        ScriptedModel([[call("look"), call("glance")], text("done")]), tools=[look, glance], before_tool_call=block
    )
    heard = Heard(agent)

    await agent.prompt("go")

    assert [
        *["te_start(look)", "te_end(look, err)", "te_start(glance)", "te_end(glance)"],
        *["ms(tr look)", "me(tr look)", "ms(tr glance)", "me(tr glance)", "turn_end(2)"],
    ] == heard.order[7:16]


@pytest.mark.promise("P-08")
async def test_f_steering_while_tools_run_waits_for_the_whole_batch() -> None:
    """Orders F and A1: the batch finishes, and the message opens the next turn."""

    @tool(replay="safe")
    async def work() -> str:
        """Work."""
        agent.steer("hurry")
        return "worked"

    agent = Agent(ScriptedModel([[call("work"), call("look")], text("done")]), tools=[work, look])
    heard = Heard(agent)

    await agent.prompt("go")

    assert ["turn_end(2)", "turn_start", *SAID, *ANSWER, "turn_end(0)", "agent_end(6)"] == heard.order[-9:]
    assert ["go", "hurry"] == [each.text for each in agent.state.messages if each.role == "user"]


@pytest.mark.promise("P-08")
async def test_g_a_follow_up_is_a_turn_more_of_the_same_run() -> None:
    """Order G: one start and one end of the agent in total."""
    agent = Agent(ScriptedModel([text("one"), text("two")]))
    heard = Heard(agent)
    agent.follow_up("and?")

    await agent.prompt("go")

    assert [
        *["agent_start", "turn_start", *SAID, *ANSWER, "turn_end(0)"],
        *["turn_start", *SAID, *ANSWER, "turn_end(0)", "agent_end(4)"],
    ] == heard.order


class Hangs(ScriptedModel):
    """Says a little, and then nothing more."""

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        """Never finish."""
        assert request.on_delta is not None
        request.on_delta(TextDelta(request.turn, request.attempt, "half a "))
        request.on_delta(TextDelta(request.turn, request.attempt, "sentence"))
        request.on_delta(UsageDelta(request.turn, request.attempt, Usage(1, 7, 3)))
        await asyncio.Event().wait()
        return text("never")


@pytest.mark.promise("P-10", "P-13")
async def test_h_an_abort_keeps_what_had_come_of_the_answer() -> None:
    """Order H: the message ends as aborted, with its text and usage."""
    agent = Agent(Hangs([]))
    heard = Heard(agent)
    agent.subscribe(lambda event, _: agent.abort() if event.type == "message_update" else None)

    await agent.prompt("go")

    last = agent.state.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert ["agent_start", "turn_start", *SAID, *ANSWER, "turn_end(0)", "agent_end(2)"] == heard.order
    assert ("aborted", "half a sentence", 7) == (last.stop_reason, last.text, last.usage.input_tokens)


@pytest.mark.promise("P-13")
async def test_i_an_error_before_anything_was_said_is_a_message_all_the_same() -> None:
    """Order I: the failure is told as an answer that is an error, and the prompt returns."""
    agent = Agent(ScriptedModel([ModelError("overloaded", "come back later", retryable=True)]))
    heard = Heard(agent)

    await agent.prompt("go")

    last = agent.state.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert [
        *["agent_start", "turn_start", *SAID, "ms(asst)", "me(asst)", "turn_end(0)", "agent_end(2)"],
    ] == heard.order
    assert ("error", "overloaded: come back later") == (last.stop_reason, agent.state.error_message)


@pytest.mark.promise("P-14")
async def test_j_calls_of_a_truncated_answer_do_not_run_and_the_run_goes_on() -> None:
    """Orders J and A12: each call is told with its error, and the model is asked again."""
    cut = AssistantMessage((call("look"), call("glance")), "length")
    agent = Agent(ScriptedModel([cut, text("done")]), tools=[look, glance])
    heard = Heard(agent)

    await agent.prompt("go")

    assert [
        *["te_start(look)", "te_end(look, err)", "te_start(glance)", "te_end(glance, err)"],
        *["ms(tr look)", "me(tr look)", "ms(tr glance)", "me(tr glance)", "turn_end(2)", "turn_start"],
    ] == heard.order[-15:-5]


@pytest.mark.promise("P-07")
async def test_k_when_every_result_terminates_there_is_no_second_request() -> None:
    """Orders K and A14."""

    @tool
    async def finish() -> ToolOutput:
        """Finish."""
        return ToolOutput("finished", terminate=True)

    model = ScriptedModel([[call("finish"), call("finish")], text("never")])
    agent = Agent(model, tools=[finish])
    heard = Heard(agent)

    await agent.prompt("go")

    assert (["turn_end(2)", "agent_end(4)"], 1) == (heard.order[-2:], len(model.requests))


@pytest.mark.promise("P-13")
async def test_l_a_hook_that_fails_is_told_in_a_balanced_order() -> None:
    """Orders L, B6 and Q4: what was said before stays in the messages of the end."""

    def broken(*_: object) -> list[object]:
        message = "no context today"
        raise RuntimeError(message)

    agent = Agent(ScriptedModel([text("never")]), transform_context=broken)  # type: ignore[arg-type]
    heard = Heard(agent)

    await agent.prompt("go")

    assert ["agent_start", "turn_start", *SAID, "ms(asst)", "me(asst)", "turn_end(0)", "agent_end(2)"] == heard.order
    assert "internal: no context today" == agent.state.error_message
