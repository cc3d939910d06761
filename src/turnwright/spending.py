"""What a run reserves before an effect, and what it has spent after it. Rule: a budget port decides what may start and
never what is recorded: it hears of a result when that is noted, and cannot lose one.

    before the wave        reserve; a denial takes the effect out of the wave, and suspends the run if nothing is left
    after the wave         settle with the actual usage
    when the run leaves    what was dispatched and never answered counts as it was reserved; the rest is let go

With prices, an answer is settled at its price in millionths of a dollar, on the axis `money`; one that nobody knows the
price of, as it was reserved.

The ids of reservations follow from the journal. Whoever takes a run over asks what is held under them, also for effects
that its last owner did not live to write down, and closes that.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Set as AbstractSet
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from attrs import define, field

from turnwright.commands import AskModel, Command, ExecuteCall
from turnwright.decide import Wave
from turnwright.definition import AnyDefinition
from turnwright.errors import PortError
from turnwright.facts import CallStarted, Fact, ModelAsked, RunSuspended, TurnStarted
from turnwright.messages import AssistantMessage
from turnwright.ports import Budgets, Denied, Prices, Reserved
from turnwright.state import RunState

__all__ = ["Spending"]

T = TypeVar("T")

UNAVAILABLE: Final = Denied("the budget port", "unavailable")

_OURS: Final = re.compile(r"\d+(\.\d+)?#\d+")
"""What follows the name of a run in an id: that of a request or a call, and the attempt."""


@define(eq=False)
class _Reservation:
    """*ask* is what is held, *actual* what was used, once that is known."""

    ask: Mapping[str, int]
    dispatched: bool = False
    actual: Mapping[str, int] | None = None


@define(eq=False)
class Spending:
    """The reservations of one run. *scopes* are the accounts it draws on besides its own."""

    _definition: AnyDefinition
    _budgets: Budgets
    _state: RunState
    _scopes: tuple[str, ...]
    _tenant: str
    _prices: Prices | None
    _fence: Callable[[], None]
    """Raises where another process may own the run: it uses the same ids."""
    _open: dict[str, _Reservation] = field(init=False, factory=dict)
    _adopted: bool = field(init=False, default=True)
    """Whether we know all that is held for the run."""

    def adopt(self) -> None:
        """Answer for what the run's last owner may have left: what it dispatched counts, the rest is looked for."""
        state = self._state
        commands: list[AskModel | ExecuteCall] = [
            AskModel(state.turn, attempt, "") for attempt in range(1, state.attempts + 1)
        ]
        for call in state.calls:
            admitted, started = call.admitted, call.started
            if started is not None and admitted is not None and admitted.name in self._definition.toolbox:
                commands += [
                    ExecuteCall(admitted, attempt, started.effect_id) for attempt in range(1, started.attempt + 1)
                ]
        for command in commands:
            self._open[self._id(command)] = _Reservation(self._cost(command), dispatched=True)
        if state.answered and state.attempts:
            answer = next(message for message in reversed(state.transcript) if isinstance(message, AssistantMessage))
            self.spent(AskModel(state.turn, state.attempts, ""), answer)
        self._adopted = False

    async def _look(self) -> None:
        """Find what is held for this run. Raises what the port raises."""
        opened = self._state.opened
        if not self._adopted and opened is not None:
            prefix = f"{self._tenant}\n{opened.run_id}:"
            held = {
                id for id in await self._heard(lambda: self._budgets.held(prefix)) if _OURS.fullmatch(id, len(prefix))
            }
            self._open = {id: self._open.get(id) or _Reservation({}) for id in held}
            self._adopted = True

    async def reserve(self, wave: Wave) -> Wave:
        """Hold what the wave's effects may cost, take out what is denied. A port that fails denies.

        What came before is closed first, or nothing is held: so all that is open is of one wave, and the next owner
        knows what of it counts.
        """
        effects = [command for command in wave.commands if isinstance(command, AskModel | ExecuteCall)]
        wanted = {self._id(command) for command in effects}
        stuck = bool(effects) and not await self._clear(wanted)
        denied: list[tuple[Command, Denied]] = []
        for command in effects:
            held = UNAVAILABLE if stuck else await self._hold(command)
            if isinstance(held, Denied):
                denied.append((command, held))
        if not denied:
            return wave
        dropped = [command for command, _ in denied]
        commands = tuple([command for command in wave.commands if command not in dropped])
        facts = tuple([fact for fact in wave.facts if not any([_is_intent(fact, command) for command in dropped])])
        if commands or facts:
            return Wave(facts, commands)
        scope, axis = denied[0][1].scope, denied[0][1].axis
        return Wave((RunSuspended("budget", axis, f"{scope} allows no more {axis}"),))

    async def _clear(self, wanted: AbstractSet[str]) -> bool:
        """Close what is not of this wave. Whether all of it is closed."""
        with suppress(Exception):
            await self._look()
            await self._close([id for id in self._open if id not in wanted])
            return self._open.keys() <= wanted
        return False

    async def _hold(self, command: AskModel | ExecuteCall) -> Reserved | Denied:
        reservation, ask = self._id(command), self._cost(command)
        assert self._state.opened is not None
        self._open[reservation] = _Reservation(ask)  # before the port is asked: its answer may be lost
        held: object = None
        with suppress(Exception):  # fail closed
            scopes = (*self._scopes, self._state.opened.run_id)
            held = await self._heard(lambda: self._budgets.reserve(reservation, scopes, ask))
        if isinstance(held, Denied):
            del self._open[reservation]
            return held if type(held.scope) is type(held.axis) is str else UNAVAILABLE
        return held if isinstance(held, Reserved) else UNAVAILABLE

    def dispatched(self, command: AskModel | ExecuteCall) -> None:
        """The effect may have started: from here on it counts."""
        self._open[self._id(command)].dispatched = True

    def withdrawn(self, command: AskModel | ExecuteCall) -> None:
        """The effect surely did not start after all."""
        self._open[self._id(command)].dispatched = False

    def spent(
        self, command: AskModel | ExecuteCall, answer: AssistantMessage | None = None, seconds: float = 0.0
    ) -> None:
        """The effect ended, a request of the model with *answer*, and this is what it used."""
        reservation = self._open.get(self._id(command))
        if reservation is not None:
            actual = {**reservation.ask, "ms": round(seconds * 1000)}
            if answer is not None:
                usage, price = answer.usage, self._price(answer)
                actual |= {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
                actual["requests"] = max(1, usage.requests)
                if price is not None:
                    actual["money"] = price
            reservation.actual = actual

    def _price(self, answer: AssistantMessage) -> int | None:
        """The price of *answer*. A port that fails knows none."""
        with suppress(Exception):
            return None if self._prices is None else self._prices.price(answer)
        return None

    async def settle(self, *, leaving: bool = False) -> None:
        """Tell the port what was used. If it fails, the reservation stands, which is never too little to hold."""
        with suppress(Exception):
            await self._look()
            await self._close([id for id, each in self._open.items() if leaving or each.actual is not None])

    async def _close(self, ids: list[str]) -> None:
        for id in ids:
            with suppress(Exception):
                await self._heard(partial(self._end, id, self._open[id]))
                del self._open[id]

    def _end(self, id: str, reservation: _Reservation) -> Awaitable[None]:
        if reservation.dispatched or reservation.actual is not None:
            return self._budgets.settle(id, reservation.ask if reservation.actual is None else reservation.actual)
        return self._budgets.release(id)

    async def _heard(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask the port, while the run is ours. One that cancels itself has failed; that we are is another matter."""
        self._fence()
        try:
            return await ask()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise PortError("the budget port was cancelled by itself") from None

    def _id(self, command: AskModel | ExecuteCall) -> str:
        assert self._state.opened is not None
        effect = f"{self._state.opened.run_id}:{command.turn}" if isinstance(command, AskModel) else command.effect_id
        return f"{self._tenant}\n{effect}#{command.attempt}"  # an effect id has no line break: no two tenants meet

    def _cost(self, command: AskModel | ExecuteCall) -> Mapping[str, int]:
        """What an effect costs at the least, or as much as its contract says."""
        if isinstance(command, AskModel):
            priced = {} if self._prices is None else {"money": 1}
            return {"input_tokens": 1, "output_tokens": 1, "ms": 1, **priced, **self._definition.cost, "requests": 1}
        return {"ms": 1, **self._definition.toolbox[command.call.name].cost, "tool_calls": 1}


def _is_intent(fact: Fact, command: Command) -> bool:
    match command:
        case AskModel():
            return isinstance(fact, TurnStarted | ModelAsked)
        case ExecuteCall():
            return isinstance(fact, CallStarted) and fact.effect_id == command.effect_id
        case _:
            return False
