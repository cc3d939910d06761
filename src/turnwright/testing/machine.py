"""A Hypothesis state machine over the decider: history in, decision out, no event loop and no port.

    TestDecider = DeciderMachine.TestCase
    TestDecider.settings = settings(max_examples=200, stateful_step_count=50)

It draws an agent and plays the world: commands end in any fact that they may end in, in any order, or in none because
their performer died; people say anything at any time; the run is interrupted and resumed. After every step the rules
of the decider are checked, and at the end the world turns kind and the run must come to its end. Needs
`pip install 'turnwright[testing]'`, and is imported by its own path.
"""

from __future__ import annotations

from collections import Counter
from typing import assert_never

from turnwright.errors import MissingExtra

try:
    from hypothesis import strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
except ImportError as error:
    raise MissingExtra("testing", "hypothesis") from error

from turnwright import journal
from turnwright.commands import (
    AdmitCalls,
    AskModel,
    CheckOutput,
    Command,
    ConsultBoundary,
    ExecuteCall,
    Reconcile,
    RequestApproval,
)
from turnwright.decide import Rest, Wave, decide, may_resume, receive, resolution
from turnwright.facts import (
    ApprovalDecided,
    ApprovalRequested,
    BoundaryDecided,
    CallAdmitted,
    CallFinished,
    CallInDoubt,
    CallRefused,
    CallStarted,
    Fact,
    Fault,
    ModelAnswered,
    ModelFailed,
    OutputRejected,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunOpened,
    RunResumed,
    RunSuspended,
)
from turnwright.inbox import Approve, Resolve, Word
from turnwright.messages import AssistantMessage, Text, ToolMessage, UserMessage
from turnwright.ports import ModelRequest
from turnwright.state import RunState, evolve, fold
from turnwright.testing.strategies import Sketch, agents, model_failures, replies, words
from turnwright.tools import DidNotHappen, Happened, Tool

__all__ = ["DeciderMachine", "unpaired"]

DISTURBANCES = 6
"""How often a run is disturbed at most, so that the others come somewhere."""

DONE = (Text("done"),)

OFTEN = st.sampled_from((True,) * 7 + (False,))


def unpaired(request: ModelRequest) -> str:
    """What is wrong with the history of *request*, empty if nothing is: each answer's calls are followed by their
    results, one each, in their order; no other result is there; no message is without parts but an empty answer.
    """
    due: list[str] = []
    for place, message in enumerate(request.messages):
        if isinstance(message, ToolMessage):
            if not due or due.pop(0) != message.call_id:
                return f"message {place} is the result of no call, or out of order"
        elif due:
            return f"message {place} stands where the result of a call is missing"
        if isinstance(message, AssistantMessage):
            due = [call.id for call in message.calls]
        elif not message.parts:
            return f"message {place} is empty"
    return "the last calls have no result" if due else ""


