"""Law 3, projection: evidence is the projection of the journal, hash-chained, and holds no content."""

from __future__ import annotations

import msgspec
import pytest
from attrs import evolve as replace
from hypothesis import given, settings

from tests.laws.playing import RUN, Weather, play, weathers
from turnwright import AgentDefinition, JournalError, ModelError, Ports, replay_agent, run_agent, tool
from turnwright.evidence import verify
from turnwright.inbox import Deny, Steer
from turnwright.messages import UserMessage
from turnwright.testing import ScriptedModel, call, text
from turnwright.testing.strategies import Sketch, sketches

CANARY = "kanarienvogel"


@pytest.mark.promise("N-14")
@given(sketches(), weathers())
@settings(max_examples=60)
async def test_evidence_is_the_projection_of_the_journal(sketch: Sketch, weather: Weather) -> None:
    """One item a fact, in order; the outcome's head is that of the chain, all of it follows from the facts, and what
    was used is in it, also by attempts that failed.
    """
    played = await play(sketch, weather=weather)

    evidence = await played.ports.state.evidence(RUN)
    replayed = await replay_agent(sketch.definition(), RUN, played.ports)

    assert played.outcome.evidence_head == verify(evidence)
    assert len(await played.ports.state.load(RUN)) == len(evidence)
    used = played.outcome.usage
    assert (used.input_tokens, used.output_tokens) == (
        sum([each.input_tokens for each in evidence]),
        sum([each.output_tokens for each in evidence]),
    )
    assert None is replayed.divergence


@pytest.mark.promise("N-14")
async def test_a_changed_dropped_or_moved_item_breaks_the_chain() -> None:
    """Whoever touches evidence is found out at the first item that is not what it was."""
    played = await play(Sketch(replies=(text("hello"),)))
    items = [*await played.ports.state.evidence(RUN)]

    for broken in (
        [*items[:1], replace(items[1], ms=99), *items[2:]],
        items[1:],
        [items[0], items[2], items[1], *items[3:]],
    ):
        with pytest.raises(JournalError):
            verify(broken)


@tool
async def fail(secret: str) -> str:
    """Fail and say so."""
    raise RuntimeError(secret)


@tool(approval="required")
async def ask(secret: str) -> str:
    """Be asked about."""
    return secret


@pytest.mark.promise("N-04", "N-14")
async def test_no_word_of_anybody_gets_into_evidence() -> None:
    """Planted in every place where content can be, the canary is never seen in evidence."""
    definition = AgentDefinition(name="quiet", instruction=CANARY, tools=[fail, ask], check_output=[lambda *_: CANARY])
    model = ScriptedModel(
        [
            [
                call("fail", secret=CANARY),
                call(CANARY, x=CANARY),
                call("fail", wrong=CANARY),
                call("ask", secret=CANARY),
            ],
            text(CANARY),
            ModelError("internal", CANARY),
        ]
    )
    ports = Ports(model=model)
    await run_agent(definition, CANARY, ports, run_id=RUN)
    await ports.state.post(RUN, Deny(f"{RUN}:1.3", CANARY, CANARY))
    await ports.state.post(RUN, Steer(UserMessage(CANARY)))
    await run_agent(definition, CANARY, ports, run_id=RUN)

    entries = await ports.state.load(RUN)
    evidence = msgspec.json.encode(await ports.state.evidence(RUN)).decode()

    assert CANARY in b"".join([entry.body for entry in entries]).decode()
    assert CANARY not in evidence
