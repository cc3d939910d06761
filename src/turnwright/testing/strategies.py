"""Hypothesis strategies: agents, conversations, facts and words, drawn at random, that shrink and print well.

    @given(sketches())
    def test_my_agent_survives(sketch): ...

An agent is drawn as a `Sketch`, a plain value, and made from it as often as a test needs: each with its own tools,
which tell *effect* of every execution. Needs `pip install 'turnwright[testing]'`, and is imported by its own path.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType
from typing import Literal, TypeAlias, cast, get_args, get_origin, get_type_hints

from attrs import field, fields, frozen

from turnwright.errors import MissingExtra, ModelErrorKind

try:
    from hypothesis import strategies as st
except ImportError as error:
    raise MissingExtra("testing", "hypothesis") from error

from turnwright import facts
from turnwright.canonical import JSON
from turnwright.definition import AgentDefinition, Block, CallView, Go, Limits, Stop, TurnView
from turnwright.inbox import Approve, Cancel, Deny, FollowUp, LateResult, Resolve, Steer, Withdraw, Word
from turnwright.messages import (
    AssistantMessage,
    File,
    Image,
    Message,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from turnwright.ports import Decision
from turnwright.tools import Approval, DidNotHappen, Happened, Replay, Tool, ToolContext, ToolOutput, tool

__all__ = [
    "Sketch",
    "ToolSketch",
    "agents",
    "chunkings",
    "conversations",
    "decisions",
    "every_fact",
    "fact_of",
    "files",
    "images",
    "json_values",
    "model_failures",
    "replies",
    "sketches",
    "steering",
    "tool_sets",
    "transcripts",
    "words",
]

Effect: TypeAlias = Callable[[ToolContext], object]
"""Told of every execution of a drawn tool: the world in which its effect takes place."""


@frozen
class ToolSketch:
    """A tool with its contract: it has its effect, and then returns *gives*, or raises *fails* if that is not empty.

    When it *ends* the matter, the model need not be asked about its result. Before and after the effect it lets
    *pauses* steps of the loop pass, in which it can be interrupted.
    *knows* is what its `reconcile` says of a call in doubt; without one it has no `reconcile`.
    """

    name: str
    replay: Replay = "never"
    approval: Approval = "none"
    sequential: bool = False
    gives: JSON = "done"
    fails: str = ""
    pauses: int = 0
    knows: Happened | DidNotHappen | None = None
    ends: bool = False
    version: str = ""

    def make(self, effect: Effect) -> Tool[..., object]:
        """The tool, telling *effect* of every execution."""

        async def act(context: ToolContext, n: int = 0) -> JSON | ToolOutput:
            await self._pause()
            effect(context)
            await self._pause()
            if self.fails:
                raise RuntimeError(self.fails)
            return ToolOutput("ended", details=self.gives, terminate=True) if self.ends else self.gives

        async def reconcile(key: str) -> Happened | DidNotHappen | None:
            return self.knows

        return tool(
            name=self.name,
            description="Act on the world.",
            replay=self.replay,
            approval=self.approval,
            sequential=self.sequential,
            version=self.version,
            reconcile=None if self.knows is None else reconcile,
        )(act)

    async def _pause(self) -> None:
        for _ in range(self.pauses):
            await asyncio.sleep(0)


@frozen
class Sketch:
    """An agent and a conversation with it: its tools, how often its output may be repaired, what the model says.

    Its boundary *stops* the run before these turns, and *adds* a message before those, also where the run would end. A
    guard *blocks* calls with an n of 1, for good, and a result guard *hides* the result of each second call of a turn.
    Of the calls of a turn at most *at_once* run together.
    """

    tools: tuple[ToolSketch, ...] = ()
    repairs: int = 2
    replies: tuple[AssistantMessage, ...] = field(default=())
    stops: frozenset[int] = frozenset()
    adds: frozenset[int] = frozenset()
    blocks: bool = False
    hides: bool = False
    at_once: int | None = None

    def definition(self, effect: Effect = lambda _: None) -> AgentDefinition[str, str]:
        """The agent, telling *effect* of every execution of one of its tools."""
        tools = [each.make(effect) for each in self.tools]
        return AgentDefinition(
            *("drawn", "Act.", tools),
            repairs=self.repairs,
            guards=[_block] if self.blocks else [],
            result_guards=[_hide] if self.hides else [],
            boundary=self._boundary if self.stops or self.adds else None,
            limits=Limits(calls_at_once=self.at_once),
        )

    def _boundary(self, view: TurnView) -> Go | Stop | None:
        if view.turn in self.stops and not view.ending:
            return Stop()
        return Go([UserMessage(f"turn {view.turn}?")]) if view.turn in self.adds else None


def _block(view: CallView) -> Block | None:
    return Block("not this one", terminate=True) if view.arguments.get("n") == 1 else None


def _hide(view: CallView, output: ToolOutput) -> ToolOutput | None:
    return ToolOutput("hidden", output.is_error, terminate=output.terminate) if view.index % 2 else None


@cache
def json_values() -> st.SearchStrategy[JSON]:
    """Small JSON values of every kind."""
    plain = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    texts = st.text(max_size=8)
    return st.recursive(
        plain | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=4,
    )


def tool_sets(*, min_size: int = 0, max_size: int = 4) -> st.SearchStrategy[tuple[ToolSketch, ...]]:
    """Sets of tools with every mixture of replay policy, approval, sequence and failure."""
    names = st.lists(
        st.sampled_from(("add", "book", "cancel order", "pay", "ü", "x" * 128)),
        min_size=min_size,
        max_size=max_size,
        unique=True,
    )
    return names.flatmap(lambda drawn: st.tuples(*[_tools(name) for name in drawn]))


def _tools(name: str) -> st.SearchStrategy[ToolSketch]:
    return st.builds(
        ToolSketch,
        st.just(name),
        replay=st.sampled_from(get_args(Replay)),
        approval=st.sampled_from(("none", "none", "required", 1, 3)),
        sequential=st.booleans(),
        gives=st.sampled_from(("done", "", 0, None, False, [], {"id": 7})),
        fails=st.sampled_from(("", "", "", "out of order")),
        pauses=st.sampled_from((0, 0, 1, 3)),
        knows=st.sampled_from((None, None, Happened("done"), DidNotHappen())),
        ends=st.sampled_from((False, False, False, True)),
    )


def agents(*, min_tools: int = 0) -> st.SearchStrategy[Sketch]:
    """Agents without a conversation."""
    return st.builds(Sketch, tool_sets(min_size=min_tools), st.integers(0, 2))


def replies(tools: tuple[ToolSketch, ...] = ()) -> st.SearchStrategy[AssistantMessage]:
    """Answers of a model that has *tools*: text, calls in parallel, calls of nothing, calls with broken arguments."""
    says = st.builds(
        AssistantMessage,
        st.lists(_said(), max_size=2).map(tuple),
        st.sampled_from(("stop",) * 9 + ("length", "refusal", "content_filter")),
        _usages(),
    )
    if not tools:
        return says
    calls = st.builds(
        ToolCall,
        st.sampled_from(("", "c1", "c2")),
        st.sampled_from([each.name for each in tools] * 8 + ["no such tool"]),
        st.sampled_from(("{}", '{"n":1}', '{"n":"2"}', "", "null") * 3 + ('{"n":[]}', "[]", '{"n":')),
    )
    acts = st.builds(
        lambda said, called, stop, usage: AssistantMessage((*said, *called), stop, usage),
        st.lists(_said(), max_size=1),
        st.lists(calls, min_size=1, max_size=4),
        st.sampled_from(("tool_calls",) * 9 + ("stop", "length")),
        _usages(),
    )
    return acts | acts | says


@cache
def _said() -> st.SearchStrategy[Part]:
    texts = st.text(max_size=12)
    return st.builds(Text, texts) | st.builds(Reasoning, texts, st.none() | st.just("sig")) | st.builds(Refusal, texts)


@cache
def _usages() -> st.SearchStrategy[Usage]:
    return st.builds(lambda given, taken: Usage(0, given, taken), st.integers(0, 9), st.integers(0, 9))


def conversations(tools: tuple[ToolSketch, ...]) -> st.SearchStrategy[tuple[AssistantMessage, ...]]:
    """What a model with *tools* says, turn by turn; it ends with plain text, the answer of the run."""
    ending = st.sampled_from(("done", "fertig ✓")).map(AssistantMessage)
    return st.builds(lambda said, last: (*said, last), st.lists(replies(tools), min_size=1, max_size=4), ending)


def sketches() -> st.SearchStrategy[Sketch]:
    """Agents with tools, a conversation, and code of their own that has a say in it."""
    turns = st.frozensets(st.integers(2, 5), max_size=2)
    rarely = st.sampled_from((False, False, True))
    return tool_sets(min_size=1).flatmap(
        lambda tools: st.builds(
            Sketch,
            st.just(tools),
            st.integers(0, 2),
            conversations(tools),
            stops=turns,
            adds=turns,
            blocks=rarely,
            hides=rarely,
            at_once=st.sampled_from((None, None, 1, 2)),
        )
    )


def chunkings() -> st.SearchStrategy[int | None]:
    """Into how many characters at a time an answer is cut; None leaves its parts whole."""
    return st.none() | st.integers(1, 7)


def transcripts() -> st.SearchStrategy[list[Message]]:
    """Valid transcripts, with images and files: each answer's calls are followed by their results, in order."""
    users = st.text(min_size=1, max_size=8).flatmap(_shown).map(lambda parts: [UserMessage(parts)])
    turns = replies(
        (ToolSketch("add"), ToolSketch("pay")),
    ).flatmap(lambda answer: st.tuples(st.just(answer), *[_results(each) for each in answer.calls]))
    return st.builds(
        lambda first, more: [*first, *[message for some in more for message in some]],
        users,
        st.lists(users | turns.map(list), max_size=4),
    )


