"""Whatever happens while an agent works, and in whatever order: nothing that was said is lost or said twice.

Each play draws, from one seed, a model that answers, calls, fails or talks for ever, tools that work, fail or hang,
listeners that are slow or fail, and somebody who steers, follows up, takes back, aborts and cancels in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from tests.driver.virtual import LoopClock, leftovers, run
from tests.laws.test_balance import unbalanced
from turnwright import AgentError, DidNotHappen, MemoryState, ModelError, PortError, Ports, tool
from turnwright.agent import Agent, Receipt, Signal
from turnwright.deltas import TextDelta
from turnwright.evidence import Entry
from turnwright.inbox import Word
from turnwright.lifecycle import LifecycleEvent
from turnwright.memory import MemoryBudgets
from turnwright.messages import AssistantMessage, Message, ToolMessage, UserMessage
from turnwright.ports import Append, Denied, ModelRequest, Reserved
from turnwright.testing import call, text


class Dice:
    """What happens next, from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.calm = False
        """Whether the first choice is taken wherever there is one, so that there is an end."""

    def of(self, *choices: tuple[int, str]) -> str:
        """One of *choices*, by weight."""
        if self.calm:
            return choices[0][1]
        return self.random.choices([name for _, name in choices], [weight for weight, _ in choices])[0]

    async def pause(self) -> None:
        """Let others go first, or time pass."""
        await asyncio.sleep(self.random.choice([0, 0, 0, 0.01, 0.5]))


class Moody:
    """A model of moods."""

    def __init__(self, dice: Dice) -> None:
        self.dice = dice

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        """Answer, if it pleases."""
        await self.dice.pause()
        if request.on_delta is not None:
            request.on_delta(TextDelta(request.turn, request.attempt, "well "))
        await self.dice.pause()
        match self.dice.of((6, "text"), (4, "calls"), (1, "fails"), (1, "breaks"), (1, "hangs"), (1, "cut")):
            case "calls":
                names = [
                    self.dice.of((3, "work"), (1, "alone"), (1, "unknown"))
                    for _ in range(self.dice.random.randint(1, 3))
                ]
                return AssistantMessage([call(name) for name in names], "tool_calls")
            case "cut":
                return AssistantMessage([call("work")], "length")
            case "fails":
                raise ModelError("overloaded", "later")
            case "breaks":
                raise RuntimeError("broken")
            case "hangs":
                await asyncio.sleep(self.dice.random.choice([5, 100]))
        return text("done")


class Slow(MemoryState):
    """A store that takes its time to write."""

    def __init__(self, dice: Dice) -> None:
        super().__init__()
        self.dice = dice

    async def append(self, run_id: str, epoch: int, expected: int, append_id: str, facts: Sequence[Entry]) -> Append:
        """Write, before or after others had their turn."""
        await asyncio.sleep(self.dice.random.choice([0, 0.01, 0.1]))
        answer = await super().append(run_id, epoch, expected, append_id, facts)
        await asyncio.sleep(self.dice.random.choice([0, 0.01, 0.1]))
        return answer


class Forgetful(Slow):
    """A store of which, now and then, nobody hears what became of what it was asked."""

    async def post(self, run_id: str, word: Word) -> int:
        """Put a word in the inbox."""
        self.may_forget()
        place = await super().post(run_id, word)
        self.may_forget()
        return place

    async def read(self, run_id: str, after: int = 0) -> Sequence[tuple[int, Word]]:
        """The words."""
        self.may_forget()
        return await super().read(run_id, after)

    async def load(self, run_id: str, after: int = 0) -> Sequence[Entry]:
        """The entries."""
        self.may_forget()
        return await super().load(run_id, after)

    def may_forget(self) -> None:
        """Fail, perhaps."""
        if self.dice.of((9, "well"), (1, "forgets")) == "forgets":
            raise PortError("the answer was lost")


