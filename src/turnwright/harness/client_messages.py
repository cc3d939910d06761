"""What a client says other than words: framed as a turn by one function, or applied by the caller and never shown.

surfaceAction         The user triggered the ... action on surface ... with context ...
functionResult        The function ... returned: ...
validationRejection   The previous surface was rejected (...): ... Emit a corrected surface.
dataModelUpdate, ack  no turn
"""

from __future__ import annotations

from typing import Literal, TypeAlias, assert_never

from attrs import field

from turnwright.canonical import encode, plain
from turnwright.values import frozen

__all__ = [
    "Ack",
    "ClientMessage",
    "DataModelUpdate",
    "FunctionResult",
    "SurfaceAction",
    "ValidationRejection",
    "frame_client_message",
    "should_run_turn",
]


@frozen
class SurfaceAction:
    """Somebody did something on a surface."""

    surface_id: str
    action: str
    context: object = None
    kind: Literal["surfaceAction"] = field(default="surfaceAction", init=False, repr=False)


@frozen
class FunctionResult:
    """A function that the client ran gave *value*."""

    call: str
    value: object = None
    kind: Literal["functionResult"] = field(default="functionResult", init=False, repr=False)


@frozen
class ValidationRejection:
    """The client could not show what the model made."""

    code: str
    message: str
    kind: Literal["validationRejection"] = field(default="validationRejection", init=False, repr=False)


@frozen
class DataModelUpdate:
    """The client's data changed. The caller applies it; the model is not told."""

    surface_id: str = ""
    data: object = None
    kind: Literal["dataModelUpdate"] = field(default="dataModelUpdate", init=False, repr=False)


@frozen
class Ack:
    """The client has seen something. The model is not told."""

    id: str = ""
    kind: Literal["ack"] = field(default="ack", init=False, repr=False)


ClientMessage: TypeAlias = SurfaceAction | FunctionResult | ValidationRejection | DataModelUpdate | Ack


def should_run_turn(message: ClientMessage) -> bool:
    """Whether *message* is for the model."""
    return not isinstance(message, DataModelUpdate | Ack)


def frame_client_message(message: ClientMessage) -> str:
    """The words in which the model is told of *message*. ValueError for one that is not for the model."""
    match message:
        case SurfaceAction(surface_id, action, context):
            shown = _json(context)
            return f"The user triggered the {action} action on surface {surface_id} with context {shown}."
        case FunctionResult(call, value):
            return f"The function {call} returned: {_json(value)}."
        case ValidationRejection(code, words):
            return f"The previous surface was rejected ({code}): {words}. Emit a corrected surface."
        case DataModelUpdate() | Ack():
            raise ValueError(f"{message.kind} is applied by the caller and is no turn; ask should_run_turn first")
        case _:
            assert_never(message)


def _json(value: object) -> str:
    return encode(plain(value)).decode()
