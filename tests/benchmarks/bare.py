"""The loop that one would write by hand, with asyncio and json alone: what every framework is measured against.

It keeps the messages, runs the calls of a turn together, shows a tool's failure to the model and bounds the turns. It
records nothing, so it can neither pause nor recover.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias

__all__ = ["Message", "Model", "Tools", "answer", "calling", "run", "scripted"]

Message: TypeAlias = dict[str, Any]
"""JSON as it comes: nobody checks it in a loop by hand."""

Model: TypeAlias = Callable[[list[Message]], Awaitable[Message]]
Tools: TypeAlias = Mapping[str, Callable[..., Awaitable[object]]]


async def run(model: Model, tools: Tools, question: str, *, max_turns: int = 8) -> str:
    """Run one agent to its answer."""
    messages: list[Message] = [
        {"role": "system", "content": "You answer questions."},
        {"role": "user", "content": question},
    ]
    for _ in range(max_turns):
        reply = await model(messages)
        messages.append(reply)
        if not reply.get("tool_calls"):
            return str(reply["content"])
        messages += await asyncio.gather(*[_call(tools, call) for call in reply["tool_calls"]])
    raise RuntimeError("too many turns")


async def _call(tools: Tools, call: Message) -> Message:
    function = call["function"]
    try:
        content = json.dumps(await tools[function["name"]](**json.loads(function["arguments"])))
    except Exception as error:  # noqa: BLE001 - a failing tool is a result that the model sees
        content = f"error: {error}"
    return {"role": "tool", "tool_call_id": call["id"], "content": content}


def answer(text: str) -> Message:
    """A reply of plain text."""
    return {"role": "assistant", "content": text, "tool_calls": None}


def calling(*calls: tuple[str, str]) -> Message:
    """A reply that calls tools, each by name and raw arguments."""
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": f"call-{index}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for index, (name, arguments) in enumerate(calls)
        ],
    }


def scripted(replies: Iterable[Message]) -> Model:
    """A model for one run that gives *replies* in order."""
    left = iter(replies)

    async def model(messages: list[Message]) -> Message:
        return next(left)

    return model
