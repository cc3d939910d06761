"""Conversations by number, as each vendor streams them. Rule: the same number is the same conversation for ever."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from random import Random

from attrs import frozen

from tests.adapters import test_anthropic as claude, test_gemini as gemini, test_responses as openai
from tests.adapters.chat import Object, call_chunk, chunk, sse
from tests.adapters.dialects import events
from tests.adapters.test_dialects import Vendor
from turnwright import AgentDefinition, ToolOutput, tool
from turnwright.messages import File, Image, Part, Text
from turnwright_adapters.anthropic import AnthropicModel
from turnwright_adapters.chat_completions import ChatCompletionsModel
from turnwright_adapters.gemini import GeminiModel
from turnwright_adapters.responses import ResponsesModel

WORDS = [
    "rain",
    " in ",
    "Zürich",
    "🌧",
    "\n",
    '"quoted"',
    "\\n",
    "\u2028",
    "晴れ",
    "data: [DONE]",
    "{}",
    "👩‍👩‍👧",
    " ",
    "\t",
    "e\u0301",
]


@frozen
class Turn:
    """What a model says in one turn, and the tokens that it takes: read, cached, written."""

    thought: str
    text: str
    calls: tuple[Object, ...]
    tokens: tuple[int, int, int]


def conversation(number: int) -> list[Turn]:
    """Up to four turns with tools, and the answer."""
    dice = Random(number)
    return [_turn(dice, calls=dice.randint(1, 4)) for _ in range(dice.randint(0, 4))] + [_turn(dice, calls=0)]


def _turn(dice: Random, *, calls: int) -> Turn:
    thought = _words(dice) if dice.random() < 0.5 else ""
    text = _words(dice) if not calls or dice.random() < 0.5 else ""
    places: list[Object] = [{"place": _words(dice)} for _ in range(calls)]
    return Turn(thought, text, tuple(places), (dice.randint(1, 999), dice.randint(0, 99), dice.randint(1, 99)))


def _words(dice: Random) -> str:
    return "w" + "".join(dice.choices(WORDS, k=dice.randint(0, 6)))


def shown(number: int, place: str) -> list[Image | File]:
    """Up to two images and documents, by value and by address, that go with *place* in that conversation."""
    dice = Random(f"{number} {place}")
    data = b64encode(dice.randbytes(dice.randint(1, 40))).decode()
    kinds = [
        Image("image/png", data=data),
        Image("image/gif", url=f"https://example.org/{dice.randrange(99)}.gif"),
        File("application/pdf", data=data, name=dice.choice([None, "Zürich 🌧.pdf", "a.pdf"])),
        File("application/pdf", id=f"file_{dice.randrange(99)}"),
    ]
    return dice.choices(kinds, k=dice.randint(0, 2))


def forecaster(number: int) -> AgentDefinition[str, str]:
    """The agent of the conversation: it is given images and documents with the question, and with every result."""

    @tool
    async def weather(place: str) -> ToolOutput:
        """The weather at a place."""
        return ToolOutput([Text(f"rain at {place}"), *shown(number, place)])

    def render(question: str) -> Sequence[Part]:
        return Text(question), *shown(number, "")

    return AgentDefinition(name="forecaster", instruction="Be brief.", tools=[weather], render=render)


def vendors(number: int) -> dict[str, Vendor]:
    """The conversation of that *number* as each vendor streams it, its texts cut in places of the vendor's own."""
    turns = conversation(number)
    return {
        "chat": Vendor(ChatCompletionsModel, [_chat(turn, Random(number)) for turn in turns], ()),
        "anthropic": Vendor(AnthropicModel, [_anthropic(turn, Random(-1 - number)) for turn in turns], ()),
        "responses": Vendor(ResponsesModel, [_responses(turn, Random(number + 7919)) for turn in turns], ()),
        "gemini": Vendor(GeminiModel, [_gemini(turn, Random(number + 104729)) for turn in turns], ()),
    }


def _cut(text: str, dice: Random) -> Iterator[str]:
    """Pieces of *text*, none empty."""
    while text:
        size = dice.randint(1, 5)
        yield text[:size]
        text = text[size:]