def _results(call: ToolCall) -> st.SearchStrategy[ToolMessage]:
    said = st.text(max_size=8).flatmap(_shown)
    return st.builds(ToolMessage, st.just(call.id), st.just(call.name), said, st.booleans())


def _shown(said: str) -> st.SearchStrategy[tuple[Part, ...]]:
    shown: st.SearchStrategy[list[Image | File]] = st.lists(images() | files(), min_size=1, max_size=2)
    return st.just((Text(said),)) | shown.map(lambda more: (Text(said), *more))


@cache
def images() -> st.SearchStrategy[Image]:
    """Images by value and by address."""
    kinds = st.sampled_from(("image/png", "image/gif"))
    return st.builds(Image, kinds, data=_base64()) | st.builds(Image, kinds, url=st.text(max_size=12))


@cache
def files() -> st.SearchStrategy[File]:
    """Files by value, by address and by the id that a provider gave: of text, of pages, of anything."""
    kinds = st.sampled_from(("application/pdf", "text/plain", "application/zip"))
    names, places = st.none() | st.text(max_size=8), st.text(max_size=12)
    return (
        st.builds(File, kinds, data=_base64(), name=names)
        | st.builds(File, kinds, url=places, name=names)
        | st.builds(File, kinds, id=places, name=names)
    )


