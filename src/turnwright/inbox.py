"""What people may say to a run while it waits or works: the words of its inbox.

A word is accepted by the state port without a lease, and folded into the run by its next owner. Words about a call
name it by its effect id; *by* says who spoke, for the record.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from attrs import field

from turnwright.messages import UserMessage
from turnwright.values import frozen

__all__ = ["Approve", "Cancel", "Deny", "FollowUp", "LateResult", "Resolve", "Steer", "Withdraw", "Word"]


@frozen
class Approve:
    """Yes to one call. *digest*, if given, must be that of its arguments; *level* serves graded approvals."""

    effect_id: str
    digest: str | None = None
    by: str | None = None
    level: int | None = None
    type: Literal["approve"] = field(default="approve", init=False, repr=False)


@frozen
class Deny:
    """No to one call; the model is told *reason*."""

    effect_id: str
    reason: str = ""
    by: str | None = None
    type: Literal["deny"] = field(default="deny", init=False, repr=False)


@frozen
class Resolve:
    """What became of an effect in doubt: it *happened* with *output*, or it did not."""

    effect_id: str
    happened: bool
    output: object = None
    by: str | None = None
    type: Literal["resolve"] = field(default="resolve", init=False, repr=False)


@frozen
class Cancel:
    """End the run: no new effect is started, and its outcome is `Cancelled` with the effects in doubt."""

    reason: str = ""
    by: str | None = None
    type: Literal["cancel"] = field(default="cancel", init=False, repr=False)


@frozen
class Steer:
    """A message delivered before the run's next model call; with one waiting, a run does not complete.

    *id*, if given, names it for `Withdraw`.
    """

    message: UserMessage
    id: str | None = None
    type: Literal["steer"] = field(default="steer", init=False, repr=False)


@frozen
class FollowUp:
    """A message delivered when the run would otherwise come to its end, one after another.

    Those that follow each other with the same *batch* are delivered together. *id*, if given, names it for `Withdraw`.
    """

    message: UserMessage
    id: str | None = None
    batch: str | None = None
    type: Literal["follow_up"] = field(default="follow_up", init=False, repr=False)


@frozen
class Withdraw:
    """Take back the queued message that was given *id*, if it was not delivered yet."""

    id: str
    type: Literal["withdraw"] = field(default="withdraw", init=False, repr=False)


@frozen
class LateResult:
    """What an abandoned or fenced performer saw after all: evidence for whoever resolves the call, never its result."""

    effect_id: str
    output: object = None
    is_error: bool = False
    type: Literal["late_result"] = field(default="late_result", init=False, repr=False)


Word: TypeAlias = Approve | Deny | Resolve | Cancel | Steer | FollowUp | Withdraw | LateResult
