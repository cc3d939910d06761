"""The byte-identity baseline: what a minimal agent sends is what it always sent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import turnwright_adapters
from tests.baseline import BASELINE, PROVIDERS, request_of

ABSENT: dict[str, object] = {
    "tools": [],
    "workflows": [],
    "resources": [],
    "guardrails": [],
    "integrations": [],
    "services": None,
    "trace": False,
    "on_tool_call": None,
    "options": {},
}


@pytest.mark.promise("A-16")
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_minimal_agent_sends_its_baseline_byte_for_byte(provider: str) -> None:
    """Also when every optional part is given and empty."""
    pinned = (BASELINE / f"{provider}.json").read_text(encoding="utf-8")

    assert pinned == await request_of(provider)
    assert pinned == await request_of(provider, **ABSENT)


@pytest.mark.promise("A-16")
@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_absent_option_leaves_no_key(provider: str) -> None:
    """Not even as an empty list or a null."""
    pinned = json.loads((BASELINE / f"{provider}.json").read_text(encoding="utf-8"))

    body = json.loads(pinned["body"])
    optional = {"tools", "tool_choice", "toolConfig", "temperature", "response_format", "text", "metadata", "stop"}
    assert not body.keys() & optional
    assert all(value not in (None, [], {}, "") for value in body.values())


@pytest.mark.promise("A-16")
def test_every_adapter_that_speaks_to_a_provider_has_a_baseline() -> None:
    """A new one is pinned from its first day; the proxy speaks to a server of our own."""
    modules = Path(turnwright_adapters.__path__[0]).glob("*.py")
    speaking = {each.stem for each in modules if "(HttpModel)" in each.read_text(encoding="utf-8")}

    assert speaking - {"proxy"} == {*PROVIDERS} == {path.stem for path in BASELINE.glob("*.json")}
