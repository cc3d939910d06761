"""What the store in memory does beyond the contract of every store: it can die, and it forgets in order."""

from __future__ import annotations

import pytest

from turnwright import AgentDefinition, Completed, MemoryState, Ports, Suspended, UnknownRun, resume_agent, run_agent
from turnwright.ports import Busy, Lease
from turnwright.testing import ScriptedModel, text

AGENT = AgentDefinition(name="agent", instruction="Answer.")


async def finish(state: MemoryState, *run_ids: str) -> None:
    """Bring runs to their end, one after another."""
    for run_id in run_ids:
        assert isinstance(
            await run_agent(AGENT, "go", Ports(ScriptedModel([text("x")]), state), run_id=run_id), Completed
        )


async def known(state: MemoryState, *run_ids: str) -> list[str]:
    """Which of these runs the store still has."""
    return [run_id for run_id in run_ids if await state.load(run_id)]


@pytest.mark.promise("N-10")
async def test_a_store_that_is_opened_again_has_what_was_acknowledged_and_no_lease() -> None:
    """As a new process finds it: the journal is there, and whoever held the run is gone."""
    state = MemoryState()
    await finish(state, "a")
    held = await state.acquire("b", holder="dead", seconds=1000.0)

    again = state.reopen()

    assert isinstance(held, Lease)
    assert isinstance(await state.acquire("c", holder="x", seconds=1.0), Lease)
    assert await state.load("a") == await again.load("a")
    taken = await again.acquire("b", holder="new", seconds=1000.0)
    assert isinstance(taken, Lease)
    assert (held.epoch + 1, 1) == (taken.epoch, taken.crashes)
    assert isinstance(await again.acquire("b", holder="third", seconds=1.0), Busy)


async def test_the_oldest_finished_runs_are_dropped_first_and_no_other() -> None:
    """A run that waits is kept, however many end after it; one that was looked at again is young."""
    state = MemoryState(finished=2)
    waits = await run_agent(AGENT, "go", Ports(ScriptedModel([]), state), run_id="waits")
    await finish(state, "a", "b")
    await finish(state, "a")  # its outcome is given again
    await finish(state, "c")

    assert isinstance(waits, Suspended)
    assert ["waits", "a", "c"] == await known(state, "waits", "a", "b", "c")
    with pytest.raises(UnknownRun):
        await resume_agent(AGENT, "b", Ports(ScriptedModel([]), state))


async def test_a_finished_run_is_not_dropped_while_somebody_holds_it() -> None:
    """Whoever asks for its outcome gets it, whatever ends meanwhile."""
    state = MemoryState(finished=1)
    await finish(state, "a")
    lease = await state.acquire("a", holder="reader", seconds=10.0, create=False)

    await finish(state, "b", "c")

    assert isinstance(lease, Lease)
    assert lease.version == len(await state.load("a"))
    await state.release("a", lease.epoch)
    assert ["a"] == await known(state, "a", "b", "c")
