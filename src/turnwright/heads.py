"""How a run stands, told without content: what a store keeps in the run's head and lists.

Rule: a head follows from the entries that were appended, never the other way round; every store works it out with the
tables of this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

import msgspec
from attrs import frozen

from turnwright.evidence import Entry

__all__ = ["ENDED", "NO_CHANGE", "Change", "RunHead", "RunStatus", "change", "head"]

RunStatus: TypeAlias = Literal["running", "suspended", "completed", "failed", "cancelled"]

ENDED: Final[frozenset[RunStatus]] = frozenset({"completed", "failed", "cancelled"})
"""How a run stands that will have no more entries."""

STATUSES: Final[Mapping[str, RunStatus]] = {
    "RunOpened": "running",
    "RunSuspended": "suspended",
    "RunResumed": "running",
    "RunCompleted": "completed",
    "RunFailed": "failed",
    "RunCancelled": "cancelled",
}
"""How a run stands after a fact of that kind; after any other it stands as before."""

RESULTS: Final = frozenset({"ModelAnswered", "ModelFailed", "CallFinished", "CallResolved"})
"""The kinds of fact that show a run getting on: with one of them a store forgets the crashes before."""

CODE: Final = 6
"""The place of the code in an evidence item."""


@frozen
class RunHead:
    """One run as a list shows it. Times are in seconds since 1970, by the clock of the engine that wrote.

    *reason* is the closed word of its suspension or failure, else empty. *version* is the length of its journal,
    *epoch* the number of its owners so far, *crashes* how many of the last of them died without a result.
    """

    run_id: str
    definition: str
    fingerprint: str
    status: RunStatus
    reason: str
    version: int
    opened_at: float
    updated_at: float
    epoch: int
    crashes: int


@frozen
class Change:
    """What some entries change in the head of their run; None is no change."""

    status: RunStatus | None = None
    reason: str | None = None
    definition: str | None = None
    fingerprint: str | None = None
    opened_at: float | None = None
    results: bool = False


NO_CHANGE: Final = Change()


class _Declared(msgspec.Struct):
    """The parts of a RunOpened or RunMigrated that are no content."""

    fingerprint: str
    definition: str | None = None


_declared = msgspec.json.Decoder(_Declared).decode


def change(entries: Iterable[Entry], before: Change = NO_CHANGE) -> Change:
    """Work out what appending *entries* changes in the head of their run, on top of what changed *before*."""
    status, reason, results = before.status, before.reason, before.results
    definition, fingerprint, opened_at = before.definition, before.fingerprint, before.opened_at
    for entry in entries:
        kind = entry.kind
        if kind in STATUSES:
            status, reason = STATUSES[kind], entry.item[CODE]
        if kind == "RunOpened":
            said = _declared(entry.body)
            definition, fingerprint, opened_at = said.definition, said.fingerprint, entry.at
        elif kind == "RunMigrated":
            fingerprint = _declared(entry.body).fingerprint
        results = results or kind in RESULTS
    return Change(status, reason, definition, fingerprint, opened_at, results)


def head(said: Change, run_id: str, *, version: int, updated_at: float, epoch: int, crashes: int) -> RunHead:
    """The head of a run of which its entries have *said* so much."""
    assert said.status is not None and said.opened_at is not None
    return RunHead(
        run_id,
        said.definition or "",
        said.fingerprint or "",
        said.status,
        said.reason or "",
        version,
        said.opened_at,
        updated_at,
        epoch,
        crashes,
    )