def _base64() -> st.SearchStrategy[str]:
    return st.binary(max_size=9).map(lambda data: b64encode(data).decode())


def decisions() -> st.SearchStrategy[Decision]:
    """Answers of somebody who may decide over a call, some without the level that it takes."""
    who = st.none() | st.just("ada")
    return st.builds(Decision, st.booleans(), who, st.sampled_from(("", "too dear")), st.none() | st.integers(0, 3))


def steering() -> st.SearchStrategy[Steer | FollowUp]:
    """Messages to a run while it works."""
    messages = st.text(min_size=1, max_size=8).map(UserMessage)
    ids, batches = st.none() | st.sampled_from(("m1", "m2")), st.none() | st.just("b")
    return st.builds(Steer, messages, ids) | st.builds(FollowUp, messages, ids, batches)


@cache
def words(effect_ids: tuple[str, ...] = ("r:1.0",)) -> st.SearchStrategy[Word]:
    """Words of every kind to a run in which these effects, and one that is nobody's, may be spoken of."""
    effects = st.sampled_from((*effect_ids, "r:9.9"))
    who = st.none() | st.just("ada")
    digests = st.sampled_from((None, None, None, "0" * 64))
    return (
        st.builds(Approve, effects, digests, who, st.none() | st.integers(0, 3))
        | st.builds(Deny, effects, st.sampled_from(("", "too dear")), who)
        | st.builds(Resolve, effects, st.booleans(), json_values(), who)
        | st.builds(Cancel, st.sampled_from(("", "enough")), who)
        | st.builds(Withdraw, st.sampled_from(("m1", "m2")))
        | st.builds(LateResult, effects, json_values(), st.booleans())
        | steering()
    )


@cache
def model_failures() -> st.SearchStrategy[tuple[ModelErrorKind, bool]]:
    """How a request to a model may fail: its kind, and whether it is worth another try."""
    return st.tuples(st.sampled_from(get_args(ModelErrorKind)), st.booleans())


def fact_of(kind: type[facts.Fact]) -> st.SearchStrategy[facts.Fact]:
    """Facts of one kind, with anything in them that their fields may hold, whether or not it could ever be true."""
    return cast("st.SearchStrategy[facts.Fact]", _of(kind))


@cache
def every_fact() -> st.SearchStrategy[facts.Fact]:
    """Facts of every kind; see `fact_of`."""
    return st.one_of([fact_of(kind) for kind in get_args(facts.Fact)])


def _of(declared: object) -> st.SearchStrategy[object]:
    """Values of a type that a fact may hold, read from its annotations as they are written."""
    if declared in _PLAIN:
        return _PLAIN[declared]
    if declared in (Image, File):
        return images() if declared is Image else files()
    if get_origin(declared) is Literal:
        return st.sampled_from(get_args(declared))
    if get_origin(declared) is tuple:
        return st.lists(_of(get_args(declared)[0]), max_size=3).map(tuple)
    if get_origin(declared) is Mapping:
        return st.dictionaries(*[_of(each) for each in get_args(declared)], max_size=3)
    if get_args(declared):
        return st.one_of([_of(each) for each in get_args(declared)])
    assert isinstance(declared, type)
    hints = get_type_hints(declared)
    return st.builds(declared, **{each.name: _of(hints[each.name]) for each in fields(declared) if each.init})


_PLAIN: dict[object, st.SearchStrategy[object]] = {
    object: json_values(),
    str: st.text(max_size=12),
    bool: st.booleans(),
    int: st.integers(0, 2**53),
    float: st.floats(0, 2**40),
    NoneType: st.none(),
}
