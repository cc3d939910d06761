"""Programs that other frameworks stumbled over, run in the local environment."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import pytest

from turnwright import AgentDefinition, Completed, Ports, run_agent, tool
from turnwright.environment import Ran
from turnwright.errors import PortError
from turnwright.messages import ToolMessage
from turnwright.testing import ScriptedModel, call, text
from turnwright_adapters.local_environment import LocalEnvironment

pytestmark = pytest.mark.promise("I-08")


async def ran(place: Path, *argv: str, timeout: float | None = 20.0) -> Ran:
    """What becomes of a program."""
    async with LocalEnvironment(place, grace=0.2) as local:
        return await local.run(argv, timeout=timeout)


def descriptors() -> int:
    """How many descriptors this process has open."""
    return len([*Path("/proc/self/fd").iterdir()])


def alive(group: int) -> list[str]:
    """The programs of a group that still run; a zombie does not."""
    found: list[str] = []
    for place in Path("/proc").iterdir():
        with suppress(OSError):
            state, _, of_group, *_ = (place / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            if int(of_group) == group and state not in {"Z", "X"}:
                found.append(place.name)
    return found


@pytest.mark.case("prc-01")
@pytest.mark.parametrize(
    "script",
    ["sleep 60 & echo done", "setsid sleep 60 & echo done", "sleep 60 </dev/null 2>/dev/null & echo done"],
)
async def test_a_child_in_the_background_keeps_nobody_waiting(tmp_path: Path, script: str) -> None:
    """The program is over when it has exited; what it left behind is ended, and no descriptor is left open."""
    open_before = descriptors()

    async with asyncio.timeout(10.0):
        over = await ran(tmp_path, "sh", "-c", script, timeout=None)

    assert (0, "done\n") == (over.exit_code, over.output)
    assert open_before == descriptors()


@pytest.mark.case("prc-02")
async def test_whoever_ignores_being_asked_is_killed_with_its_group(tmp_path: Path) -> None:
    """Within the timeout and the grace, with what it had said."""
    script = 'trap "" TERM; echo $$; (trap "" TERM; sleep 60) & wait'

    async with asyncio.timeout(10.0):
        over = await ran(tmp_path, "sh", "-c", script, timeout=0.5)

    assert over.timed_out
    assert [] == alive(int(over.output))


@pytest.mark.case("prc-04")
async def test_bytes_that_are_no_text_are_shown_as_such(tmp_path: Path) -> None:
    """What can be read is read."""
    over = await ran(tmp_path, "printf", r"\377\376 ok \303")

    assert (0, "�� ok �") == (over.exit_code, over.output)


@pytest.mark.case("prc-05")
async def test_a_key_of_ours_is_not_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a program has is named one by one, and what it is given besides is there."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
    async with LocalEnvironment(tmp_path) as local:
        inherited = await local.run(["env"])
        given = await local.run(["env"], env={"PATH": os.environ["PATH"], "COLOUR": "blue"})

    assert "sk-x" not in inherited.output + given.output
    assert f"PATH={os.environ['PATH']}" in inherited.output.splitlines()
    assert "COLOUR=blue" in given.output.splitlines()


@pytest.mark.case("prc-07")
async def test_a_full_pipe_of_errors_blocks_nothing(tmp_path: Path) -> None:
    """Both streams are read as they come."""
    script = "head -c 1000000 /dev/zero | tr '\\0' e >&2; echo; echo x"

    over = await ran(tmp_path, "sh", "-c", script)

    assert (0, 1_000_003, 2) == (over.exit_code, over.size, over.lines)
    assert over.output.endswith("x\n")


@pytest.mark.case("prc-08")
async def test_what_cannot_be_run_is_a_result_that_the_model_sees(tmp_path: Path) -> None:
    """The error names what is wrong, and the run goes on."""
    (tmp_path / "plain").write_text("no program", encoding="utf-8")
    local = LocalEnvironment(tmp_path)

    @tool(replay="safe")
    async def start(argv: list[str], cwd: str) -> str:
        """Start a program."""
        return (await local.run(argv, cwd=cwd)).output

    wrong = [(["/no/such/bin"], "."), (["./plain"], "."), (["ls"], "no/such/dir"), ([], ".")]
    calls = [call("start", argv=argv, cwd=cwd) for argv, cwd in wrong]
    agent = AgentDefinition("starter", "Start it.", tools=[start])
    outcome = await run_agent(agent, "go", Ports(ScriptedModel([calls, text("none of them")])))

    assert isinstance(outcome, Completed)
    told = [each.text for each in outcome.transcript if isinstance(each, ToolMessage) and each.is_error]
    assert [True] * 4 == [
        part in said for part, said in zip(("/no/such/bin", "./plain", "no/such/dir", "argv"), told, strict=True)
    ]


@pytest.mark.case("prc-11")
async def test_nobody_waits_for_somebody_to_type(tmp_path: Path) -> None:
    """Standard input has ended before it began; and a tool has a timeout unless it says that it needs none."""
    assert (0, "") == ((over := await ran(tmp_path, "cat", timeout=None)).exit_code, over.output)
    assert 1 == (await ran(tmp_path, "sh", "-c", "read line", timeout=None)).exit_code

    @tool
    async def start() -> str:
        """Start a program."""
        return ""

    assert start.timeout == 300.0


@pytest.mark.case("prc-05")
async def test_a_variable_that_no_program_can_have_is_refused(tmp_path: Path) -> None:
    """With an error of ours, that does not show its value."""
    async with LocalEnvironment(tmp_path) as local:
        with pytest.raises((PortError, ValueError)) as caught:
            await local.run(["env"], env={"KEY": "canary\0"})

    assert "canary" not in str(caught.value)
