"""Laws 1 and 8 on the journal itself: cut it after any append, and a fresh engine goes on from there to the calm end.

What is cut is a drawn run in drawn weather, with all that the definition's own code may say in it. Its journal is also
read back, byte by byte, and held against the state that its owner had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

import pytest
from attrs import evolve as replace, fields
from hypothesis import event, given, settings, strategies as st

import turnwright.run
from tests.laws.playing import RUN, Played, Weather, play, ports, weathers
from turnwright import AgentDefinition, Completed, Failed, MemoryState, Outcome, replay_agent
from turnwright.decide import standing
from turnwright.evidence import Entry
from turnwright.facts import CallAdmitted, CallFinished, CallStarted, Fact
from turnwright.inbox import Word
from turnwright.journal import decode, encode
from turnwright.messages import AssistantMessage, ToolCall
from turnwright.ports import Append, Lease
from turnwright.state import CallState, RunState, evolve
from turnwright.testing import text
from turnwright.testing.strategies import Sketch, ToolSketch, sketches


class Remembering(MemoryState):
    """A store that remembers how long the journal was after each append, and when each word came."""

    def __init__(self) -> None:
        super().__init__()
        self.lengths = [0]
        self.posted: list[tuple[int, Word]] = []

    async def append(self, run_id: str, epoch: int, expected: int, append_id: str, facts: Sequence[Entry]) -> Append:
        """Write."""
        answer = await super().append(run_id, epoch, expected, append_id, facts)
        self.lengths.append(len(await self.load(run_id)))
        return answer

    async def post(self, run_id: str, word: Word) -> int:
        """Take a word."""
        self.posted.append((len(await self.load(run_id)), word))
        return await super().post(run_id, word)

    async def cut(self, length: int) -> MemoryState:
        """What a fresh process finds of the run after a death at that length: no word of later is there."""
        state = MemoryState()
        lease = await state.acquire(RUN, holder="dies", seconds=inf)
        assert isinstance(lease, Lease)
        if length:
            await state.append(RUN, lease.epoch, 0, "cut", (await self.load(RUN))[:length])
        for came, word in self.posted:
            if came <= length:
                await state.post(RUN, word)
        return state.reopen()


async def played(sketch: Sketch, weather: Weather) -> tuple[Played, Remembering]:
    """The calm run, and the store that remembers it."""
    state = Remembering()
    given_, _ = ports(sketch, state=state, weather=weather)
    return await play(sketch, weather=weather, on=given_), state


async def facts(state: MemoryState) -> list[Fact]:
    """The facts of the run."""
    return [decode(each.kind, each.schema, each.body, position=1) for each in await state.load(RUN)]


def ends(outcome: Outcome[str]) -> tuple[object, ...]:
    """How a run ended: as what, with what, after which words."""
    reason = getattr(outcome, "reason", None) or getattr(outcome, "error", None) or getattr(outcome, "output", None)
    return (type(outcome), reason, [*outcome.transcript])


@pytest.mark.promise("T-01", "N-05", "N-08", "N-20")
@given(sketches(), weathers(), st.booleans())
@settings(max_examples=30)
async def test_a_journal_cut_after_any_append_is_gone_on_with_to_the_calm_end(
    sketch: Sketch, weather: Weather, later: bool
) -> None:
    """In a fresh engine, perhaps of a later, compatible version: nothing that is recorded happens again, no `never`
    effect that was begun, and where nobody was asked what became of a call, the end is the calm one. It replays.
    """
    calm, state = await played(sketch, weather)

    for length in state.lengths:
        effects: list[str] = []
        given_, _ = ports(sketch, state=await state.cut(length), weather=weather)
        before = await facts(given_.state)  # type: ignore[arg-type]
        cut = await play(
            *(sketch,),
            weather=weather,
            on=given_,
            effect=lambda context: effects.append(context.effect_id),  # noqa: B023
            takes_over=sketch.definition().fingerprint if later else "",
        )

        after = await facts(given_.state)  # type: ignore[arg-type]
        doubts = {"CallInDoubt", "CallResolved"} & {type(each).__name__ for each in after[len(before) :]}
        if not doubts:
            assert ends(calm.outcome) == ends(cut.outcome)
        assert [] == repeated(sketch, before, effects)
        happened = [*effects]
        definition = sketch.definition(lambda context: effects.append(context.effect_id))  # noqa: B023
        assert None is (await replay_agent(definition, RUN, given_)).divergence
        assert happened == effects
    event(type(calm.outcome).__name__)


def repeated(sketch: Sketch, before: Sequence[Fact], effects: Sequence[str]) -> list[str]:
    """The effects that happened although the journal had their result, or had begun one that is never repeated."""
    never = {each.name for each in sketch.tools if each.replay == "never"}
    names = {(each.turn, each.index): each.name for each in before if isinstance(each, CallAdmitted)}
    done = {f"{RUN}:{each.turn}.{each.index}" for each in before if isinstance(each, CallFinished)}
    begun = {
        each.effect_id for each in before if isinstance(each, CallStarted) and names[each.turn, each.index] in never
    }
    return [effect for effect in effects if effect in done | begun]


@pytest.mark.promise("N-08", "N-09")
@given(sketches(), weathers())
@settings(max_examples=25)
async def test_no_call_runs_under_a_contract_that_it_was_not_admitted_under(sketch: Sketch, weather: Weather) -> None:
    """A later version with other contracts takes the run over anywhere: what waits is void, and what had begun is in
    doubt and never begun again. The run still comes to its end.
    """
    _, state = await played(sketch, weather)
    changed = replace(sketch, tools=tuple([replace(each, version="2") for each in sketch.tools]))

    for length in state.lengths:
        given_, _ = ports(changed, state=await state.cut(length), weather=weather)
        before = await facts(given_.state)  # type: ignore[arg-type]

        cut = await play(changed, weather=weather, on=given_, takes_over=sketch.definition().fingerprint)

        after = (await facts(given_.state))[len(before) :]  # type: ignore[arg-type]
        old = {(each.turn, each.index) for each in before if isinstance(each, CallAdmitted)}
        assert [] == [each for each in after if isinstance(each, CallStarted) and (each.turn, each.index) in old]
        assert isinstance(cut.outcome, Completed | Failed) or cut.outcome.reason in ("max_turns", "model")


@pytest.mark.promise("N-05")
@given(sketches(), weathers())
@settings(max_examples=30)
async def test_the_journal_folds_to_what_its_owner_held(sketch: Sketch, weather: Weather) -> None:
    """Each time the run comes to rest, whoever reads the journal has the same state, in every field."""
    state, held = Remembering(), []

    def spy(definition: AgentDefinition[str, str], owned: RunState, head: Callable[[], str]) -> Outcome[str]:
        held.append((len(state.lengths), owned))
        return standing(definition, owned, head)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(turnwright.run, "standing", spy)
        given_, _ = ports(sketch, state=state, weather=weather)
        await play(sketch, weather=weather, on=given_)

    entries = await state.load(RUN)
    for appends, owned in held:
        folded = RunState()
        for entry in entries[: state.lengths[appends - 1]]:
            evolve(folded, decode(entry.kind, entry.schema, entry.body, position=entry.seq), entry.at)
        assert shown(owned) == shown(folded)


def shown(value: object) -> object:
    """A state as plain values, so that two can be compared."""
    match value:
        case RunState() | CallState():
            return {each.name: shown(getattr(value, each.name)) for each in fields(type(value))}
        case list():
            return [shown(each) for each in value]
        case dict():
            return {key: shown(each) for key, each in value.items()}
        case _:
            return value


@pytest.mark.promise("N-20")
@given(sketches(), weathers(), st.data())
@settings(max_examples=40)
async def test_a_journal_reads_as_it_was_written_and_no_entry_can_be_changed(
    sketch: Sketch, weather: Weather, data: st.DataObject
) -> None:
    """Every fact of a run is written again as the same bytes; a byte more is found where it is."""
    calm, state = await played(sketch, weather)
    await state.evidence(RUN)
    entries = await state.load(RUN)
    place = data.draw(st.integers(0, len(entries) - 1))

    for entry in entries:
        assert entry.body == encode(decode(entry.kind, entry.schema, entry.body, position=entry.seq))[1]
    entries[place].body += b" "
    replayed = await replay_agent(sketch.definition(), RUN, calm.ports)

    assert replayed.divergence is not None
    assert (place, place + 1, "evidence") == (
        replayed.agreed,
        replayed.divergence.position,
        replayed.divergence.what,
    )


TOOL = ToolSketch("look", replay="safe")
ASKED = Sketch(
    (TOOL,), replies=(AssistantMessage((ToolCall("c", "look", '{"n":1}'),), "tool_calls"), *[text("done")] * 3)
)


@pytest.mark.promise("N-20")
@pytest.mark.parametrize(
    ("recorded", "changed", "divergence"),
    [
        (ASKED, {"stops": frozenset({2})}, ("BoundaryDecided", "fact")),
        (ASKED, {"adds": frozenset({2})}, ("BoundaryDecided", "fact")),
        (ASKED, {"blocks": True}, ("CallAdmitted", "fact")),
        (ASKED, {"tools": (replace(TOOL, version="2"),)}, ("CallAdmitted", "fact")),
        (ASKED, {"tools": (replace(TOOL, approval="required"),)}, ("CallAdmitted", "fact")),
        (replace(ASKED, adds=frozenset({3})), {"adds": frozenset({4})}, ("BoundaryDecided", "fact")),
        (replace(ASKED, blocks=True), {"blocks": False}, ("CallRefused", "fact")),
        (ASKED, {"hides": True}, None),
        (ASKED, {"at_once": 1}, None),
    ],
)
async def test_what_another_definition_would_have_decided_is_told_by_name(
    recorded: Sketch, changed: dict[str, object], divergence: tuple[str, str] | None
) -> None:
    """What its code says, and what its contracts are, is concluded again; what the world said is not."""
    watched = replace(recorded, adds=recorded.adds or frozenset({9}))  # a boundary that keeps silent until then
    calm, state = await played(watched, Weather())

    replayed = await replay_agent(replace(watched, **changed).definition(), RUN, calm.ports)  # type: ignore[arg-type]

    told = replayed.divergence
    assert divergence == (None if told is None else (told.recorded.split()[0], told.what))
    assert told is None or (await state.load(RUN))[told.position - 1].kind == told.recorded.split()[0]
