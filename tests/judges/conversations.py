"""Golden conversations: each shape of request that an adapter writes, in the words of the engine."""

from __future__ import annotations

from typing import Final

from tests.adapters.chat import request, tool
from turnwright.definition import OutputSpec
from turnwright.messages import (
    AssistantMessage,
    File,
    Image,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from turnwright.ports import ModelRequest

PIXEL: Final = "R0lGODlhAQABAIAAABAgMEBQYCwAAAAAAQABAAACAkQBADs="
WEATHER: Final = tool("weather", place={"type": "string"}, days={"type": "integer", "minimum": 1})
CLOCK: Final = tool("clock")
REPORT: Final = OutputSpec(
    "report",
    {
        "type": "object",
        "properties": {"wet": {"type": "boolean"}, "why": {"type": ["string", "null"]}},
        "required": ["wet", "why"],
        "additionalProperties": False,
    },
)
TWO_CALLS: Final = (
    UserMessage("Is it wet in Zürich and in Kraków?"),
    AssistantMessage(
        [
            Text("I will look."),
            ToolCall("c1", "weather", '{"place":"Zürich"}'),
            ToolCall("c2", "weather", '{"place":"Kraków 🌧"}'),
        ],
        "tool_calls",
    ),
    ToolMessage("c1", "weather", "rain"),
    ToolMessage("c2", "weather", "the service is down", is_error=True),
)
PICTURES: Final = [
    Text("What is this?"),
    Image("image/gif", data=PIXEL),
    Image("image/png", url="https://example.com/a.png"),
]
PAPERS: Final = [
    Text("What is in these?"),
    File("application/pdf", data="JVBERi0xLjQ=", name="a.pdf"),
    File("application/pdf", url="https://example.com/b.pdf", name="b.pdf"),
    File("application/pdf", id="file_1"),
    File("text/plain", data="YSBub3Rl", name="note.txt"),
    File("application/zip", data="UEs=", name="all.zip"),
]
OPTIONS: Final = {"temperature": 0, "max_tokens": 500, "top_p": 0.5}


SIGNATURES: Final = {"openai-responses": "rs_1 SIG="}


def conversations(provider: str) -> dict[str, ModelRequest]:
    """Return the conversations by name, with an assistant that answered as *provider*."""
    signature = SIGNATURES.get(provider, "c2lnbmVk")
    thinking = AssistantMessage(
        [
            Reasoning("Two places.", signature),
            Text("I will look."),
            ToolCall("c1", "weather", "{}", signature=signature),
        ],
        "tool_calls",
        provider=provider,
    )
    rain = ToolMessage("c1", "weather", "rain")
    plain = {
        "words": request(instruction="Be brief."),
        "options": request(options=OPTIONS),
        "several answers": request(
            UserMessage("hi"), AssistantMessage("hello", "stop"), UserMessage("and?"), UserMessage("well?")
        ),
        "tools": request(instruction="Be brief.", tools=(WEATHER, CLOCK)),
        "calls at once": request(*TWO_CALLS, tools=(WEATHER,)),
        "calls of tools that are gone": request(*TWO_CALLS),
        "images": request(UserMessage(PICTURES)),
        "files": request(UserMessage(PAPERS)),
        "files as results": request(
            UserMessage("scan"),
            AssistantMessage([ToolCall("c1", "scanner", "{}"), ToolCall("c2", "scanner", "{}")], "tool_calls"),
            ToolMessage("c1", "scanner", PAPERS),
            ToolMessage("c2", "scanner", PAPERS[1:2], is_error=True),
            UserMessage("well?"),
            tools=(tool("scanner"),),
        ),
        "an image as a result": request(
            UserMessage("look"),
            AssistantMessage([ToolCall("c1", "camera", "{}")], "tool_calls"),
            ToolMessage("c1", "camera", [Text("here"), Image("image/gif", data=PIXEL)]),
            tools=(tool("camera"),),
        ),
        "reasoning": request(UserMessage("Is it wet?"), thinking, rain, tools=(WEATHER,)),
        "a refusal": request(
            UserMessage("Do harm."), AssistantMessage([Refusal("No.")], "refusal"), UserMessage("Why?")
        ),
        "an answer that was broken off": request(
            UserMessage("hi"), AssistantMessage([Text("I wi")], "aborted"), UserMessage("go on")
        ),
        "a call that nobody answered": request(*TWO_CALLS[:3], UserMessage("leave it"), tools=(WEATHER,)),
        "nothing said": request(UserMessage("")),
        "structured output": request(output=REPORT),
        "structured output beside tools": request(output=REPORT, tools=(WEATHER,)),
        "one call at a time": request(tools=(WEATHER,), options={"parallel_tool_calls": False}),
        "a session": request(options={"session_id": "s1", "cache_retention": "long"}),
        "a stable instruction": request(instruction="Be brief. It is noon.", stable=9),
        "a watched answer": request(tools=(WEATHER,), on_delta=lambda _: None),
        "a budget": request(options={"thinking_budget": 4096}),
    }
    choices = {
        f"tool choice {choice}": request(tools=(WEATHER, CLOCK), tool_choice=choice)
        for choice in ("auto", "required", "none", "weather")
    }
    levels = {
        f"thinking {level}": request(options={"thinking_level": level, "max_tokens": 500})
        for level in ("off", "minimal", "low", "medium", "high", "xhigh", "max")
    }
    return plain | choices | levels
