"""The key of a provider is resolved for each call, in the header that the provider reads, and shown to nobody."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest

from tests.adapters.chat import Object, as_json, request, whole
from tests.adapters.test_anthropic import CLAUDE
from tests.adapters.test_dialects import VENDORS
from tests.adapters.test_gemini import GEMINI
from tests.adapters.test_responses import OPENAI as RESPONSES
from turnwright.errors import ModelError
from turnwright.testing.byte_server import ByteServer
from turnwright_adapters.gemini import GeminiModel

HEADERS = {
    "chat": ("authorization", "Bearer "),
    "responses": ("authorization", "Bearer "),
    "anthropic": ("x-api-key", ""),
    "gemini": ("x-goog-api-key", ""),
}
OKS: dict[str, Object] = {
    "chat": json.loads(whole({"content": "ok"})),
    "responses": RESPONSES.ok,
    "anthropic": CLAUDE.ok,
    "gemini": GEMINI.ok,
}
every_dialect = pytest.mark.parametrize("dialect", HEADERS)


async def keys_sent(dialect: str, given: object, *asked: str | None) -> list[str | None]:
    """Give the key of each request that is sent by a model with the key *given*, for requests with keys *asked*."""
    header, before = HEADERS[dialect]
    reply = as_json(json.dumps(OKS[dialect]).encode())
    async with (
        ByteServer([reply] * len(asked)) as server,
        VENDORS[dialect].model("m", base_url=server.url, api_key=given) as model,
    ):
        for key in asked:
            await model.complete(request(api_key=key))
        sent = [seen.headers.get(header) for seen in server.requests]
    assert all([key is None or key.startswith(before) for key in sent])
    return [key and key.removeprefix(before) for key in sent]


def plain(keys: list[str]) -> Callable[[], str]:
    """What gives one key after another."""
    return lambda: keys.pop(0)


def later(keys: list[str]) -> Callable[[], Awaitable[str]]:
    """What gives one key after another, and has to wait for each."""

    async def key() -> str:
        return keys.pop(0)

    return key


@pytest.mark.promise("P-18")
@every_dialect
@pytest.mark.parametrize("made", [plain, later])
async def test_a_function_is_asked_for_every_key(dialect: str, made: Callable[[list[str]], object]) -> None:
    """Also an asynchronous one, so that a key may change while the model lives."""
    assert ["one", "two"] == await keys_sent(dialect, made(["one", "two"]), None, None)


@pytest.mark.promise("P-18")
@every_dialect
async def test_the_key_of_a_request_goes_before_the_models(dialect: str) -> None:
    """For that request alone; the function is not asked."""
    assert ["mine", "one"] == await keys_sent(dialect, plain(["one"]), "mine", None)
    assert ["mine", None] == await keys_sent(dialect, None, "mine", None)


@pytest.mark.promise("P-18")
@every_dialect
async def test_a_key_that_cannot_be_had_is_an_error_unsent(dialect: str) -> None:
    """It is no use to try it again, and nothing is told of what failed."""
    with pytest.raises(ModelError, match="could not be had") as caught:
        await keys_sent(dialect, plain([]), None)

    assert ("auth", False, False) == (caught.value.kind, caught.value.retryable, caught.value.dispatched)


@pytest.mark.promise("P-18")
async def test_vertex_asks_for_its_token_with_each_request() -> None:
    """It is a bearer's, and the address is the project's."""
    tokens = ["one", "two"]
    reply = as_json(json.dumps(GEMINI.ok).encode())
    async with ByteServer([reply, reply]) as server:
        place = f"{server.url}/v1/projects/p/locations/global/publishers/google"
        async with GeminiModel("gemini-2.5-pro", base_url=place, api_key=later(tokens), bearer=True) as model:
            await model.complete(request())
            await model.complete(request())
        seen = server.requests

    assert ["Bearer one", "Bearer two"] == [each.headers.get("authorization") for each in seen]
    assert {"/v1/projects/p/locations/global/publishers/google/models/gemini-2.5-pro:generateContent"} == {
        each.path for each in seen
    }
    assert not [each for each in seen if "x-goog-api-key" in each.headers]
