"""What every model behind HTTP has in common: its address, its key, its client, and one exchange."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Self

import httpx

from turnwright.context.history import fitted
from turnwright.errors import ModelError
from turnwright.messages import AssistantMessage, File, Image, Message
from turnwright.ports import ModelRequest
from turnwright_adapters._wire.answer import Answer
from turnwright_adapters._wire.common import LEVELS
from turnwright_adapters._wire.exchange import ApiKey, Http, Timeouts, authorization, wire_headers
from turnwright_adapters._wire.listening import listen
from turnwright_adapters._wire.thinking import Thoughts


class HttpModel:
    """A model behind HTTP.

    One object serves any number of runs at a time, on any number of event loops one after another. A *client* that
    was given is never closed; one of our own closes with its event loop, or by `aclose`. *modalities* is what the
    model takes in, of `MODALITIES`; None is not known, and then it is taken to take them all. *thinking* is its word or
    its budget for each level of thought that it takes; None is not known, and then its name decides.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str,
        api_key: ApiKey,
        provider: str,
        headers: Mapping[str, str | None],
        client: httpx.AsyncClient | None,
        timeouts: Timeouts,
        stream: bool | None,
        modalities: Iterable[str] | None = None,
        thinking: Thoughts | None = None,
    ) -> None:
        url = httpx.URL(base_url)
        if url.scheme not in {"http", "https"} or not url.host:
            raise ValueError("base_url must be an http or https URL such as https://api.openai.com/v1")
        self.model = model
        self.provider = provider
        self.modalities = None if modalities is None else _known(modalities)
        self._thoughts = None if thinking is None else _levels(thinking)
        self._base = url.copy_with(path=url.path.rstrip("/"))
        self._headers = wire_headers(headers)
        self._key = api_key if callable(api_key) or api_key is None else lambda: api_key
        self._http = Http(client, timeouts)
        self._stream = stream

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.model!r} of {self.provider!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close what this event loop holds open. The model may be used again, and a second call does nothing."""
        await self._http.aclose()

    def _at(self, path: str, **query: str) -> str:
        url = self._base.copy_with(path=self._base.path.rstrip("/") + path)
        return str(url.copy_merge_params(query) if query else url)

    def _streams(self, request: ModelRequest) -> bool:
        match request.options.get("transport"):
            case "sse":
                return True
            case "json":
                return False
            case _:
                return request.on_delta is not None if self._stream is None else self._stream

    def _thoughts_of(self, model: object) -> Thoughts | None:
        """Return what *model* takes for each level of thought, None if that is not known."""
        return self._thoughts if model == self.model else None

    def _fitted(self, message: Message) -> Message | None:
        """Return *message* as this model may be sent it, None if there is nothing to send of it."""
        return fitted(message, provider=self.provider, takes=self._takes)

    def _takes(self, shown: Image | File) -> bool:
        """Say whether the model takes *shown* as it is, and the dialect has a word for it."""
        return self.modalities is None or shown.type in self.modalities

    def _credentials(self, key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"}

    async def _headers_for(self, request: ModelRequest, *, accept: str) -> dict[str, str]:
        """Return what is sent with *request*: what every request has, our own, the request's own, in that order."""
        headers = {"content-type": "application/json", "accept": accept, "accept-encoding": "identity"}
        if (key := await authorization(request.api_key or self._key, self.provider)) is not None:
            headers |= self._credentials(key)
        every = {**headers, **self._headers, **_headers_of(request)}
        return {name: value for name, value in every.items() if value is not None}

    async def _ask(
        self, request: ModelRequest, url: str, body: bytes, answer: Answer, *, stream: bool
    ) -> AssistantMessage:
        """Post *body*, let *answer* take the reply whichever form it has, and return the message."""
        headers = await self._headers_for(request, accept="text/event-stream" if stream else "application/json")
        try:
            async with self._http.post(
                url,
                headers=headers,
                body=body,
                provider=self.provider,
                timeout=request.timeout,
            ) as reply:
                if reply.content_type == "text/event-stream" or (stream and "json" not in reply.content_type):
                    await listen(reply, answer)
                else:
                    answer.take_whole(await reply.read())
                return answer.message()
        except ModelError as error:
            error.partial = answer.so_far()
            raise


MODALITIES: Final = frozenset({"text", "image", "audio", "video", "file"})
"""The words for what a model may take in, as a model card has them."""


def _known(modalities: Iterable[str]) -> frozenset[str]:
    words = frozenset([modalities] if isinstance(modalities, str) else modalities)
    if unknown := words - MODALITIES:
        raise ValueError(f"modalities are among {', '.join(sorted(MODALITIES))}, not {min(unknown)!r:.80}")
    return words


def _levels(thinking: Thoughts) -> Thoughts:
    if unknown := [level for level in thinking if level not in LEVELS]:
        raise ValueError(f"levels of thought are {', '.join(LEVELS)}, not {unknown[0]!r:.80}")
    if odd := [word for word in thinking.values() if isinstance(word, bool) or not isinstance(word, str | int)]:
        raise ValueError(f"a level of thought has a word of the provider's or a number of tokens, not {odd[0]!r:.80}")
    return dict(thinking)


def _headers_of(request: ModelRequest) -> dict[str, str | None]:
    """Return the headers that *request* adds. ModelError, without a value, for what no request can carry."""
    given = request.options.get("headers")
    if given is None:
        return {}
    if not isinstance(given, Mapping) or any([not isinstance(value, str | None) for value in given.values()]):
        raise ModelError("invalid_request", "the option 'headers' is names with texts, or None", dispatched=False)
    try:
        return wire_headers(given)
    except ValueError as error:
        raise ModelError("invalid_request", str(error), dispatched=False) from None


def check_choice(request: ModelRequest) -> None:
    """ModelError if the tool choice is none of the request's tools."""
    named = request.tool_choice not in {"auto", "required", "none"}
    if named and all(tool.name != request.tool_choice for tool in request.tools):
        words = f"tool_choice {request.tool_choice!r} is no tool of this request"
        raise ModelError("invalid_request", words, dispatched=False)


def options_of(request: ModelRequest, *reserved: str) -> dict[str, object]:
    """Return the options that are set. ModelError for one that is *reserved*."""
    options = {name: value for name, value in request.options.items() if value is not None and name != "headers"}
    if taken := options.keys() & {*reserved}:
        raise ModelError("invalid_request", f"the option {min(taken)!r} is not to be set", dispatched=False)
    return options
