"""What every model port must do: see `turnwright.ports.Model`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from turnwright.deltas import Delta, TextDelta, ToolCallDelta
from turnwright.errors import ModelError
from turnwright.messages import AssistantMessage, Text, ToolCall, ToolMessage, UserMessage
from turnwright.ports import Model, ModelRequest
from turnwright.tools import ToolSpec
from turnwright_contracts.running import scenario

__all__ = ["ANSWERS", "ModelSuite"]

ANSWERS: tuple[AssistantMessage, ...] = (
    AssistantMessage((Text("Hello ☃, line\nbreak and 🙂"),)),
    AssistantMessage((ToolCall("c1", "add", '{"a":1,"b":2}'),), "tool_calls"),
    AssistantMessage(
        (Text("Both."), ToolCall("c1", "add", '{"a":1,"b":2}'), ToolCall("c2", "add", '{"a":3,"b":4}')), "tool_calls"
    ),
    AssistantMessage((Text("cut o"),), "length"),
)
"""What a model may say: text, a call, text with parallel calls, an answer that hit the output limit."""

ADD = ToolSpec(
    "add",
    "Add two numbers.",
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]},
)


class ModelSuite:
    """Subclass it and say how a model is made that gives the answers it is told to give.

    For an adapter of a provider that is a server on loopback which speaks the provider's protocol.
    """

    def make(self, place: Path, answers: Sequence[AssistantMessage | None]) -> AbstractAsyncContextManager[Model]:
        """Give a model whose next requests are answered with *answers*; None is a failure of its own choosing."""
        raise NotImplementedError

    @pytest.mark.parametrize("answer", ANSWERS)
    @scenario
    async def test_an_answer_is_complete(self, tmp_path: Path, answer: AssistantMessage) -> None:
        """Text, calls with their raw arguments, and the stop reason in the engine's words."""
        async with self.make(tmp_path, [answer]) as model:
            got = await model.complete(_request())

            assert isinstance(got, AssistantMessage)
            assert answer.text == got.text
            assert [(each.name, each.arguments) for each in answer.calls] == [
                (each.name, each.arguments) for each in got.calls
            ]
            assert answer.stop_reason == got.stop_reason

    @pytest.mark.parametrize("answer", ANSWERS)
    @scenario
    async def test_a_streamed_answer_is_the_same_answer(self, tmp_path: Path, answer: AssistantMessage) -> None:
        """The pieces, joined, are the answer; each names its turn and attempt."""
        deltas: list[Delta] = []
        async with self.make(tmp_path, [answer]) as model:
            got = await model.complete(_request(turn=3, attempt=2, on_delta=deltas.append))

            assert (answer.text, answer.stop_reason) == (got.text, got.stop_reason)
            assert {(3, 2)} == {(delta.turn, delta.attempt) for delta in deltas}
            assert answer.text == "".join([delta.text for delta in deltas if isinstance(delta, TextDelta)])
            for index, call in enumerate(answer.calls):
                pieces = [delta for delta in deltas if isinstance(delta, ToolCallDelta) and delta.index == index]
                assert call.arguments == "".join([piece.text for piece in pieces])

    @scenario
    async def test_a_failure_is_a_model_error(self, tmp_path: Path) -> None:
        """With a closed kind, and with no half answer."""
        async with self.make(tmp_path, [None]) as model:
            with pytest.raises(ModelError) as raised:
                await model.complete(_request())

            assert isinstance(raised.value.retryable, bool)
            assert raised.value.kind

    @scenario
    async def test_a_request_is_read_and_never_changed(self, tmp_path: Path) -> None:
        """Messages and options are the caller's."""
        request = _request()
        before = (list(request.messages), dict(request.options))
        async with self.make(tmp_path, [ANSWERS[0]]) as model:
            await model.complete(request)

            assert before == (list(request.messages), dict(request.options))

    @scenario
    async def test_a_cancelled_request_ends(self, tmp_path: Path) -> None:
        """Whoever cancels waits for nothing else than the end of the request; the next one works."""
        async with self.make(tmp_path, [ANSWERS[0]] * 4) as model:
            for steps in range(3):
                task = asyncio.ensure_future(model.complete(_request()))
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                (ended,) = await asyncio.gather(task, return_exceptions=True)
                assert isinstance(ended, asyncio.CancelledError | AssistantMessage)

            assert ANSWERS[0].text == (await model.complete(_request())).text


def _request(turn: int = 1, attempt: int = 1, on_delta: object = None) -> ModelRequest:
    earlier = (
        UserMessage("1 + 2?"),
        AssistantMessage((ToolCall("c0", "add", '{"a":1,"b":2}'),), "tool_calls"),
        ToolMessage("c0", "add", (Text("3"),)),
        UserMessage("and now?"),
    )
    return ModelRequest(
        "r1",
        turn,
        attempt,
        "You add.",
        earlier,
        tools=(ADD,),
        timeout=30.0,
        on_delta=on_delta,  # type: ignore[arg-type]
    )
