"""How an outcome is told: to a person in a line or two, to a program as JSON. Rule: each says what can be done."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Final, assert_never

from turnwright.canonical import encode, plain
from turnwright.cli.stores import Store
from turnwright.definition import AnyDefinition
from turnwright.messages import Usage
from turnwright.outcomes import Cancelled, Completed, Failed, Outcome, Pending, Suspended

__all__ = ["as_json", "explanation", "next_words", "short_id", "summary", "used"]

MODEL_HINTS: Final[Mapping[str, str]] = {
    "auth": "; check the key in the environment",
    "connection": "; check that its server runs and can be reached from here",
    "overloaded": "; try again later",
    "quota": "; the account has nothing left",
    "rate_limit": "; try again later",
    "timeout": "; try again, or with another model",
}
"""What a person can do about a model's failure, by its kind, where the failure does not say so itself."""


def as_json(definition: AnyDefinition, outcome: Outcome[object], *, label: str, model: str, seconds: float) -> bytes:
    """Return the outcome as one line of JSON. All outcomes have the same members; null stands for what one has not."""
    told: dict[str, object] = {
        "label": label,
        "outcome": type(outcome).__name__.lower(),
        "output": None,
        "error": None,
        "reason": None,
        "detail": None,
        "message": None,
        "pending": [],
        "in_doubt": [],
        "run_id": outcome.run_id,
        "model": model,
        "usage": outcome.usage,
        "seconds": round(seconds, 3),
        "evidence_head": outcome.evidence_head,
    }
    match outcome:
        case Completed(output=output):
            told |= {"output": definition.output_schema.dump(output)}
        case Suspended():
            told |= {"reason": outcome.reason, "detail": outcome.detail, "message": outcome.message}
            told |= {"pending": outcome.pending}
        case Failed(error=error):
            told |= {"error": error}
        case Cancelled():
            told |= {"in_doubt": outcome.in_doubt, "reason": outcome.reason}
        case _:
            assert_never(outcome)
    return encode(plain(told)) + b"\n"


def summary(outcome: Outcome[object], *, seconds: float) -> str:
    """Return one line: how it stands, what it used, how long it took."""
    return f"{type(outcome).__name__.lower()} in {seconds:.1f} s; {used(outcome.usage)}"


def explanation(outcome: Outcome[object], *, kept: bool = False) -> str:
    """Return in one line why the run did not complete and what to do; empty if it did.

    What is *kept* in a store can be gone on with, all else only run again.
    """
    match outcome:
        case Completed():
            return ""
        case Failed(error=error):
            issues = f": {'; '.join(error.issues)}" if error.issues else ""
            return f"failed ({error.code}): {error.message}{issues}"
        case Cancelled():
            return f"cancelled{f': {outcome.reason}' if outcome.reason else ''}"
        case Suspended():
            return f"suspended ({outcome.reason}): {_remedy(outcome, kept=kept)}"
        case _:
            assert_never(outcome)


def next_words(outcome: Outcome[object], *, target: str, store: Store) -> Sequence[str]:
    """Return the commands that go on with a run that is kept in *store*, ready to be typed."""
    if not isinstance(outcome, Suspended):
        return ()
    run, state = outcome.run_id, store.options
    words = []
    for each in outcome.pending:
        call = short_id(each)
        if each.kind == "approval":
            words.append(f"turnwright approve {run} {call} {state}   (or deny)")
        else:
            words.append(f"turnwright resolve {run} {call} {state} --happened RESULT   (or --did-not-happen)")
    return [*words, f"turnwright resume {shlex.quote(target)} {run} {state}"]


def short_id(pending: Pending) -> str:
    """Return the short form of a call's effect id, `turn.index`: within one run it names the call."""
    return pending.effect_id.rpartition(":")[2]


def _remedy(outcome: Suspended, *, kept: bool) -> str:
    match outcome.reason:
        case "approval" if kept:
            return "nobody has answered; say turnwright approve or deny, then resume it"
        case "approval":
            return "nobody has answered; run it on a terminal, or answer all with --yes or --no"
        case "cancelled" if not outcome.pending:
            return f"interrupted; {'resume goes on with it' if kept else 'nothing of it runs any more'}"
        case "in-doubt" | "cancelled" if kept:
            return "a call was started and its result is unknown; find out, say turnwright resolve, then resume it"
        case "in-doubt" | "cancelled":
            return "a call was started and its result is unknown; find out whether it took effect before you run again"
        case "budget" if outcome.detail == "deadline":
            return "the deadline has passed; run it again with a later one"
        case "budget":
            why = f" ({outcome.message})" if outcome.message else ""
            return f"it may use no more {outcome.detail}{why}; raise the limit of the definition"
        case "max_turns":
            return "it has used up its turns; raise --max-turns"
        case "model":
            hint = MODEL_HINTS.get(outcome.detail, "")
            return f"the model failed ({outcome.detail}): {outcome.message}{hint}"
        case "definition":
            return "it was opened by another version of its definition"
        case "external":
            return outcome.message or outcome.detail or "it waits for something outside"
        case _:
            assert_never(outcome.reason)


def used(usage: Usage) -> str:
    """Return in one line what was used."""
    parts = [
        _count(usage.requests, "request"),
        f"{usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens:,} tokens in",
        f"{usage.output_tokens:,} out",
        _count(usage.tool_calls, "tool call"),
    ]
    return ", ".join(parts)


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
