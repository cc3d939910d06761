"""What providers take of a history, by the rules that they document: a judge that knows nothing of how it was made.

Rule: each function reads the body of a request and names every breach; a body without one gives an empty list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from tests.adapters.chat import Object

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def breaches(provider: str, body: bytes) -> list[str]:
    """Name every breach of *provider*'s rules in *body*."""
    decoded = json.loads(body.decode())
    halves = ["half of a surrogate pair"] if re.search("[\ud800-\udfff]", _everything(decoded)) else []
    return [*halves, *RULES[provider](decoded)]


def _everything(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _objects(value: object) -> list[Object]:
    assert isinstance(value, list) and all(isinstance(item, dict) for item in value)
    return value


def _text(value: object) -> str:
    assert isinstance(value, str)
    return value


def _blank(value: object) -> bool:
    return not isinstance(value, str) or not value.strip()


def shown(provider: str, body: bytes) -> list[tuple[str, str]]:
    """Give the images and files in *body*, as `image` or `file` and what tells where they are, in their order."""
    return list(_shown(provider, json.loads(body)))


def _shown(provider: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for each in value:
            yield from _shown(provider, each)
    if isinstance(value, dict):
        if (found := SHOWN[provider](value)) is not None:
            yield found
        for each in value.values():
            yield from _shown(provider, each)


def _chat_shown(value: Object) -> tuple[str, str] | None:
    match value:
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return "image", _value(url)
        case {"type": "file", "file": {"file_data": str(source)} | {"file_id": str(source)}}:
            return "file", _value(source)
    return None


def _anthropic_shown(value: Object) -> tuple[str, str] | None:
    match value:
        case {"type": "image" | "document" as kind, "source": dict(source)}:
            where = next(_text(source[name]) for name in ("data", "url", "file_id") if name in source)
            return "image" if kind == "image" else "file", where
    return None


def _responses_shown(value: Object) -> tuple[str, str] | None:
    match value:
        case {"type": "input_image", "image_url": str(url)}:
            return "image", _value(url)
        case {"type": "input_file"}:
            return "file", _value(next(_text(value[name]) for name in SOURCES if name in value))
    return None


def _gemini_shown(value: Object) -> tuple[str, str] | None:
    match value:
        case {"inlineData": {"mimeType": str(kind), "data": str(where)}}:
            return _kind(kind), where
        case {"fileData": {"mimeType": str(kind), "fileUri": str(where)}}:
            return _kind(kind), where
    return None


def _kind(media_type: str) -> str:
    return "image" if media_type.startswith("image/") else "file"


def _value(url: str) -> str:
    """What a data URL holds; any other is itself."""
    return url.partition(";base64,")[2] if url.startswith("data:") else url


SOURCES = ("file_data", "file_url", "file_id")
DATA = re.compile(r"data:[^;,]+;base64,.*")


def _misplaced(file: Mapping[str, object]) -> Iterator[str]:
    """OpenAI: one source, a name beside data and beside nothing else ("mutually exclusive parameters")."""
    sources = [name for name in SOURCES if file.get(name) is not None]
    if len(sources) != 1:
        yield f"a file with {sources or 'nothing in it'}"
    if ("filename" in file) != ("file_data" in file) or file.get("filename") == "":
        yield "a filename without data, or data without a filename"
    if not DATA.fullmatch(str(file.get("file_data", "data:a/b;base64,"))):
        yield "data that is no data URL"


def _is_object(text: object) -> bool:
    try:
        return isinstance(text, str) and isinstance(json.loads(text), dict)
    except ValueError:
        return False


def chat(body: Mapping[str, object]) -> Iterator[str]:
    """Chat Completions: "an assistant message with tool_calls must be followed by tool messages responding to each"."""
    waiting: list[object] = []
    for message in _objects(body["messages"]):
        role, content = message["role"], message.get("content")
        if role == "tool":
            if message["tool_call_id"] not in waiting:
                yield f"a result without its call {message['tool_call_id']}"
            else:
                waiting.remove(message["tool_call_id"])
            if _blank(content):
                yield "a blank result"
            continue
        if waiting:
            yield f"calls without a result before {role}"
        calls = _objects(message.get("tool_calls", []))
        waiting = [call["id"] for call in calls]
        if len({*map(str, waiting)}) != len(waiting):
            yield "one id for two calls of a message"
        for call in calls:
            function = call["function"]
            assert isinstance(function, dict)
            if not 0 < len(_text(call["id"])) <= 40:
                yield f"an id of {len(_text(call['id']))} characters"
            if not NAME.fullmatch(_text(function["name"])) or not _is_object(function["arguments"]):
                yield f"a call that is none: {function}"
        if isinstance(content, list):
            if role != "user":
                yield f"images or files from {role}"
            if not content or any([_blank(part.get("text", "x")) for part in _objects(content)]):
                yield "a blank part"
            for part in _objects(content):
                if part["type"] not in {"text", "image_url", "file"}:
                    yield f"a part of the kind {part['type']}"
                elif part["type"] == "file":
                    assert isinstance(part["file"], dict)
                    yield from _misplaced(part["file"])
                    if "file_url" in part["file"]:
                        yield "a file by its address"
        elif _blank(content) and not (role == "assistant" and calls):
            yield f"a blank message of {role}"
    if waiting:
        yield "calls without a result at the end"


def anthropic(body: Mapping[str, object]) -> Iterator[str]:
    """Messages: results stand first in the user's turn right after the calls, and no text is blank."""
    turns = _objects(body["messages"])
    open_calls: list[object] = []
    seen: set[object] = set()
    if not turns or turns[0]["role"] != "user":
        yield "no user begins"
    for turn in turns:
        blocks = _objects(turn["content"])
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if sorted(map(str, results)) != sorted(map(str, open_calls)):
            yield f"results {results} of calls {open_calls}"
        if any(block["type"] != "tool_result" for block in blocks[: len(results)]):
            yield "something before the results"
        calls = [block for block in blocks if block["type"] == "tool_use"]
        open_calls = [call["id"] for call in calls]
        if seen & {*open_calls} or len({*open_calls}) != len(open_calls):
            yield "`tool_use` ids must be unique"
        seen |= {*open_calls}
        for call in calls:
            if not NAME.fullmatch(_text(call["id"])) or not NAME.fullmatch(_text(call["name"])):
                yield f"a call that is none: {call}"
            if not isinstance(call["input"], dict):
                yield "an input that is no object"
        if not blocks:
            yield "a turn without content"
        for block in blocks:
            inner = block.get("content", [])
            texts = [each for each in [block, *(inner if isinstance(inner, list) else [])] if each["type"] == "text"]
            if any([_blank(each["text"]) for each in texts]) or inner == "":
                yield "text content blocks must contain non-whitespace text"
            for each in [block, *(_objects(inner) if isinstance(inner, list) else [])]:
                yield from _undocumented(each)
            if block.get("is_error") and isinstance(inner, list) and any(each["type"] != "text" for each in inner):
                yield "all content must be type `text` if `is_error` is true"
            if block["type"] == "thinking" and not block.get("signature"):
                yield "a thought without a signature"
        if turn["role"] == "assistant" and blocks and blocks[-1]["type"] in {"thinking", "redacted_thinking"}:
            yield "the final block in an assistant message cannot be thinking"
    if open_calls:
        yield "calls without a result at the end"
    last = _objects(turns[-1]["content"])[-1] if turns else {}
    if (
        turns
        and turns[-1]["role"] == "assistant"
        and _text(last.get("text", "")) != _text(last.get("text", "")).rstrip()
    ):
        yield "final assistant content cannot end with trailing whitespace"


def _undocumented(block: Mapping[str, object]) -> Iterator[str]:
    """Name what is wrong with a document: it is PDF or plain text, and what is fetched is PDF."""
    if block["type"] == "document":
        match block["source"]:
            case {"type": "base64", "media_type": "application/pdf", "data": str()}:
                pass
            case {"type": "text", "media_type": "text/plain", "data": str(text)} if text.strip():
                pass
            case {"type": "url", "url": str()} | {"type": "file", "file_id": str()}:
                pass
            case source:
                yield f"a document that is none: {source}"


def responses(body: Mapping[str, object]) -> Iterator[str]:
    """Responses: "no tool output found for function call" and its mirror, and reasoning needs what it led to."""
    items = _objects(body["input"])
    waiting: list[object] = []
    seen: set[object] = set()
    for place, item in enumerate(items):
        match item.get("type", "message"):
            case "function_call":
                if item["call_id"] in seen or not 0 < len(_text(item["call_id"])) <= 64:
                    yield f"the id {item['call_id']} twice, or too long"
                if not NAME.fullmatch(_text(item["name"])) or not _is_object(item["arguments"]):
                    yield f"a call that is none: {item}"
                seen.add(item["call_id"])
                waiting.append(item["call_id"])
            case "function_call_output":
                if item["call_id"] not in waiting:
                    yield f"no call for the output {item['call_id']}"
                else:
                    waiting.remove(item["call_id"])
                if not item["output"]:
                    yield "a blank output"
                yield from _input(item["output"])
            case "reasoning":
                if not item.get("encrypted_content"):
                    yield "reasoning that is not stored and not sealed"
                if place + 1 == len(items) or items[place + 1].get("role") == "user":
                    yield "reasoning without its required following item"
            case _:
                content = item["content"]
                if waiting and item["role"] == "user":
                    yield "calls without an output before the user"
                if not content or (isinstance(content, str) and _blank(content)):
                    yield f"a blank message of {item['role']}"
                yield from _input(content)
    if waiting:
        yield "calls without an output at the end"
    if not items:
        yield "no input"


def _input(content: object) -> Iterator[str]:
    for part in _objects(content) if isinstance(content, list) else []:
        match part["type"]:
            case "input_text" if not _blank(part["text"]):
                pass
            case "input_image" if part.get("image_url"):
                pass
            case "input_file":
                yield from _misplaced(part)
            case _:
                yield f"an input that is none: {part}"


def gemini(body: Mapping[str, object]) -> Iterator[str]:
    """generateContent: as many function responses as calls, in the turn right after them, and no empty part."""
    contents = _objects(body["contents"])
    open_calls: list[object] = []
    if not contents or contents[0]["role"] != "user":
        yield "no user begins"
    for content in contents:
        parts = _objects(content["parts"])
        if not parts:
            yield "a content without parts"
        results = [part["functionResponse"] for part in parts if "functionResponse" in part]
        if [_identity(result) for result in results] != open_calls:
            yield "the number of function response parts is not that of the function call parts"
        if results and len(results) != len(parts):
            yield "something beside the function responses"
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        if calls and content["role"] != "model":
            yield "a call of a user"
        open_calls = [_identity(call) for call in calls]
        for part in parts:
            if len(part.keys() & {"text", "functionCall", "functionResponse", "inlineData", "fileData"}) != 1:
                yield f"a part of no kind: {part}"
            if "text" in part and _blank(part["text"]) and not part.get("thoughtSignature"):
                yield "a blank part"
            if "inlineData" in part and part["inlineData"].keys() != {"mimeType", "data"}:  # type: ignore[attr-defined]
                yield "inline data without its type, or without data"
            if "fileData" in part and part["fileData"].keys() != {"mimeType", "fileUri"}:  # type: ignore[attr-defined]
                yield "a file without its type, or without an address"
    if open_calls:
        yield "calls without a response at the end"


def _identity(value: object) -> tuple[object, object]:
    assert isinstance(value, dict) and NAME.fullmatch(value["name"])
    return value.get("id"), value["name"]


RULES: Mapping[str, Callable[[Mapping[str, object]], Iterator[str]]] = {
    "chat": chat,
    "anthropic": anthropic,
    "responses": responses,
    "gemini": gemini,
}
SHOWN: Mapping[str, Callable[[Object], tuple[str, str] | None]] = {
    "chat": _chat_shown,
    "anthropic": _anthropic_shown,
    "responses": _responses_shown,
    "gemini": _gemini_shown,
}
PROVIDERS: Sequence[str] = tuple(RULES)
