"""What an agent's prompt carries over the wire and back, in every vendor's dialect."""

from __future__ import annotations

import pytest

from tests.adapters.test_dialects import FINAL, PLACES, THOUGHT, VENDORS, weather
from turnwright.agent import Agent
from turnwright.messages import AssistantMessage, File, Image, Reasoning
from turnwright.testing.byte_server import ByteServer, RawReply
from turnwright_adapters.model_table import ModelCard, ModelTable, Price, bill

PIXEL = Image("image/gif", data="R0lGODlhAQABAIAAABAgMEBQYCwAAAAAAQABAAACAkQBADs=")
PAPER = File("application/pdf", data="JVBERi0xLjQ=", name="a.pdf")
SIGNED = {"chat": None, "anthropic": "SIG=", "responses": '"E"', "gemini": "SIG="}
"""What of the first answer's signatures must be in the second request, if the dialect has any."""


@pytest.mark.promise("P-16", "I-01")
@pytest.mark.parametrize("dialect", VENDORS)
async def test_thoughts_images_files_signatures_usage_and_cost_are_carried(dialect: str) -> None:
    """Image and file go out with every request, the signature goes back, and what was used has its price."""
    vendor = VENDORS[dialect]
    replies = [RawReply(body) for body in vendor.streamed]
    async with ByteServer(replies) as server, vendor.model("m", base_url=server.url, stream=True) as model:
        agent = Agent(model, tools=[weather])
        await agent.prompt("Is it wet?", [PIXEL, PAPER])
        bodies = [seen.body.decode() for seen in server.requests]
    answers = [each for each in agent.state.messages if isinstance(each, AssistantMessage)]
    table = ModelTable(
        {f"{model.provider}:{name}": ModelCard(price=Price(1, 2)) for name in ("m", "m-1", "g-1")}, data=False
    )

    assert (2, FINAL) == (len(answers), answers[-1].text)
    assert [THOUGHT] == [part.text for part in answers[0].parts if isinstance(part, Reasoning)]
    assert all([str(PIXEL.data) in body and str(PAPER.data) in body for body in bodies])
    assert SIGNED[dialect] is None or SIGNED[dialect] in bodies[1]
    assert [(10, 20, 4)] * 2 == [
        (used.input_tokens, used.output_tokens, used.cache_read_tokens) for used in [each.usage for each in answers]
    ]
    assert (2 * (10 + 4 + 2 * 20), 0) == ((cost := bill(agent.state.messages, table)).micros, cost.unpriced)
    assert len(PLACES) == len([each for each in agent.state.messages if each.role == "tool"])


@pytest.mark.promise("P-16")
@pytest.mark.parametrize("dialect", VENDORS)
async def test_a_stream_that_breaks_is_a_message_and_nothing_is_raised(dialect: str) -> None:
    """With what was said until then, and the words of the failure."""
    vendor = VENDORS[dialect]
    cut = RawReply(vendor.streamed[0], cut_at=len(vendor.streamed[0]) * 3 // 4)
    async with ByteServer([cut]) as server, vendor.model("m", base_url=server.url, stream=True) as model:
        agent = Agent(model, tools=[weather])
        await agent.prompt("Is it wet?")

    last = agent.state.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert ("error", agent.state.error_message) == (last.stop_reason, last.error)
    assert last.error
    assert THOUGHT in "".join([part.text for part in last.parts if isinstance(part, Reasoning)])
