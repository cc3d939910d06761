"""What `import turnwright` costs a fresh process."""

from __future__ import annotations

import os
import sys
from tempfile import TemporaryDirectory

from attrs import frozen

from tests.benchmarks.measuring import Effort, Row, count, memory

__all__ = ["imports"]

UNWANTED = (
    *("httpx", "structlog", "jsonpatch", "rich", "cyclopts", "sqlite3", "psycopg", "starlette", "uvicorn"),
    *("mcp", "a2a", "ag_ui", "opentelemetry", "temporalio", "dbos", "cryptography", "hypothesis", "xllamacpp"),
)

BARE, OURS = "import asyncio, json", "import turnwright"

REPORT = """
import sys
print(*[name for name in {unwanted!r} if name in sys.modules])
with open("/proc/self/status") as status:
    print([line.split()[1] for line in status if line.startswith("VmRSS")][0])
"""


@frozen
class _Process:
    cpu: float
    resident: int
    unwanted: tuple[str, ...]


async def imports(effort: Effort) -> list[Row]:
    """Measure the CPU time of a process that imports turnwright, and what it holds."""
    with TemporaryDirectory() as bytecode:
        for code in (BARE, OURS):
            _start(code, bytecode)  # compiles
        processes = [(_start(BARE, bytecode), _start(OURS, bytecode)) for _ in range(effort.rounds)]
    theirs, ours = zip(*processes, strict=True)
    bare_cpu, own_cpu = (min([each.cpu for each in processes]) for processes in (theirs, ours))
    bare_size, own_size = (min([each.resident for each in processes]) for processes in (theirs, ours))
    unwanted = ours[0].unwanted
    return [
        Row("import, CPU of the process", own_cpu, bare_cpu, times_bare=2.2),
        Row("  memory above bare", own_size - bare_size, unit=memory, at_most=12e6),
        Row(" ".join(["  heavy modules imported", *unwanted]), len(unwanted), unit=count, at_most=0),
    ]


def _start(code: str, bytecode: str) -> _Process:
    """Run *code* in a process of its own, its modules compiled as after any first import, and see what that took."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    read, write = os.pipe()
    report = code + REPORT.format(unwanted=UNWANTED)
    actions = [(os.POSIX_SPAWN_DUP2, write, 1)]
    child = os.posix_spawn(sys.executable, [sys.executable, "-c", report], environment, file_actions=actions)
    os.close(write)
    with os.fdopen(read) as said:
        unwanted, resident = said.read().splitlines()
    _, status, used = os.wait4(child, 0)
    assert status == 0
    return _Process(used.ru_utime + used.ru_stime, int(resident) * 1024, tuple(unwanted.split()))