class DeciderMachine(RuleBasedStateMachine):
    """Plays the world against the decider; see the module."""

    @initialize(sketch=agents(min_tools=1), max_turns=st.integers(1, 4))
    def open(self, sketch: Sketch, max_turns: int) -> None:
        """Open a run of a drawn agent."""
        self.sketch = sketch
        self.definition = sketch.definition()
        self.replies = replies(sketch.tools)
        self.facts: list[Fact] = []
        self.state = RunState()
        self.running: list[Command] = []
        self.position = 0
        self.disturbances = 0
        self.starts: Counter[tuple[int, int]] = Counter()
        self.effects: dict[tuple[int, int], str] = {}
        self.approved: dict[tuple[int, int], str] = {}
        opened = RunOpened(
            *("r", "drawn", self.definition.fingerprint, "go", (UserMessage("go"),)), *(max_turns, None, "salt")
        )
        self.note(opened)

    # --- what the engine does

    @precondition(lambda self: not self.running)
    @rule()
    def go_on(self) -> None:
        """Decide; note the intents and dispatch the commands. If the run waits, give it what it waits for."""
        if self.state.suspended is not None:
            self.help_on()
            return
        wave = decide(self.definition, self.state)
        if isinstance(wave, Wave):
            assert wave.facts or wave.commands, "a wave that does nothing"
            assert not (self.state.cancel and wave.commands), "a command after `cancel`"
            for fact in wave.facts:
                self.note(fact)
            for command in wave.commands:
                self.dispatch(command)

    def dispatch(self, command: Command) -> None:
        """Check what must be true of a command that goes out."""
        if isinstance(command, AskModel):
            asked = ModelRequest("r", command.turn, command.attempt, "", self.state.transcript)
            assert "" == unpaired(asked), unpaired(asked)
        if isinstance(command, ExecuteCall):
            tool = self.definition.toolbox[command.call.name]
            call = self.state.calls[command.call.index]
            assert command.call is call.admitted, "a call with other arguments than were admitted"
            assert call.started is not None, "an execution without an intent"
            assert command.effect_id == call.started.effect_id, "an execution under another effect id"
            assert self.starts[call.turn, call.index] <= (1 if tool.replay == "never" else tool.max_attempts)
            if tool.approval != "none":
                assert self.approved.get((call.turn, call.index)) == command.call.digest, "an execution without leave"
            others = [each for each in self.state.calls if each.started and not each.result and each is not call]
            for other in others:
                beside = self.definition.toolbox[other.part.name]
                assert not (tool.sequential or beside.sequential), "something beside a sequential call"
        self.running.append(command)

    # --- what the world does

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end_a_command(self, data: st.DataObject) -> None:
        """One of the running commands ends, in whatever it may end in."""
        command = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        for fact in self.facts_of(command, data):
            if not isinstance(fact, ApprovalDecided) or self.state.calls[fact.index].waits:
                self.note(fact)  # a word may have decided meanwhile, and the first answer counts

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end_every_command(self, data: st.DataObject) -> None:
        """All running commands end, in any order."""
        while self.running:
            self.end_a_command(data)

    @precondition(lambda self: self.state.ended is None)
    @rule(data=st.data(), waves=st.integers(1, 6))
    def work(self, data: st.DataObject, waves: int) -> None:
        """Nothing disturbs the engine for some waves."""
        for _ in range(waves):
            while self.running:
                self.end_a_command(data)
            self.go_on()

    def facts_of(self, command: Command, data: st.DataObject) -> list[Fact]:
        """Facts in which *command* may end."""
        match command:
            case AskModel():
                if data.draw(OFTEN):
                    answer = data.draw(self.replies)
                    return [ModelAnswered(command.turn, command.attempt, answer, 0.0)]
                kind, retryable = data.draw(model_failures())
                return [ModelFailed(command.turn, command.attempt, kind, "no luck", retryable, 0.0)]
            case AdmitCalls():
                return [self.admission(command.turn, index, part.name, data) for index, part in command.calls]
            case RequestApproval(call):
                approves = data.draw(st.sampled_from((None, True, False)))
                if approves is None:
                    return []
                return [ApprovalDecided(call.turn, call.index, approves, call.digest, None)]
            case ExecuteCall(call, attempt):
                ends: list[list[Fact]] = [
                    [CallFinished(call.turn, call.index, attempt, "done", DONE, False, 0.0)],
                    [CallFinished(call.turn, call.index, attempt, "broken", DONE, True, 0.0)],
                    [CallInDoubt(call.turn, call.index, attempt, "timed out")],
                    [],
                ]
                return data.draw(st.sampled_from(ends))
            case Reconcile(call):
                said = data.draw(st.sampled_from((Happened("done"), DidNotHappen(), None)))
                if said is None:
                    return [CallInDoubt(call.turn, call.index, 0, "reconcile does not know")]
                return [resolution(self.tool(call.name), call.turn, call.index, said, by="reconcile")]
            case CheckOutput(turn, answer):
                outcomes: list[Fact] = [
                    RunCompleted(answer.text),
                    OutputRejected(turn, ("not like this",)),
                    RunFailed(Fault("check_output", "broken")),
                ]
                return [data.draw(st.sampled_from(outcomes))]
            case ConsultBoundary(turn):
                return [BoundaryDecided(turn, "auto")]
            case _:
                assert_never(command)

    def admission(self, turn: int, index: int, name: str, data: st.DataObject) -> Fact:
        """A call is admitted under its tool's contract, or refused."""
        tool = self.tool(name)
        if tool is None or not data.draw(OFTEN):
            return CallRefused(turn, index, "validate", "not like this")
        needs = 0 if tool.approval == "none" else 1 if tool.approval == "required" else tool.approval
        assert isinstance(needs, int)
        return CallAdmitted(turn, index, name, {"n": index}, f"digest of {turn}.{index}", needs)

    def tool(self, name: str) -> Tool[..., object] | None:
        """The tool of that name, if the agent has one."""
        return self.definition.toolbox.get(name)

    @precondition(lambda self: self.running and self.disturbances < DISTURBANCES)
    @rule()
    def die(self) -> None:
        """The process dies; another folds what was written."""
        self.disturbances += 1
        self.running.clear()
        self.state = fold(self.facts)
        if not self.at_rest:
            self.note(RunResumed(self.state.max_turns, None))

    @precondition(lambda self: self.state.ended is None and self.disturbances < DISTURBANCES)
    @rule(data=st.data())
    def say(self, data: st.DataObject) -> None:
        """Somebody says something to the run."""
        self.disturbances += 1
        effects = tuple([self.state.effect_id(each.turn, each.index) for each in self.state.calls])
        self.take(data.draw(words(effects)))

    def take(self, word: Word) -> None:
        """Fold a word of the inbox."""
        self.position += 1
        for fact in receive(self.definition, self.state, self.position, word, now=0.0):
            self.note(fact)

    @precondition(lambda self: not self.at_rest and self.disturbances < DISTURBANCES)
    @rule()
    def interrupt(self) -> None:
        """The process is asked to stop, and writes that it did."""
        self.disturbances += 1
        self.running.clear()
        self.note(RunSuspended("cancelled"))

    @precondition(lambda self: self.state.suspended is not None)
    @rule(more=st.integers(0, 2))
    def resume(self, more: int) -> None:
        """Somebody wants the run to go on."""
        turns = self.state.max_turns + more
        if may_resume(self.definition, self.state, max_turns=turns, now=0.0, deadline=None):
            self.note(RunResumed(turns, None))

    # --- what must always be true

    @property
    def at_rest(self) -> bool:
        """Whether the run ended or waits."""
        return self.state.ended is not None or self.state.suspended is not None

    def note(self, fact: Fact) -> None:
        """Fold one fact, as it is after a journal."""
        kind, body = type(fact).__name__, journal.encode(fact)[1]
        fact = journal.decode(kind, journal.VERSION, body, position=len(self.facts) + 1)
        self.facts.append(fact)
        evolve(self.state, fact)
        match fact:
            case CallStarted(turn, index, _, effect_id):
                self.starts[turn, index] += 1
                assert effect_id == self.effects.setdefault((turn, index), effect_id), "two ids of one effect"
            case ApprovalRequested(turn, index, effect_id):
                assert effect_id == self.effects.setdefault((turn, index), effect_id), "two ids of one effect"
            case ApprovalDecided(turn, index, True, digest):
                self.approved[turn, index] = digest
            case RunCancelled(in_doubt):
                doubted = [each for each in self.state.calls if each.started is not None and each.result is None]
                assert {self.effects[each.turn, each.index] for each in doubted} == {*in_doubt}, "a doubt is not told"
            case _:
                pass

    @invariant()
    def deciding_is_total_and_pure(self) -> None:
        """The same state gives the same answer, and is as it was; at rest means ended or suspended."""
        before = seen(self.state)
        first = decide(self.definition, self.state)
        assert first == decide(self.definition, self.state)
        assert before == seen(self.state)
        assert self.at_rest == isinstance(first, Rest)

    @invariant()
    def folding_at_once_gives_the_same(self) -> None:
        """Step by step or all at once: the same facts, the same state."""
        assert seen(fold(self.facts)) == seen(self.state)

    @invariant()
    def nothing_of_past_turns_is_kept_but_what_was_said(self) -> None:
        """So a step costs the same however many were before it."""
        state = self.state
        assert {each.turn for each in state.calls} <= {state.turn}
        assert state.open_calls == len([each for each in state.calls if each.result is None])
        assert len(state.failures) <= len(self.sketch.tools) + 1
        assert not {*state.steering} & {*state.follow_ups}

    def teardown(self) -> None:
        """With a kind world, every open call is answered and the run comes to its end."""
        if not hasattr(self, "state"):
            return
        self.running.clear()
        for _ in range(200):
            if self.state.ended is not None:
                break
            self.help_on()
        assert self.state.ended is not None, "the run does not end"
        if isinstance(self.state.ended, RunCompleted):
            assert 0 == self.state.open_calls, "a run completed with an open call"

    def help_on(self) -> None:
        """Do the kindest thing that brings the run on."""
        state = self.state
        if state.suspended is not None:
            for call in state.calls:
                effect_id = state.effect_id(call.turn, call.index)
                if call.waits:
                    self.take(Approve(effect_id, level=3))
                elif call.doubt is not None and call.result is None:
                    self.take(Resolve(effect_id, happened=True, output="done"))
            turns = state.max_turns + 1
            assert may_resume(self.definition, state, max_turns=turns, now=0.0, deadline=None), "it cannot go on"
            self.note(RunResumed(turns, None))
            return
        wave = decide(self.definition, state)
        assert isinstance(wave, Wave)
        for fact in wave.facts:
            self.note(fact)
        for command in wave.commands:
            for fact in self.kind_facts(command):
                self.note(fact)

    def kind_facts(self, command: Command) -> list[Fact]:
        """The facts in which *command* ends in a kind world."""
        match command:
            case AskModel():
                return [ModelAnswered(command.turn, command.attempt, AssistantMessage("done"), 0.0)]
            case AdmitCalls():
                return [CallRefused(command.turn, index, "guard", "enough") for index, _ in command.calls]
            case RequestApproval(call):
                return [ApprovalDecided(call.turn, call.index, True, call.digest, None)]
            case ExecuteCall(call, attempt):
                return [CallFinished(call.turn, call.index, attempt, "done", DONE, False, 0.0)]
            case Reconcile(call):
                return [resolution(None, call.turn, call.index, Happened("done"), by="reconcile")]
            case CheckOutput(_, answer):
                return [RunCompleted(answer.text)]
            case ConsultBoundary(turn):
                return [BoundaryDecided(turn, "auto")]
            case _:
                assert_never(command)


def seen(state: RunState) -> tuple[str, tuple[object, ...]]:
    """All of a state, as a value to compare."""
    return repr(state), tuple(state.transcript)