class SlowBudgets(MemoryBudgets):
    """Accounts that take their time to allow everything."""

    def __init__(self, dice: Dice) -> None:
        super().__init__({})
        self.dice = dice

    async def reserve(self, id: str, scopes: Sequence[str], ask: Mapping[str, int]) -> Reserved | Denied:
        """Allow it, after others had their turn."""
        await asyncio.sleep(self.dice.random.choice([0, 0.01, 0.1]))
        return await super().reserve(id, scopes, ask)


class Play:
    """One agent, somebody who talks to it, and what came of it."""

    def __init__(self, seed: int) -> None:
        self.dice = Dice(seed)
        self.events: list[LifecycleEvent] = []
        self.said: dict[str, None] = {}
        """What was said and not taken back."""
        self.unsure: set[str] = set()
        """What was said by a prompt that was cancelled, perhaps before it began."""
        self.receipts: list[Receipt] = []

        self.state = [MemoryState(), Slow(self.dice), Forgetful(self.dice)][seed % 3]
        self.budgets = SlowBudgets(self.dice) if seed % 4 == 0 else None
        self.session_id = "s1" if self.dice.random.random() < 0.5 else None
        self.modes = [self.dice.random.choice(["one-at-a-time", "all"]) for _ in range(2)]
        self.hooks = [self.dice.random.random() < chance for chance in (0.3, 0.3, 0.5)]
        self.agent = self.make()

    def make(self) -> Agent:
        """The agent; a new one of the same session, if it has one, goes on where the last one was."""

        async def work() -> str:
            """Work."""
            match self.dice.of((5, "well"), (1, "badly"), (1, "long"), (1, "steering")):
                case "badly":
                    raise RuntimeError("badly")
                case "long":
                    await asyncio.sleep(50)
                case "steering":
                    self.say("steer")
                case _:
                    await self.dice.pause()
            return "worked"

        model = Moody(self.dice)
        steering, following = self.modes
        agent = Agent(
            model,
            tools=[tool(replay="safe")(work), tool(name="alone", sequential=True)(work)],
            ports=Ports(model, self.state, budgets=self.budgets, clock=LoopClock(), grace=1.0),
            session_id=self.session_id,
            max_turns=12,
            steering_mode=steering,  # type: ignore[arg-type]
            follow_up_mode=following,  # type: ignore[arg-type]
        )
        stops, transforms, troubles = self.hooks
        if stops:
            agent.should_stop_after_turn = lambda *_: not self.dice.calm and self.dice.random.random() < 0.2
        if transforms:
            agent.transform_context = self.transform
        if troubles:
            agent.subscribe(self.trouble)
        agent.subscribe(lambda event, _: self.events.append(event))
        return agent

    async def start_over(self) -> None:
        """Let another agent take the session up: it finds what this one left."""
        if self.session_id is None:
            return
        await self.load()
        old, self.agent = self.agent, self.make()
        await self.load()
        assert old.state.messages == self.agent.state.messages
        assert old.queued == self.agent.queued
        assert old.pending == self.agent.pending

    async def load(self) -> None:
        """Read what is new, in the end."""
        while True:
            with suppress(PortError):
                return await self.agent.load()

    async def transform(self, messages: list[Message], _: Signal) -> list[Message]:
        """A hook that fails now and then."""
        if self.dice.random.random() < 0.1:
            raise RuntimeError("no context")
        return messages

    async def trouble(self, event: LifecycleEvent, _: Signal) -> None:
        """A listener that is slow, fails, talks and aborts."""
        match self.dice.of((20, "nothing"), (2, "slow"), (1, "fails"), (1, "says"), (1, "aborts"), (1, "hangs")):
            case "slow":
                await self.dice.pause()
            case "fails":
                raise RuntimeError("no ears")
            case "says":
                self.say("follow_up")
            case "aborts" if self.dice.random.random() < 0.2:
                self.agent.abort()
            case "hangs" if self.dice.random.random() < 0.2:
                await asyncio.sleep(30)

    def words(self) -> list[UserMessage]:
        """One message or several, each of its own."""
        count = self.dice.random.choice([1, 1, 1, 2])
        made = [UserMessage(f"message {len(self.said) + n}-{self.dice.random.random()}") for n in range(count)]
        self.said.update(dict.fromkeys([each.text for each in made]))
        return made

    def say(self, how: str) -> None:
        """Queue something."""
        say = self.agent.steer if how == "steer" else self.agent.follow_up
        self.receipts.append(say(self.words()))

    def take_back(self) -> None:
        """Take something back that may have been delivered."""
        if self.receipts:
            for item in self.agent.cancel_queued(self.dice.random.choice(self.receipts).id):
                for message in item.messages:
                    del self.said[message.text]

    async def meddle(self) -> None:
        """Do what people do while an agent works."""
        for _ in range(self.dice.random.randint(0, 6)):
            await self.dice.pause()
            match self.dice.of((4, "steer"), (4, "follow_up"), (2, "take back"), (1, "abort")):
                case "take back":
                    self.take_back()
                case "abort":
                    self.agent.abort()
                case how:
                    self.say(how)

    async def order(self) -> None:
        """One order to the agent, with somebody who meddles."""
        agent = self.agent
        meddling = asyncio.ensure_future(self.meddle())
        tail = agent.state.messages[-1:] or [AssistantMessage("")]
        start: Callable[[], Awaitable[object]] = agent.continue_
        words: list[UserMessage] = []
        if (not agent.queued and isinstance(tail[0], AssistantMessage)) or self.dice.random.random() < 0.5:
            words = self.words()
            start = lambda: agent.prompt(words)  # noqa: E731
        work = asyncio.ensure_future(start())
        if self.dice.random.random() < 0.1:
            await self.dice.pause()
            if work.cancel():
                self.unsure.update([each.text for each in words])
        await asyncio.wait([work, meddling])
        if not work.cancelled() and (error := work.exception()) is not None:
            assert isinstance(error, AgentError | PortError)
            self.unsure.update([each.text for each in words])

    async def play(self) -> None:
        """Some orders, and then as many as it takes until there is nothing to continue with."""
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        for _ in range(self.dice.random.randint(1, 4)):
            await self.order()
            if self.dice.random.random() < 0.4:
                await self.start_over()
        self.dice.calm = True
        for _ in range(200):
            unknown = {each.effect_id: DidNotHappen() for each in self.agent.pending}
            try:
                await self.agent.continue_(resolutions=unknown)
            except AgentError as error:
                if error.code == "nothing-to-continue":
                    break
                raise

    def check(self) -> None:
        """Every message once, in balance, each call with one result."""
        agent = self.agent
        heard = [each.text for each in agent.state.messages if isinstance(each, UserMessage)]
        assert sorted({*self.said} - self.unsure) == sorted([each for each in heard if each not in self.unsure])
        assert len(heard) == len({*heard})
        assert () == agent.queued
        assert [] == unbalanced(self.events)
        calls = [part for each in agent.state.messages if isinstance(each, AssistantMessage) for part in each.calls]
        assert len(calls) == len([each for each in agent.state.messages if isinstance(each, ToolMessage)])
        assert not agent.state.is_streaming
        assert not agent.state.pending_tool_calls
        assert agent.state.streaming_message is None


def play(seed: int) -> None:
    """Play one seed to its end."""

    async def scene() -> None:
        drawn = Play(seed)
        await drawn.play()
        drawn.check()
        await asyncio.sleep(200)
        assert set() == leftovers()

    run(scene())


@pytest.mark.promise("P-02", "P-08", "P-10", "P-12")
@given(st.integers(0, 2**32))
@settings(max_examples=60)
def test_nothing_said_is_lost_or_said_twice(seed: int) -> None:
    """Law 7 and the queues: each message is delivered once, every event balanced, and nothing is left at work."""
    play(seed)


@pytest.mark.promise("P-08")
@pytest.mark.parametrize("part", range(10))
def test_a_thousand_plays(part: int) -> None:
    """The same seeds each time."""
    for seed in range(part * 100, part * 100 + 100):
        try:
            play(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
