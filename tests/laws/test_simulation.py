"""Law 1 in any world: what a seed decides, the engine survives, and a seed is a whole story."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest

from turnwright import AgentDefinition, tool
from turnwright.state import RunState
from turnwright.testing import ScriptedModel, Simulation, call, simulate, text
from turnwright.testing.simulation.fate import BLOWS

QUICK, SEEDS = 3_000, 60_000
BATCH, CHUNK = 500, 1_000

SCRIPT = """
import json, sys
from turnwright.testing import simulate
first, after = map(int, sys.argv[1:])
print(json.dumps([str(each) for each in map(simulate, range(first, after)) if each.violations]))
"""


CALLS = (
    *("state.acquire", "state.load", "state.read", "state.append", "state.renew", "state.release", "inbox.poll"),
    *("model.complete", "budgets.held", "budgets.reserve", "budgets.settle", "listener.on_event"),
)
"""What every play calls, or every other: each blow falls on each."""

RARE = (
    *("approvals.request", "budgets.release", "idempotency.begin", "idempotency.commit", "idempotency.mark_unknown"),
    *("state.post", "reconcile ship", "tool book", "tool look", "tool order", "tool pay", "tool ship", "tool tidy"),
    *("tool wire", "tool write"),
)
"""What only some call: some blow falls on each."""

STATES = (
    *("completed", "cancelled with nothing in doubt", "cancelled with something in doubt"),
    *("suspended: approval", "suspended: in-doubt", "suspended: cancelled", "suspended: model connection"),
    *("suspended: model timeout", "suspended: budget requests", "suspended: budget tool_calls"),
    *("suspended: budget deadline", "suspended: budget unavailable", "suspended: external poisoned"),
    *("resumed from: budget", "resumed from: cancelled", "resumed from: external", "resumed from: model"),
    *("a request was lost", "a call ran for the time 3", "refused: approval"),
    *("approved by people", "approved by the port", "denied by people", "denied by the port", "denied by expiry"),
    *("in doubt: started, and no result was recorded", "in doubt: cancelled", "in doubt: deadline"),
    *("resolved by people: it happened", "resolved by people: it did not happen"),
    *("resolved by reconcile: it happened", "resolved by reconcile: it did not happen"),
    *("a word was heard: steer", "a word was heard: withdraw", "a word was heard: late_result"),
    *("a word was refused: approve", "a word was refused: resolve"),
    *("gave up: LostLease", "gave up: PortError", "a viewer came back and read on from an earlier place"),
    "an append whose acknowledgement was lost is acknowledged again",
)


@cache
def played(first: int) -> tuple[Simulation, ...]:
    """The worlds of a batch of seeds, from *first* on."""
    return tuple([simulate(seed) for seed in range(first, first + BATCH)])


@pytest.mark.promise("T-03", "T-01", "N-10")
@pytest.mark.parametrize("first", range(0, QUICK, BATCH))
def test_no_seed_breaks_a_law(first: int) -> None:
    """Three thousand worlds, with deaths, lost acknowledgements, outages, clocks that jump and workers at odds."""
    assert [] == [str(each) for each in played(first) if each.violations]


@pytest.mark.promise("T-03")
def test_what_may_befall_a_process_befalls_it_at_every_call() -> None:
    """A world in which something never happens proves nothing about it."""
    met = frozenset[str]().union(*[each.met for first in range(0, QUICK, BATCH) for each in played(first)])

    assert set() == {f"{blow}: {call}" for blow in BLOWS for call in CALLS} - met
    assert [] == [call for call in RARE if not any([f"{blow}: {call}" in met for blow in BLOWS])]
    assert set() == {*STATES} - met


@pytest.mark.promise("T-03")
def test_a_seed_is_a_whole_story() -> None:
    """Played again, in another process too whose sets have another order, it is the same to the last byte."""
    script = "from turnwright.testing import simulate; print('\\n'.join(simulate(11).trace))"
    others = {**os.environ, "PYTHONHASHSEED": "11"}
    told = subprocess.run(
        [sys.executable, "-c", script], env=others, capture_output=True, text=True, check=True, timeout=60
    )

    assert simulate(11) == simulate(11)
    assert simulate(11) != simulate(12)
    assert "\n".join(simulate(11).trace) == told.stdout.rstrip("\n")


@tool(replay="safe")
async def count() -> str:
    """Count."""
    return "one more"


COUNTER = AgentDefinition("counter", "Count.", tools=[count])


def once(effects: Mapping[str, int], state: RunState) -> str:
    """What a `safe` tool does not promise."""
    return "counted twice" if any([times > 1 for times in effects.values()]) else ""


@pytest.mark.promise("T-03")
def test_a_violation_is_told_with_the_misfortunes_that_matter() -> None:
    """A law that a `safe` tool breaks: seen in some world, and told with as little trouble as it takes."""

    def script() -> ScriptedModel:
        return ScriptedModel([call("count"), *[text("done")] * 100])

    played = (simulate(seed, COUNTER, model=script, laws=[once]) for seed in range(200))
    seen = next(each for each in played if each.violations)

    assert ("ada/run-1: counted twice",) == seen.violations
    assert 1 <= len(seen.misfortunes) <= 2
    assert seen == simulate(seen.seed, COUNTER, model=script, laws=[once], without=seen.without)
    assert f"simulate({seen.seed}, without={[*seen.without]}): ada/run-1: counted twice" in str(seen)


@pytest.mark.promise("T-03")
def test_a_model_may_run_out_of_answers() -> None:
    """People say more than a short script foresees; that run waits, and its world goes to its end."""

    def script() -> ScriptedModel:
        return ScriptedModel([call("count"), text("done")])

    all_played = [simulate(seed, COUNTER, model=script) for seed in range(100)]

    assert [] == [str(each) for each in all_played if each.violations]
    assert any(["suspended: model invalid_request" in each.met for each in all_played])


@pytest.mark.proof
@pytest.mark.promise("T-03", "T-01")
def test_sixty_thousand_seeds_break_no_law() -> None:
    """In two processes at a time."""

    def batch(first: int) -> list[str]:
        command = [sys.executable, "-c", SCRIPT, str(first), str(first + CHUNK)]
        told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1800)
        violations: list[str] = json.loads(told.stdout)
        return violations

    with ThreadPoolExecutor(2) as pool:
        found = [each for told in pool.map(batch, range(0, SEEDS, CHUNK)) for each in told]

    assert [] == found
