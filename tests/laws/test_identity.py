"""Law 4, identity: an option that is absent leaves no trace in the request."""

from __future__ import annotations

import msgspec
import pytest
from attrs import evolve as replace

from turnwright import AgentDefinition, Limits, Ports, run_agent
from turnwright.ports import ModelRequest
from turnwright.testing import ScriptedModel, text


async def request_of(definition: AgentDefinition[str, str]) -> ModelRequest:
    """The first request that a run of *definition* makes."""
    model = ScriptedModel([text("hello")])
    await run_agent(definition, "hi", Ports(model=model), run_id="r")
    return model.requests[0]


@pytest.mark.promise("N-01")
async def test_what_is_not_asked_for_is_not_in_the_request() -> None:
    """The smallest definition gives a request of its own words and nothing else."""
    request = await request_of(AgentDefinition(name="a", instruction="Be brief."))

    assert ("Be brief.", ("hi",), (), "auto", None, {}) == (
        request.instruction,
        tuple([message.text for message in request.messages]),  # type: ignore[union-attr]
        request.tools,
        request.tool_choice,
        request.output,
        request.options,
    )


def content(*_: object) -> None:
    """Object to nothing."""


@pytest.mark.parametrize(
    "same",
    [
        {"repairs": 9},
        {"limits": Limits(requests=5)},
        {"check_output": [content]},
        {"guards": [content]},
        {"approval_seconds": 60.0},
        {"cost": {"money": 1}},
        {"version": "2"},
    ],
)
async def test_what_is_not_the_models_business_leaves_its_request_alone(same: dict[str, object]) -> None:
    """Options of the engine change no byte of what a model is sent."""
    plain = AgentDefinition(name="a", instruction="Be brief.")

    expected = msgspec.json.encode(replace(await request_of(plain), messages=()))
    actual = msgspec.json.encode(replace(await request_of(replace(plain, **same)), messages=()))  # type: ignore[arg-type]

    assert expected == actual
