"""What the definition's own code, its tools and its ports may do wrong: it becomes a fact, and the run can be read."""

from __future__ import annotations

import pytest

from turnwright import AgentDefinition, Completed, Outcome, Ports, Tool, resume_agent, run_agent, tool
from turnwright.messages import ToolMessage
from turnwright.testing import ScriptedModel, call, text


def using(*tools: Tool[..., object], **more: object) -> AgentDefinition[str, str]:
    """An agent with these tools."""
    return AgentDefinition(name="worker", instruction="Work.", tools=tools, **more)  # type: ignore[arg-type]


async def told(definition: AgentDefinition[str, str], ports: Ports) -> Outcome[str]:
    """How the run ends, as whoever reads its journal anew finds it."""
    await run_agent(definition, "go", ports, run_id="r1")
    return await resume_agent(definition, "r1", ports)


def results(outcome: Outcome[str]) -> list[tuple[str, bool]]:
    """What the model saw of its calls."""
    return [(each.text, each.is_error) for each in outcome.transcript if isinstance(each, ToolMessage)]


@pytest.mark.promise("N-07")
async def test_a_plain_function_that_raises_stop_iteration_has_failed() -> None:
    """A thread cannot hand it over, and the call would never end."""

    @tool
    def first() -> object:
        """Give the first of nothing."""
        return next(iter(()))

    outcome = await told(using(first), Ports(model=ScriptedModel([call("first"), text("done")])))

    assert isinstance(outcome, Completed)
    assert [("raised StopIteration", True)] == results(outcome)
