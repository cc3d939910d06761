"""A loop whose time jumps, for tests of runs, and what a run leaves behind on it."""

from __future__ import annotations

import asyncio

from turnwright.testing.virtual import LoopClock, run

__all__ = ["LoopClock", "leftovers", "run"]


def leftovers() -> set[asyncio.Task[object]]:
    """The tasks, besides this one and the test runner's, that are still at work."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    return {task for task in others if "TestRunner" not in getattr(task.get_coro(), "__qualname__", "")}
