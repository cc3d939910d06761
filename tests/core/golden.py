"""Golden journals: stories that were once written down, and must fold to their outcome for ever.

    python -m tests.core.golden            writes the stories that have no journal yet
    python -m tests.core.golden --anew     writes all of them anew: only before a first release

A journal that a release has written is never written anew: what changes is the code that reads it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
from attrs import evolve as replace

from turnwright import (
    AgentDefinition,
    Decision,
    DidNotHappen,
    Happened,
    Limits,
    MemoryState,
    ModelError,
    Ports,
    RunCall,
    ToolOutput,
    TurnView,
    journal,
    resume_agent,
    run_agent,
    tool,
)
from turnwright.errors import PortError
from turnwright.evidence import Entry
from turnwright.facts import Fact
from turnwright.inbox import Cancel, FollowUp, LateResult, Steer
from turnwright.messages import AssistantMessage, File, Image, Part, Refusal, Text, ToolCall, UserMessage
from turnwright.ports import Append
from turnwright.state import RunState, fold
from turnwright.testing import FixedClock, Reply, ScriptedModel, SequentialIds, call, fails, text

JOURNALS = Path(__file__).parents[2] / "contracts" / "journals"
RUN = "run"


@tool
async def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


@tool(replay="safe")
async def look(order: int) -> dict[str, int]:
    """Look an order up."""
    return {"order": order, "cents": 500}


@tool(approval="required")
async def pay(cents: int) -> str:
    """Pay out."""
    return f"paid {cents}"


@tool(approval=2, sequential=True)
async def close(account: str) -> None:
    """Close an account."""


@tool
async def fail(why: str) -> str:
    """Fail."""
    raise RuntimeError(why)


async def _carrier(key: str) -> Happened:
    return Happened("shipped")


@tool(reconcile=_carrier)
async def ship(parcel: int) -> str:
    """Ship a parcel; the carrier can be asked."""
    return "shipped"


BILL = File("application/pdf", data="JVBERi0xLjQ=", name="bill.pdf")


@tool(replay="safe")
async def scan(page: int) -> ToolOutput:
    """Scan a page."""
    return ToolOutput([Text(f"page {page}"), Image("image/png", data="iVBORw=="), BILL])


def with_the_bill(said: str) -> Sequence[Part]:
    """Say it, and show the bill."""
    return Text(said), BILL


def politely(output: str, calls: Sequence[RunCall]) -> str | None:
    """Object to an answer without thanks."""
    return None if "thank" in output else "say thank you"


def look_first(view: TurnView) -> str:
    """Demand a look at the first turn."""
    return "look" if view.turn == 1 else "auto"


class _Dying(MemoryState):
    """A store that is gone after some appends, until it is opened again."""

    def __init__(self, appends: int) -> None:
        super().__init__()
        self._left = appends

    async def append(self, run_id: str, epoch: int, expected: int, append_id: str, facts: Sequence[Entry]) -> Append:
        self._left -= 1
        if self._left < 0:
            raise PortError("gone")
        return await super().append(run_id, epoch, expected, append_id, facts)


class Stage:
    """Where a story plays: the agent, its world, and what people say."""

    def __init__(self, *replies: Reply, agent: AgentDefinition[str, str] | None = None, dies_after: int = 999) -> None:
        tools = [send, look, pay, close, fail, ship]
        self.agent = agent or AgentDefinition(name="clerk", instruction="Do it.", tools=tools)
        self.ports = Ports(
            model=ScriptedModel(replies), state=_Dying(dies_after), clock=FixedClock(), ids=SequentialIds()
        )

    async def run(self, *, max_turns: int = 8) -> None:
        """Run it; a store that dies on the way is opened again."""
        try:
            await run_agent(self.agent, "go", self.ports, run_id=RUN, max_turns=max_turns)
        except PortError:
            state = self.ports.state
            assert isinstance(state, MemoryState)
            self.ports = Ports(model=self.ports.model, state=state.reopen(), clock=self.ports.clock, ids=self.ports.ids)

    async def go_on(self, *, max_turns: int | None = None, **said: Decision | Happened | DidNotHappen) -> None:
        """Resume it; *said* is about the calls of the newest turn, by their place: `_0`, `_1`."""
        state = fold(await facts_of(self.ports.state))  # type: ignore[arg-type]
        effects = {state.effect_id(state.turn, int(place[1:])): word for place, word in said.items()}
        decisions = {effect: word for effect, word in effects.items() if isinstance(word, Decision)}
        resolutions = {effect: word for effect, word in effects.items() if not isinstance(word, Decision)}
        await resume_agent(
            *(self.agent, RUN, self.ports), decisions=decisions, resolutions=resolutions, max_turns=max_turns
        )


Story = Callable[[], Awaitable[Stage]]
STORIES: dict[str, Story] = {}


def story(tell: Story) -> Story:
    """Register a story under its name."""
    STORIES[tell.__name__] = tell
    return tell


YES = Decision(approved=True, by="ada", level=2)
NO = Decision(approved=False, by="ada", reason="too dear")


@story
async def answer() -> Stage:
    """One question, one answer."""
    stage = Stage(text("Grüße ✓"))
    await stage.run()
    return stage


@story
async def one_tool() -> Stage:
    """A tool is called, and its result answered."""
    stage = Stage(call("look", order=7), text("500 cents"))
    await stage.run()
    return stage


@story
async def parallel() -> Stage:
    """Three calls at once, one of which fails."""
    stage = Stage(
        [call("look", order=1), call("fail", why="out of order"), call("send", to="ada")], text("two of three")
    )
    await stage.run()
    return stage


@story
async def refused() -> Stage:
    """No such tool, arguments of the wrong kind, arguments that are no JSON; the model answers all the same."""
    stage = Stage(
        [call("fly", to="mars"), call("look", order="soon"), ToolCall("", "look", '{"order":')], text("I see")
    )
    await stage.run()
    return stage


@story
async def truncated() -> Stage:
    """An answer was cut with a call in it, which does not run."""
    cut = AssistantMessage((Text("I pay"), ToolCall("c", "pay", '{"cen')), "length")
    stage = Stage(cut, call("look", order=2), text("done"))
    await stage.run()
    return stage


@story
async def approved() -> Stage:
    """A payment is approved, and a call that needs more authority with it."""
    stage = Stage([call("pay", cents=5), call("close", account="7")], text("done"))
    await stage.run()
    await stage.go_on(_0=YES, _1=YES)
    return stage


@story
async def denied() -> Stage:
    """A payment is denied with a reason, which the model is told."""
    stage = Stage(call("pay", cents=5), text("as you wish"))
    await stage.run()
    await stage.go_on(_0=NO)
    return stage


@story
async def waiting_for_approval() -> Stage:
    """A payment waits; another call of the same answer has run."""
    stage = Stage([call("pay", cents=5), call("send", to="ada")], text("done"))
    await stage.run()
    return stage


@story
async def in_doubt() -> Stage:
    """The process died over a letter, and nobody knows whether it was sent."""
    stage = Stage(call("send", to="ada"), text("done"), dies_after=2)
    await stage.run()
    await stage.run()
    return stage


@story
async def resolved() -> Stage:
    """Somebody saw the letter, and the run goes on with that."""
    stage = await in_doubt()
    await stage.ports.state.post(RUN, LateResult(f"{RUN}:1.0", "sent to ada"))
    await stage.go_on(_0=Happened("sent to ada"))
    return stage


@story
async def did_not_happen() -> Stage:
    """The letter was never sent; the model issues the call again."""
    stage = Stage(call("send", to="ada"), call("send", to="ada"), text("done"), dies_after=2)
    await stage.run()
    await stage.run()
    await stage.go_on(_0=DidNotHappen())
    return stage


@story
async def recovered() -> Stage:
    """The process died over a safe call and again over the next answer; both were done again."""
    stage = Stage(call("look", order=1), text("done"), dies_after=2)
    await stage.run()
    await stage.run()
    return stage


@story
async def reconciled() -> Stage:
    """The process died over a parcel, and the carrier was asked."""
    stage = Stage(call("ship", parcel=1), text("done"), dies_after=2)
    await stage.run()
    await stage.run()
    return stage


@story
async def asked_again() -> Stage:
    """The process died while the model answered."""
    stage = Stage(text("done"), dies_after=1)
    await stage.run()
    await stage.run()
    return stage


@story
async def repaired() -> Stage:
    """An answer is objected to, and the next is better."""
    agent = AgentDefinition(name="polite", instruction="Do it.", check_output=[politely])
    stage = Stage(text("no"), text("thank you"), agent=agent)
    await stage.run()
    return stage


@story
async def never_repaired() -> Stage:
    """No answer is good enough within the repair budget."""
    agent = AgentDefinition(name="polite", instruction="Do it.", check_output=[politely], repairs=1)
    stage = Stage(text("no"), text("no!"), agent=agent)
    await stage.run()
    return stage


@story
async def declined() -> Stage:
    """The model will not answer."""
    stage = Stage(AssistantMessage((Refusal("I will not."),), "refusal"))
    await stage.run()
    return stage


@story
async def out_of_turns() -> Stage:
    """The last turn is over, and the model wanted more."""
    stage = Stage(call("look", order=1), call("look", order=2), text("done"))
    await stage.run(max_turns=1)
    return stage


@story
async def more_turns() -> Stage:
    """With more turns the run came to its end."""
    stage = await out_of_turns()
    await stage.go_on(max_turns=4)
    return stage


@story
async def out_of_budget() -> Stage:
    """The definition allows one request."""
    agent = AgentDefinition(name="thrifty", instruction="Do it.", tools=[look], limits=Limits(requests=1))
    stage = Stage(call("look", order=1), text("done"), agent=agent)
    await stage.run()
    return stage


@story
async def failing_model() -> Stage:
    """The model was overloaded, the run waited, and somebody resumed it."""
    stage = Stage(fails(ModelError("overloaded", "no luck", retryable=True), then=text("done")))
    await stage.run()
    await stage.go_on()
    return stage


@story
async def malformed() -> Stage:
    """Junk from the model port is asked for again."""
    stage = Stage(fails(ModelError("malformed", "junk", retryable=True), then=text("done")))
    await stage.run()
    return stage


@story
async def steered() -> Stage:
    """Somebody steered while the run waited, and had something more to say at its end."""
    stage = Stage(call("pay", cents=5), text("done"), text("you are welcome"))
    await stage.run()
    await stage.ports.state.post(RUN, Steer(UserMessage("hurry")))
    await stage.ports.state.post(RUN, FollowUp(UserMessage("thanks")))
    await stage.go_on(_0=YES)
    return stage


@story
async def files() -> Stage:
    """Files and images came in: with the question, as a result, and while the run waited."""
    agent = AgentDefinition(name="reader", instruction="Do it.", tools=[scan, pay], render=with_the_bill)
    stage = Stage([call("scan", page=1), call("pay", cents=5)], text("read"), agent=agent)
    await stage.run()
    shown = (File("text/plain", id="file_7"), File("text/csv", url="https://example.org/a.csv"))
    await stage.ports.state.post(RUN, Steer(UserMessage(shown)))
    await stage.go_on(_1=YES)
    return stage


@story
async def chosen() -> Stage:
    """The definition's own code chose the tool of each turn."""
    agent = AgentDefinition(name="chooser", instruction="Do it.", tools=[look, send], tool_choice=look_first)
    stage = Stage(call("look", order=1), text("done"), agent=agent)
    await stage.run()
    return stage


