"""The first thing that a newcomer runs, with each vendor's dialect, against a server that others wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from llmock.pytest_plugin import LLMock

from turnwright.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples"
SORRY = "We are sorry that it arrived broken. We have refunded the full price to you."
RESOLUTIONS = [
    {"category": "broken_item", "order_id": "1042", "action": "refund", "reply": SORRY},
    {"category": "where_is_my_order", "order_id": "1057", "action": "answer", "reply": "It arrives on Thursday."},
    {"category": "product_question", "order_id": None, "action": "answer", "reply": "A colleague will answer today."},
]


def script(server: LLMock) -> None:
    """Let the model do what the desk's plan asks of it, for three mails."""
    server.call_tool("classify", {"category": "broken_item"})
    server.call_tool("lookup_order", {"order_id": "1042", "customer_email": "anna.lindqvist@example.com"})
    server.call_tool("refund", {"order_id": "1042", "cents": 100})
    server.reply(json.dumps(RESOLUTIONS[0]))
    server.call_tool("classify", {"category": "where_is_my_order"})
    server.call_tool("lookup_order", {"order_id": "1057", "customer_email": "t.nowak@example.net"})
    server.reply(json.dumps(RESOLUTIONS[1]))
    server.call_tool("classify", {"category": "product_question"})
    server.reply(json.dumps(RESOLUTIONS[2]))


@pytest.mark.parametrize(
    "model",
    [
        "anthropic:claude-sonnet-4-5",
        "openai:gpt-5-mini",
        "openai-responses:gpt-5-mini",
        "gemini:gemini-2.5-pro",
    ],
)
def test_the_support_desk_resolves_its_mails_with_every_vendor(
    llmock: LLMock, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vendor's own variable says where the server is, and that is all it takes."""
    monkeypatch.chdir(tmp_path)
    script(llmock)

    code = main(["run", str(EXAMPLES / "support_desk.py"), str(EXAMPLES / "inbox.mbox"), "-m", model, "--yes"])

    written = [json.loads(line) for line in (tmp_path / "resolutions.jsonl").read_text(encoding="utf-8").splitlines()]
    assert (0, RESOLUTIONS) == (
        code,
        [{name: each[name] for name in RESOLUTIONS[0]} for each in written if each["outcome"] == "completed"],
    )
    assert 9 == len(llmock.requests)
    llmock.assert_resilient(strict=True)
