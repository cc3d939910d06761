"""Law 1 in any world: what a seed decides, the engine survives, and a seed is a whole story."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from turnwright import AgentDefinition, tool
from turnwright.state import RunState
from turnwright.testing import ScriptedModel, call, simulate, text

QUICK, SEEDS = 3_000, 60_000
CHUNK = 1_000

BATCH = """
import json, sys
from turnwright.testing import simulate
first, after = map(int, sys.argv[1:])
print(json.dumps([str(each) for each in map(simulate, range(first, after)) if each.violations]))
"""


@pytest.mark.promise("T-03", "T-01", "N-10")
@pytest.mark.parametrize("first", range(0, QUICK, 500))
def test_no_seed_breaks_a_law(first: int) -> None:
    """Three thousand worlds, with deaths, lost acknowledgements, hanging stores and two workers on one run."""
    played = [simulate(seed) for seed in range(first, first + 500)]

    assert [] == [str(each) for each in played if each.violations]
    assert {"RunCompleted", "RunCancelled"} == {each.stands.split()[0] for each in played}
    assert {"died", "hangs", "failed", "dead"} <= {
        word for each in played[:100] for line in each.trace for word in line.split()
    }


@pytest.mark.promise("T-03")
def test_a_seed_is_a_whole_story() -> None:
    """Played again, in another process too, it is the same to the last byte."""
    script = "from turnwright.testing import simulate; print('\\n'.join(simulate(11).trace))"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

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

    assert ("counted twice",) == seen.violations
    assert 1 <= len(seen.misfortunes) <= 2
    assert seen == simulate(seen.seed, COUNTER, model=script, laws=[once], without=seen.without)
    assert f"simulate({seen.seed}, without={[*seen.without]}): counted twice" in str(seen)


@pytest.mark.proof
@pytest.mark.promise("T-03", "T-01")
def test_sixty_thousand_seeds_break_no_law() -> None:
    """In two processes at a time."""

    def batch(first: int) -> list[str]:
        command = [sys.executable, "-c", BATCH, str(first), str(first + CHUNK)]
        told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1800)
        violations: list[str] = json.loads(told.stdout)
        return violations

    with ThreadPoolExecutor(2) as pool:
        found = [each for told in pool.map(batch, range(0, SEEDS, CHUNK)) for each in told]

    assert [] == found
