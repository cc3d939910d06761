"""`python -m tests.baseline` writes contracts/baseline anew: the request of a minimal agent, for every provider.

A minimal agent has one static prompt layer and nothing else. What it sends is pinned byte for byte, so that no option
that is absent ever leaves a trace. Read the diff before you commit it: a changed byte is a changed request.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import httpx

from turnwright.harness import create_agent, prompt_layer
from turnwright.ports import Model
from turnwright_adapters.anthropic import AnthropicModel
from turnwright_adapters.chat_completions import ChatCompletionsModel
from turnwright_adapters.gemini import GeminiModel
from turnwright_adapters.responses import ResponsesModel

__all__ = ["BASELINE", "PROVIDERS", "request_of"]

BASELINE: Final = Path(__file__).parents[1] / "contracts" / "baseline"
URL: Final = "https://provider.test/v1"

PROVIDERS: Final[dict[str, Callable[[httpx.AsyncClient], Model]]] = {
    "anthropic": lambda client: AnthropicModel("model", base_url=URL.removesuffix("/v1"), api_key="key", client=client),
    "chat_completions": lambda client: ChatCompletionsModel("model", base_url=URL, api_key="key", client=client),
    "gemini": lambda client: GeminiModel("model", base_url=URL, api_key="key", client=client),
    "responses": lambda client: ResponsesModel("model", base_url=URL, api_key="key", client=client),
}


async def request_of(provider: str, **options: object) -> str:
    """What a minimal agent sends to *provider*, with *options* of `create_agent`: line, headers and body."""
    sent: list[httpx.Request] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(400, json={"error": {"message": "only looked at"}})

    async with httpx.AsyncClient(transport=httpx.MockTransport(refuse)) as client:
        agent = create_agent(
            model=PROVIDERS[provider](client),
            prompt=[prompt_layer("identity", "You are a helpful assistant.")],
            **options,  # type: ignore[arg-type]
        )
        async for _ in agent.send(agent.create_session("s"), "Hello."):
            pass
    (request,) = sent
    headers = {name: value for name, value in request.headers.items() if name not in NOT_OURS}
    written = {"line": f"{request.method} {request.url}", "headers": headers, "body": request.content.decode()}
    return json.dumps(written, ensure_ascii=False, indent=2) + "\n"


NOT_OURS: Final = frozenset({"host", "connection", "user-agent", "content-length"})
"""Headers that the HTTP library writes."""


async def main() -> None:
    """Write every baseline."""
    BASELINE.mkdir(exist_ok=True)
    for provider in PROVIDERS:
        (BASELINE / f"{provider}.json").write_text(await request_of(provider), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