def _chat(turn: Turn, dice: Random) -> bytes:
    read, cached, written = turn.tokens
    usage: Object = {
        "prompt_tokens": read + cached,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens": written,
    }
    chunks = [chunk({"reasoning_content": piece}) for piece in _cut(turn.thought, dice)]
    chunks += [chunk({"content": piece}) for piece in _cut(turn.text, dice)]
    for place, arguments in enumerate(turn.calls):
        chunks.append(call_chunk(index=place, id=f"c{place}", name="weather", arguments=""))
        chunks += [call_chunk(index=place, arguments=piece) for piece in _cut(json.dumps(arguments), dice)]
    return sse(*chunks, chunk({}, "tool_calls" if turn.calls else "stop"), {"choices": [], "usage": usage})


def _anthropic(turn: Turn, dice: Random) -> bytes:
    read, cached, written = turn.tokens
    usage = {"input_tokens": read, "cache_read_input_tokens": cached, "output_tokens": 1}
    blocks: list[tuple[Object, list[Object]]] = []
    if turn.thought:
        pieces: list[Object] = [{"type": "thinking_delta", "thinking": each} for each in _cut(turn.thought, dice)]
        signed: Object = {"type": "signature_delta", "signature": "SIG="}
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, [*pieces, signed]))
    if turn.text:
        said: list[Object] = [{"type": "text_delta", "text": each} for each in _cut(turn.text, dice)]
        blocks.append(({"type": "text", "text": ""}, said))
    for place, arguments in enumerate(turn.calls):
        written_out = _cut(json.dumps(arguments), dice)
        parts: list[Object] = [{"type": "input_json_delta", "partial_json": each} for each in written_out]
        blocks.append(({"type": "tool_use", "id": f"c{place}", "name": "weather", "input": {}}, parts))
    streamed: list[Object] = [{"type": "message_start", "message": {"id": "m1", "usage": usage}}]
    for index, (block, deltas) in enumerate(blocks):
        streamed.append({"type": "content_block_start", "index": index, "content_block": block})
        streamed += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        streamed += [claude.close(index), {"type": "ping"}]
    return events(*streamed, *claude.end("tool_use" if turn.calls else "end_turn", output_tokens=written))


def _responses(turn: Turn, dice: Random) -> bytes:
    read, cached, written = turn.tokens
    usage: Object = {
        "input_tokens": read + cached,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": written,
    }
    streamed: list[Object] = [openai.event("created", response={"id": "r1", "status": "in_progress"})]
    items: list[Object] = []
    if turn.thought:
        item = openai.thought(turn.thought, secret="E")
        streamed.append(openai.event("output_item.added", 0, item=openai.thought()))
        streamed += [
            openai.event("reasoning_summary_text.delta", 0, item_id="rs_1", summary_index=0, delta=each)
            for each in _cut(turn.thought, dice)
        ]
        streamed.append(openai.event("output_item.done", 0, item=item))
        items.append(item)
    if turn.text:
        streamed += [
            openai.event("output_text.delta", len(items), item_id="msg_1", content_index=0, delta=each)
            for each in _cut(turn.text, dice)
        ]
        items.append(openai.message(openai.text(turn.text)))
    for number, arguments in enumerate(turn.calls):
        place, call = len(items), openai.call(f"c{number}", json.dumps(arguments), name="weather")
        streamed.append(openai.event("output_item.added", place, item={**call, "arguments": ""}))
        streamed += [
            openai.event("function_call_arguments.delta", place, item_id=call["id"], delta=each)
            for each in _cut(json.dumps(arguments), dice)
        ]
        streamed.append(openai.event("output_item.done", place, item=call))
        items.append(call)
    return events(*streamed, openai.end(*items, usage=usage))


def _gemini(turn: Turn, dice: Random) -> bytes:
    read, cached, written = turn.tokens
    usage: Object = {
        "promptTokenCount": read + cached,
        "cachedContentTokenCount": cached,
        "candidatesTokenCount": written,
    }
    parts: list[Object] = [{"text": each, "thought": True} for each in _cut(turn.thought, dice)]
    parts += [{"text": each} for each in _cut(turn.text, dice)]
    parts += [{"functionCall": {"name": "weather", "args": arguments}} for arguments in turn.calls]
    rest: Sequence[Object] = [gemini.reply(part, finish=None) for part in parts[:-1]]
    return events(*rest, gemini.reply(parts[-1], usageMetadata=usage))
