"""A workflow over a store on disk, in a process of its own: `python -m tests.harness.ladder STORE LOG CUT REPLAY`.

It writes a line to LOG for each round that begins, and dies by SIGKILL within the round that CUT names.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import cast

from turnwright.harness import (
    ComposedAgent,
    Retry,
    Session,
    StepContext,
    Verdict,
    WorkflowResult,
    create_agent,
    define_workflow,
    script_client,
    step,
)
from turnwright.tools import Replay
from turnwright_adapters.sqlite import SqliteState

__all__ = ["climb"]


def agent_of(state: SqliteState, log: Path, cut: str, replay: Replay) -> ComposedAgent:
    """An agent whose workflow sends, tries twice to draft, and finishes."""

    def begin(name: str) -> None:
        with log.open("a") as file:
            file.write(name + "\n")
        if name == cut:
            os.kill(os.getpid(), signal.SIGKILL)

    def send(context: StepContext[dict[str, str]]) -> dict[str, str]:
        begin("send")
        context.remember({"sent": True})
        return {"sent": context.input["to"]}

    def draft(context: StepContext[dict[str, str]]) -> str:
        begin(f"draft {context.round}")
        return "no" if context.feedback is None else f"after {context.feedback.data}"

    ladder = define_workflow(
        "ladder",
        [
            step("send", run=send, until=lambda _: Verdict(False, "goes-on")),
            step(
                "draft",
                run=draft,
                until=lambda result: (
                    Verdict(False, "bad", data=["x"]) if result == "no" else Verdict(False, "still bad")
                ),
                retry=Retry(2),
                replay=replay,
            ),
            step("finish", run=lambda _: begin("finish") or "done"),
        ],
    )
    return create_agent(model=script_client([]), workflows=[ladder], state=state)


async def climb(store: Path, log: Path, cut: str = "", replay: Replay = "never") -> WorkflowResult[object]:
    """Run it, or go on with it."""
    async with SqliteState(store) as state:
        return await agent_of(state, log, cut, replay).run(Session("s"), "ladder", {"to": "ann"}, run_id="w1")


if __name__ == "__main__":
    print(asyncio.run(climb(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], cast("Replay", sys.argv[4]))))
