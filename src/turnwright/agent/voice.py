"""The model port of an agent's runs: it asks the owner's hooks, and then the agent's model of the moment.

Rule: before each request, in this order: `transform_context`, `convert_to_llm`, `get_api_key`, and then the system
prompt, the model and the thinking level are read, so that a late edit counts. What had come of an answer that was
aborted or failed is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from attrs import evolve as replace

from turnwright.agent.hooks import ConvertToLlm, GetApiKey, Signal, TransformContext
from turnwright.agent.state import AgentState
from turnwright.deltas import AttemptReset, Delta, ReasoningDelta, TextDelta, ToolCallDelta, UsageDelta
from turnwright.errors import ModelError
from turnwright.messages import (
    NO_USAGE,
    AssistantMessage,
    Message,
    Part,
    Reasoning,
    StopReason,
    Text,
    ToolCall,
    Usage,
    UserMessage,
)
from turnwright.ports import ModelRequest
from turnwright.racing import end
from turnwright.tools import awaited

__all__ = ["Voice", "for_the_model"]


def for_the_model(messages: Sequence[Message]) -> Sequence[Message]:
    """What a model sees unless the owner says otherwise: no message with a kind, and no answer that came to nothing."""
    return [message for message in messages if not _is_private(message)]


def _is_private(message: Message) -> bool:
    if isinstance(message, AssistantMessage):
        return message.stop_reason in ("error", "aborted")
    return isinstance(message, UserMessage) and message.kind != ""


class Owner(Protocol):
    """What an agent is to its voice."""

    state: AgentState
    transform_context: TransformContext | None
    convert_to_llm: ConvertToLlm | None
    get_api_key: GetApiKey | None

    @property
    def signal(self) -> Signal:
        """Says that the run was aborted."""
        ...

    @property
    def patience(self) -> float:
        """How long one thing may take to end after an abort, in seconds."""
        ...

    def request_options(self, given: Mapping[str, object]) -> Mapping[str, object]:
        """The options of the next request."""
        ...


class Voice:
    """One agent's model port."""

    def __init__(self, agent: Owner) -> None:
        self._agent = agent
        self._pieces: list[Delta] = []
        self._before: Sequence[Message] = ()
        self._skipped = 0

    def begin(self, before: Sequence[Message]) -> None:
        """A run begins, after the messages *before*."""
        self._before = before
        self._skipped = 0

    def replace_context(self, messages: Sequence[Message], said: int) -> None:
        """From now on the model sees *messages* in place of the past and of the first *said* messages of the run."""
        self._before = tuple(messages)
        self._skipped = said

    def so_far(self, stop_reason: StopReason, error: str | None = None) -> AssistantMessage:
        """What has come of the answer."""
        usages = [piece.usage for piece in self._pieces if isinstance(piece, UsageDelta)]
        usage = usages[-1] if usages else NO_USAGE
        return AssistantMessage(_parts(self._pieces), stop_reason, usage, error=error)

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        """Ask; see `Model.complete`. An answer that says nothing is asked for once more, and paid for with the next."""
        self._pieces = []
        spent = NO_USAGE
        try:
            request = await self._prepared(request)
            answer = await self._ask(request)
            if not _says_nothing(answer):
                return answer
            spent = answer.usage
            self._unsay(request)
            answer = await self._ask(request)
        except BaseException as error:
            raise self._kept(error, spent) from error
        answer = replace(answer, usage=spent + answer.usage)
        if _says_nothing(answer):
            what = "called for tools and named none" if answer.stop_reason == "tool_calls" else "gave an empty answer"
            raise ModelError("malformed", f"the model {what}, twice", partial=answer)
        return answer

    async def _prepared(self, request: ModelRequest) -> ModelRequest:
        """Ask the hooks what is to be sent."""
        agent = self._agent
        messages: Sequence[Message] = [*self._before, *request.messages[self._skipped :]]
        if agent.transform_context is not None:
            messages = await awaited(agent.transform_context(messages, agent.signal))
        messages = await awaited((agent.convert_to_llm or for_the_model)(messages))
        key = request.api_key
        if agent.get_api_key is not None:
            key = await awaited(agent.get_api_key(getattr(agent.state.model, "provider", ""))) or key
        return replace(
            request,
            instruction=agent.state.system_prompt,
            messages=messages,
            options=agent.request_options(request.options),
            api_key=key,
            on_delta=self._collecting(request),
        )

    async def _ask(self, request: ModelRequest) -> AssistantMessage:
        """Ask the model of the moment. One that ignores its cancellation is left behind within the grace.

        What it gives or raises while it is cancelled counts: an answer is an answer, and an error no abort.
        """
        task = asyncio.ensure_future(self._agent.state.model.complete(request))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                await end([task], self._agent.patience)
            if not task.done() or task.cancelled():
                raise
            return task.result()

    def _collecting(self, request: ModelRequest) -> Callable[[Delta], None]:
        """What the request tells its deltas to, with a memory of them."""
        pieces, emit = self._pieces, request.on_delta
        if emit is None:
            return pieces.append

        def collect(delta: Delta) -> None:
            if isinstance(delta, AttemptReset):
                pieces.clear()
            pieces.append(delta)
            emit(delta)

        return collect

    def _unsay(self, request: ModelRequest) -> None:
        """Take back what was told of an answer that says nothing, such as what was thought."""
        was_told = any([not isinstance(piece, UsageDelta) for piece in self._pieces])
        self._pieces.clear()
        if was_told and request.on_delta is not None:
            request.on_delta(AttemptReset(request.turn, request.attempt))

    def _kept(self, error: BaseException, spent: Usage) -> BaseException:
        """*error*, with what had come before it, and what was *spent* on that."""
        if isinstance(error, Exception):
            failure = error if isinstance(error, ModelError) else ModelError("internal", _words(error))
            partial = failure.partial or self.so_far("error")
        elif self._agent.signal.is_set():
            failure, partial = ModelError("cancelled", "the request was aborted"), self.so_far("aborted")
        else:
            return error
        failure.partial = replace(partial, usage=spent + partial.usage)
        return failure


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


def _says_nothing(answer: AssistantMessage) -> bool:
    if answer.calls:
        return False
    return answer.stop_reason == "tool_calls" or (answer.stop_reason == "stop" and not any(map(_shows, answer.parts)))


def _shows(part: Part) -> bool:
    """Whether a person sees something of *part*; a picture is an answer too."""
    return bool(part.text.strip()) if isinstance(part, Text) else not isinstance(part, Reasoning)


def _parts(pieces: Sequence[Delta]) -> tuple[Part, ...]:
    """The parts that *pieces* make, in the order in which each began."""
    texts: dict[tuple[str, int], list[str]] = {}
    names: dict[int, str] = {}
    run, last = 0, ""
    for piece in pieces:
        match piece:
            case TextDelta(text=text) | ReasoningDelta(text=text):
                run += piece.type != last
                texts.setdefault((piece.type, run), []).append(text)
            case ToolCallDelta(index=index, text=text):
                names[index] = piece.name or names.get(index, "")
                texts.setdefault(("tool_call", index), []).append(text)
            case _:
                continue
        last = piece.type
    made: list[Part] = []
    for (kind, place), chunks in texts.items():
        whole = "".join(chunks)
        if kind == "tool_call":
            made.append(ToolCall("", names[place], whole))
        else:
            made.append(Text(whole) if kind == "text" else Reasoning(whole))
    return tuple(made)
