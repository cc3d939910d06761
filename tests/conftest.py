"""How the tests run: on asyncio, each within its bound, with a last word on what was skipped and what is not built."""

from __future__ import annotations

import asyncio
import functools
import inspect
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

# Hypothesis would import it in mid-test, and pytest parse it then: if a failed task of an earlier example is collected
# at that moment, its traceback is parsed inside of that, for which Python 3.11 raises SystemError.
import hypothesis.internal.conjecture.optimiser  # noqa: F401 - imported for its import
import pytest
from hypothesis import HealthCheck, settings

from tests.postgres import serving

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

BOUND = 60.0
"""Seconds that one asynchronous test, or one example of a property, may take."""

BOUND_OF_A_PROOF = 1800.0
"""Seconds that it may take if it is marked as a long proof."""

PROMISES = Path(__file__).parents[1] / "contracts" / "promises.toml"

# The machine may be shared and slow, so no example is judged by its time; a failure prints what repeats it.
SLOW_IS_FINE = [HealthCheck.too_slow]
settings.register_profile("test", deadline=None, print_blob=True, suppress_health_check=SLOW_IS_FINE)
settings.register_profile(
    "proof", deadline=None, print_blob=True, max_examples=2000, suppress_health_check=SLOW_IS_FINE
)
settings.load_profile("test")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run every asynchronous test on asyncio, the loop that the library is for."""
    return "asyncio"


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """One server for the session, started for the first test that needs it."""
    with serving() as address:
        yield address


@pytest.hookimpl(tryfirst=True, wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object:
    """Give each asynchronous test its bound; a property gets it for each example."""
    bound = BOUND if pyfuncitem.get_closest_marker("proof") is None else BOUND_OF_A_PROOF
    if (handle := getattr(pyfuncitem.obj, "hypothesis", None)) is not None:
        if inspect.iscoroutinefunction(handle.inner_test):
            handle.inner_test = _within(bound, handle.inner_test)
    elif inspect.iscoroutinefunction(pyfuncitem.obj):
        pyfuncitem.obj = _within(bound, pyfuncitem.obj)
    return (yield)


def _within(seconds: float, test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    late: TimeoutError | None = None

    @functools.wraps(test)
    async def bounded(*args: object, **kwargs: object) -> None:
        nonlocal late
        if late is not None:  # Hypothesis wants to shrink it; each try could take as long again
            raise late
        try:
            async with asyncio.timeout(seconds) as bound:
                await test(*args, **kwargs)
        except TimeoutError as error:
            if bound.expired():
                late = TimeoutError(f"not done after {seconds:.0f} s with {kwargs}")
                raise late from error
            raise

    return bounded


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """End with what was skipped and why, and with the promises that no code keeps yet."""
    skipped = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", []))
    for reason, count in sorted(skipped.items()):
        terminalreporter.write_line(f"skipped {count}: {reason}")
    promises = tomllib.loads(PROMISES.read_text(encoding="utf-8"))
    unbuilt = [name for name, promise in promises.items() if not promise["built"]]
    line = f"promises: {len(promises) - len(unbuilt)} of {len(promises)} built"
    terminalreporter.write_line(line + (f"; not built: {' '.join(unbuilt)}" if unbuilt else ""))


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Read the words of a skip from the (file, line, words) that pytest keeps of it."""
    match report.longrepr:
        case (_, _, str(words)):
            return words.removeprefix("Skipped: ")
        case other:
            return str(other)
