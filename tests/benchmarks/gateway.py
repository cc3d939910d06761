"""What a gateway adds to each request of a model that answers at once."""

from __future__ import annotations

from tests.benchmarks.measuring import Effort, Row, alternate
from tests.benchmarks.turns import Replies, answer
from turnwright.gateway import Gateway, Route
from turnwright.messages import Transcript, UserMessage
from turnwright.ports import Model, ModelRequest

__all__ = ["requests"]


async def requests(effort: Effort) -> list[Row]:
    """Measure a request through a gateway of two routes, and one whose route has limits."""
    model = Replies([answer("3")])
    plain = Gateway([Route("a", model), Route("b", model)])
    limited = Gateway([Route("a", model, timeout=60.0, concurrent=100)])
    request = ModelRequest("r1", 1, 1, "", Transcript([UserMessage("1 + 2?")]), timeout=600.0)
    number = effort.of(2000)

    async def ask(asked: Model) -> None:
        for _ in range(number):
            await asked.complete(request)

    rows = []
    for what, gateway in (("request through a gateway", plain), ("  with limits", limited)):
        theirs, own = await alternate(
            lambda: ask(model), lambda asked=gateway: ask(asked), units=number, rounds=effort.rounds
        )
        rows.append(Row(what, own.cpu, theirs.cpu, at_most=40e-6))
    return rows
