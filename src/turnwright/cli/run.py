"""`turnwright run`: take the inputs to their outcomes, one after another, and tell how each stands."""

from __future__ import annotations

from attrs import frozen

from turnwright.cli.attended import Answer, attend
from turnwright.cli.console import Screen
from turnwright.cli.exits import INTERRUPTED, exit_code, worst
from turnwright.cli.loading import load
from turnwright.cli.loop import EventLoop
from turnwright.cli.models import Answers, choose
from turnwright.cli.reports import as_json, explanation, next_words, summary
from turnwright.cli.stores import Store
from turnwright.definition import AnyDefinition
from turnwright.outcomes import Completed, Outcome, Suspended
from turnwright.wiring import Ports

__all__ = ["RunCommand", "run", "tell", "tell_next"]


@frozen(kw_only=True)
class RunCommand:
    """What `turnwright run` was told."""

    target: str
    input: str
    answers: Answers
    all: bool
    max_turns: int
    answer: Answer
    store: Store | None
    json: bool


def run(command: RunCommand, *, loop: EventLoop, screen: Screen) -> int:
    """Do *command* and return its exit code."""
    target = load(command.target)
    inputs = target.inputs(command.input, all=command.all)
    state = None if command.store is None else command.store.open(loop=loop)
    name, model = choose(command.answers, target.recording, loop=loop, screen=screen)
    screen.note(f"{target.definition.name} with {name}")
    if target.definition.output_spec is not None:
        screen.text_style = "dim"
    ports = Ports(model=model) if state is None else Ports(model=model, state=state)
    results: list[tuple[str, Outcome[object]]] = []
    codes = []
    for label, value in inputs:
        if label:
            screen.label(label)
        attended = attend(
            *(target.definition, value, ports),
            loop=loop,
            screen=screen,
            answer=command.answer,
            max_turns=command.max_turns,
            require="none" if state is None else "process",
        )
        outcome, seconds = attended.outcome, attended.seconds
        tell(outcome, seconds, definition=target.definition, screen=screen, kept=state is not None)
        if command.store is not None:
            tell_next(outcome, target=command.target, store=command.store, screen=screen)
        if command.json:
            line = as_json(target.definition, outcome, label=label, model=name, seconds=seconds)
            screen.answer(line)
        results.append((label, outcome))
        codes.append(exit_code(outcome))
        if attended.interrupted and (isinstance(outcome, Suspended) or len(results) < len(inputs)):
            codes.append(INTERRUPTED)
            break
    written = target.write(command.input, results)
    if written is not None:
        screen.note(f"written: {written}")
    return worst(codes)


def tell_next(outcome: Outcome[object], *, target: str, store: Store, screen: Screen) -> None:
    """Name a run that is kept, and the commands that go on with it."""
    screen.note(f"run {outcome.run_id}")
    for words in next_words(outcome, target=target, store=store):
        screen.note(f"  {words}")


def tell(
    outcome: Outcome[object], seconds: float, *, definition: AnyDefinition, screen: Screen, kept: bool = False
) -> None:
    """Show what a run gave, or why it gave nothing and what can be done."""
    match outcome:
        case Completed(output=output) if definition.output_spec is not None:
            screen.output(definition.output_schema.dump(output))
        case Suspended(pending=pending):
            for each in pending:
                screen.pending(each)
        case _:
            pass
    screen.note(summary(outcome, seconds=seconds))
    if why := explanation(outcome, kept=kept):
        screen.error(why)
