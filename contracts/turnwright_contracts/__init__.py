"""What every adapter of a port must do, as tests to subclass: one suite for each port.

A suite is a class of pytest tests with one hook, `make`, which gives the adapter under test. To prove your own adapter,
install turnwright with its `testing` extra, subclass the suite in your tests, and say how the adapter is made::

    from pathlib import Path

    from turnwright_contracts import StateSuite

    class TestMyState(StateSuite):
        durability = "power"

        def make(self, place: Path, *, finished_kept: int | None = None) -> MyState:
            return MyState(place / "runs", keep=finished_kept)

What `make` gives is used as an asynchronous context manager, so that the adapter can open and close what it needs;
`contextlib.nullcontext(adapter)` serves one that needs neither. An empty directory, *place*, belongs to each test.
Where an adapter cannot do what its port leaves open, the suite has a class attribute that says so; a test that needs
it is then skipped by name, so that a reader of the report sees what was not proven.

The tests are plain functions that run a loop of their own: no plugin is needed, no test waits longer than
`running.BOUND` seconds, and none sleeps.

| suite | port | hooks and declarations |
| --- | --- | --- |
| `StateSuite` | state: journal, evidence, inbox, leases, many runs | `make`, `durability`, `lacks` |
| `BudgetsSuite` | budgets | `make`, `set_limit`, `standing` |
| `IdempotencySuite` | idempotency | `make` |
| `ApprovalsSuite` | approvals | `make` |
| `ModelSuite` | model | `make` |
| `ContextSuite` | context | `make` |
| `InboxSuite` | inbox | `make`, `put` |
| `CipherSuite` | cipher: content sealed at rest | `make` |
| `CancellationSuite` | cancellation | `make`, `give` |
| `PolicySuite` | policy | `make`, `enforces`, `lacks` |
| `ListenerSuite` | listener | `make`, `heard` |
| `TelemetrySuite`, `DeltasSuite` | telemetry, deltas | `make`, `taken` |
| `ClockSuite`, `IdsSuite` | clock, ids | `make`, `guessable` |
| `PricesSuite` | prices | `make`, `provider`, `model` |
| `EnvironmentSuite` | execution environment: files and programs for tools | `make` |

`agreement` goes further: state machines that draw any sequence of calls, make it on two adapters or more, and compare
every answer. Name your adapter beside the one in memory::

    from turnwright_contracts.agreement import StateAgreement

    class MyStateAgrees(StateAgreement):
        def stores(self, place: Path) -> Sequence[AbstractAsyncContextManager[State]]:
            return nullcontext(MemoryState()), MyState(place / "runs")

    TestMyStateAgrees = MyStateAgrees.TestCase
"""

from turnwright.errors import MissingExtra

try:
    import pytest
except ImportError as error:
    raise MissingExtra("testing", "pytest") from error

SUITES = ("budgets", "cipher", "context", "environment", "idempotency", "model", "outside", "small", "state")
pytest.register_assert_rewrite(*[f"{__name__}.{suite}" for suite in SUITES])

# After the line above: what is asserted in the suites explains itself.
from turnwright_contracts.author import Author, told  # noqa: E402
from turnwright_contracts.budgets import BudgetsSuite  # noqa: E402
from turnwright_contracts.cipher import CipherSuite  # noqa: E402
from turnwright_contracts.context import ContextSuite  # noqa: E402
from turnwright_contracts.environment import EnvironmentSuite  # noqa: E402
from turnwright_contracts.idempotency import IdempotencySuite  # noqa: E402
from turnwright_contracts.model import ModelSuite  # noqa: E402
from turnwright_contracts.outside import (  # noqa: E402
    CancellationSuite,
    InboxSuite,
    ListenerSuite,
    PolicySuite,
)
from turnwright_contracts.small import (  # noqa: E402
    ApprovalsSuite,
    ClockSuite,
    DeltasSuite,
    IdsSuite,
    PricesSuite,
    TelemetrySuite,
)
from turnwright_contracts.state import StateSuite  # noqa: E402

__all__ = [
    "ApprovalsSuite",
    "Author",
    "BudgetsSuite",
    "CancellationSuite",
    "CipherSuite",
    "ClockSuite",
    "ContextSuite",
    "DeltasSuite",
    "EnvironmentSuite",
    "IdempotencySuite",
    "IdsSuite",
    "InboxSuite",
    "ListenerSuite",
    "ModelSuite",
    "PolicySuite",
    "PricesSuite",
    "StateSuite",
    "TelemetrySuite",
    "told",
]
