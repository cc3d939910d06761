"""`python -m tests.benchmarks`: measure, print the table. With `--check` a missed target is an error."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Final

from tests.benchmarks.agents import aborts, agent_deltas, prompts
from tests.benchmarks.crowd import crowd
from tests.benchmarks.definitions import definitions
from tests.benchmarks.dialects import building, one_request, pouring
from tests.benchmarks.durable import durable, durable_on_postgres
from tests.benchmarks.gateway import requests
from tests.benchmarks.harness import harness
from tests.benchmarks.imports import imports
from tests.benchmarks.measuring import Effort, Row
from tests.benchmarks.streams import deltas
from tests.benchmarks.turns import eight_tools, long_run, one_tool, text
from tests.benchmarks.wire import chunks, http_turns

WORKLOADS: Final[dict[str, Callable[[Effort], Coroutine[object, object, list[Row]]]]] = {
    "import": imports,
    "text": text,
    "tool": one_tool,
    "parallel": eight_tools,
    "long": long_run,
    "definition": definitions,
    "gateway": requests,
    "harness": harness,
    "crowd": crowd,
    "durable": durable,
    "postgres": durable_on_postgres,
    "deltas": deltas,
    "prompt": prompts,
    "listeners": agent_deltas,
    "abort": aborts,
    "http": http_turns,
    "sse": chunks,
    "dialects": pouring,
    "build": building,
    "request": one_request,
}

COLUMNS: Final = "{:<44} {:>9} {:>9} {:>7}  {:<10} {}"


def main() -> int:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=WORKLOADS, help="this workload; may be repeated")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: rough figures")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    wanted = parser.parse_args()
    effort = Effort(3, 0.2) if wanted.quick else Effort(9)
    print(COLUMNS.format("workload", "bare", "ours", "ratio", "target", "met"))
    missed = 0
    for name in wanted.only or WORKLOADS:
        for row in asyncio.run(WORKLOADS[name](effort)):
            print(_line(row), flush=True)
            missed += row.met is False
    return 1 if missed and wanted.check else 0


def _line(row: Row) -> str:
    return COLUMNS.format(
        row.what,
        "" if row.bare is None else row.unit(row.bare),
        row.unit(row.ours),
        "" if row.ratio is None else f"{row.ratio:.2f}",
        row.target,
        {True: "yes", False: "NO", None: ""}[row.met],
    ).rstrip()


if __name__ == "__main__":
    sys.exit(main())