@story
async def migrated() -> Stage:
    """A run that waits for approval goes on under a later version, which did not change the tool's contract."""
    stage = Stage(call("pay", cents=5), text("done"))
    await stage.run()
    earlier, stage.agent = stage.agent, replace(stage.agent, instruction="Be quick.")
    stage.agent = replace(stage.agent, compatible_with=[earlier.fingerprint])
    await stage.go_on(_0=YES)
    return stage


@story
async def cancelled() -> Stage:
    """The run was ended over a letter in doubt."""
    stage = await in_doubt()
    await stage.ports.state.post(RUN, Cancel("enough", "ada"))
    await stage.go_on()
    return stage


# --- journals


async def facts_of(state: MemoryState) -> list[Fact]:
    """The facts of the story."""
    entries = await state.load(RUN)
    return [journal.decode(each.kind, each.schema, each.body, position=each.seq) for each in entries]


def stands(state: RunState) -> object:
    """All that somebody could want to know of how a run stands, as JSON."""
    ending = state.ended or state.suspended
    told = {
        "how": None if ending is None else {"kind": type(ending).__name__, **msgspec.to_builtins(ending)},
        "turn": state.turn,
        "usage": state.usage,
        "transcript": [*state.transcript],
        "waits": [state.effect_id(each.turn, each.index) for each in state.calls if each.result is None],
        "inbox": state.inbox,
        "fingerprint": state.fingerprint,
    }
    return msgspec.json.decode(msgspec.json.encode(told))


async def tell(name: str) -> bytes:
    """Play a story and write its journal down."""
    stage = await STORIES[name]()
    entries = await stage.ports.state.load(RUN)
    lines = [
        {"kind": each.kind, "schema": each.schema, "body": msgspec.Raw(each.body), "evidence": each.evidence}
        for each in entries
    ]
    state = fold(await facts_of(stage.ports.state))  # type: ignore[arg-type]
    return b"".join(
        [
            b'{"story": ' + msgspec.json.encode((STORIES[name].__doc__ or "").strip()),
            b',\n"entries": [\n' + b",\n".join([msgspec.json.encode(line) for line in lines]),
            b'\n],\n"stands": ' + msgspec.json.format(msgspec.json.encode(stands(state)), indent=1) + b"}\n",
        ]
    )


def main() -> None:
    """Write what is missing, or everything."""
    JOURNALS.mkdir(exist_ok=True)
    for name in STORIES:
        path = JOURNALS / f"{name}.json"
        if "--anew" in sys.argv or not path.exists():
            path.write_bytes(asyncio.run(tell(name)))
            print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
