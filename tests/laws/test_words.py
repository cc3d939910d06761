"""Laws 1 and 8 under people: whatever they say, in whatever order and at once, no run breaks, pays twice or goes on
after it was cancelled.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings, strategies as st

from tests.laws.playing import RUN, ports
from turnwright import Cancelled, Suspended, replay_agent, run_agent
from turnwright.facts import ApprovalDecided, CallAdmitted, CallResolved, CallStarted, InboxReceived, RunOpened
from turnwright.inbox import Cancel, Word
from turnwright.journal import decode
from turnwright.ports import Lease
from turnwright.testing.strategies import Sketch, sketches, words

EFFECTS = tuple([f"{RUN}:{turn}.{index}" for turn in (1, 2) for index in (0, 1)])


@pytest.mark.promise("T-01", "N-07", "N-09", "P-08")
@given(sketches(), st.lists(st.lists(words(EFFECTS), max_size=5), min_size=1, max_size=6), st.booleans())
@settings(max_examples=100)
async def test_no_words_break_a_run(sketch: Sketch, said: Sequence[Sequence[Word]], early: bool) -> None:
    """Batches of any words, before it begins and at each of its rests: the run is driven to a rest without an error,
    its journal replays, a call is decided and resolved once, and after the word `cancel` nothing begins.
    """
    effects: list[str] = []
    given_, _ = ports(sketch)
    definition = sketch.definition(lambda context: effects.append(context.effect_id))
    if early:
        lease = await given_.state.acquire(RUN, holder="nobody", seconds=0.0)
        assert isinstance(lease, Lease)

    for position, batch in enumerate(said):
        if early or position:
            for word in batch:
                await given_.state.post(RUN, word)
        outcome = await run_agent(definition, "go", given_, run_id=RUN)

    entries = await given_.state.load(RUN)
    facts = [decode(each.kind, each.schema, each.body, position=each.seq) for each in entries]
    assert isinstance(facts[0], RunOpened)
    assert None is (await replay_agent(definition, RUN, given_)).divergence
    for once in (ApprovalDecided, CallResolved):
        about = [(each.turn, each.index) for each in facts if isinstance(each, once)]
        assert len({*about}) == len(about)
    tools = {each.name: each for each in sketch.tools}
    never = {
        f"{RUN}:{each.turn}.{each.index}"
        for each in facts
        if isinstance(each, CallAdmitted) and tools[each.name].replay == "never"
    }
    assert [] == [effect for effect in never if effects.count(effect) > 1]
    cancels = [
        place for place, each in enumerate(facts) if isinstance(each, InboxReceived) and isinstance(each.word, Cancel)
    ]
    if cancels:
        assert [] == [each for each in facts[cancels[0] :] if isinstance(each, CallStarted)]
        assert isinstance(outcome, Cancelled)
    elif isinstance(outcome, Suspended):
        again = await run_agent(definition, "go", given_, run_id=RUN)
        assert [*outcome.transcript] == [*again.transcript][: len(outcome.transcript)]
