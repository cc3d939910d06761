"""What the tests of the command line share: no key and no model of this machine, and conversations to replay."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

from turnwright import Decision, Ports, resume_agent, run_agent
from turnwright.cli.loading import load
from turnwright.models import PROVIDERS
from turnwright.outcomes import Suspended
from turnwright.testing import RecordedModel, Reply, ScriptedModel

Record: TypeAlias = Callable[..., str]


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let no key, server or model of whoever runs the tests answer, and undo what loading a module does to the path."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    for provider in PROVIDERS.values():
        for name in filter(None, (provider.key, provider.other_key, provider.moved)):
            monkeypatch.delenv(name, raising=False)
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TURNWRIGHT_LOCAL_MODEL", str(tmp_path / "no-such-model"))


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """Record a conversation of an agent with a script, and return the path of the recording.

    What waits for approval is decided by *decisions*, one after another. With *harmless*, no tool runs.
    """

    def record(
        target: str,
        input: object,
        replies: Sequence[Reply],
        *,
        decisions: Sequence[str | Decision] = (),
        harmless: bool = False,
    ) -> str:
        path = tmp_path / "recording.jsonl"
        definition = load(target).definition
        model = RecordedModel(path, model=ScriptedModel(replies))
        ports = Ports(model=model, capabilities=frozenset() if harmless else None)

        async def converse() -> None:
            outcome = await run_agent(definition, input, ports)
            for decision in decisions:
                assert isinstance(outcome, Suspended)
                said = {pending.effect_id: decision for pending in outcome.pending}
                outcome = await resume_agent(definition, outcome.run_id, ports, decisions=said)

        asyncio.run(converse())
        return str(path)

    return record
