"""The commands and their options. Rule: this file knows the words of the command line, and nothing of what they do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import App, CycloptsError, Parameter
from cyclopts.validators import Number

from turnwright.cli.attended import Answer
from turnwright.cli.chat import ChatCommand, chat
from turnwright.cli.console import Screen
from turnwright.cli.exits import CommandError
from turnwright.cli.loop import EventLoop
from turnwright.cli.models import DEFAULT, Answers
from turnwright.cli.resume import ResumeCommand, resume
from turnwright.cli.run import RunCommand, run
from turnwright.cli.runs import RunsCommand, runs
from turnwright.cli.stores import Store
from turnwright.cli.why import WhyCommand, why
from turnwright.cli.words import CallWord, RunWord, say, say_about_call, spoken, value_of
from turnwright.heads import RunStatus
from turnwright.inbox import Approve, Cancel, Deny, Resolve, Steer
from turnwright.messages import UserMessage
from turnwright.models import PROVIDERS
from turnwright.run import MAX_TURNS

__all__ = ["Work", "parse"]

Work: TypeAlias = Callable[[EventLoop, Screen], int]

app = App(
    name="turnwright",
    help="Run agents from the command line.",
    version=lambda: f"turnwright {version('turnwright')}",
    help_format="plaintext",
    default_parameter=Parameter(negative=(), show_default=False),
)

MODEL_HELP = (
    f"The model that answers: local, or provider:model with one of {', '.join(PROVIDERS)}; the key is read from the "
    f"vendor's environment variable, and one such as OPENAI_BASE_URL moves a vendor to any server of its dialect. "
    f"Without it: {DEFAULT} if OPENAI_API_KEY is set, else local."
)

Model = Annotated[str | None, Parameter(name=["--model", "-m"], help=MODEL_HELP)]
Record = Annotated[Path | None, Parameter(help="Write what the model answers to this file, and replay what is in it.")]
Replay = Annotated[Path | None, Parameter(help="Take all answers from this recording, without a model.")]
MaxTurns = Annotated[
    int,
    Parameter(validator=Number(gte=1), help=f"How many answers of the model one run may take, {MAX_TURNS} without it."),
]
Yes = Annotated[bool, Parameter(help="Approve every call that needs approval.")]
No = Annotated[bool, Parameter(help="Deny every call that needs approval.")]
State = Annotated[
    str | None,
    Parameter(help="Where runs are kept: sqlite:PATH or postgresql://... Without it, in memory."),
]

Keys = Annotated[
    Path | None,
    Parameter(
        help="The file of the keys that seal what --state holds, one a line: a name, a blank and 64 hex digits. "
        "The last seals, each opens; put a new one at the end."
    ),
]
Kept = Annotated[str, Parameter(name="--state", help="Where runs are kept: sqlite:PATH or postgresql://...")]
Run = Annotated[str, Parameter(name="RUN", help="The id of the run.")]
Call = Annotated[str, Parameter(name="CALL", help="The call: its effect id, or turn.index.")]
By = Annotated[str | None, Parameter(help="Who says so, for the record; the user of this process without it.")]


@app.command(name="run")
def run_command(
    target: Annotated[str, Parameter(name="MODULE_OR_FILE[:definition]", help="The agent: its module, or its file.")],
    input: Annotated[
        str, Parameter(name="INPUT", help="What it is to work on; text, JSON, or what its module makes of it.")
    ],
    /,
    *,
    model: Model = None,
    all: Annotated[bool, Parameter(help="All inputs that the module finds in INPUT, not only the first few.")] = False,  # noqa: A002
    max_turns: MaxTurns = MAX_TURNS,
    yes: Yes = False,
    no: No = False,
    json: Annotated[bool, Parameter(help="One JSON object a run on the standard output, all else apart.")] = False,
    record: Record = None,
    replay: Replay = None,
    state: State = None,
    keys: Keys = None,
) -> Work:
    """Run an agent on an input and show its answer, its tool calls and their results as they happen.

    A call that needs approval is asked about on the terminal; without one it stays pending and is listed.

    Exit codes: 0 completed, 1 failed, 2 cannot be done as given, 3 suspended (it waits for somebody or something),
    4 cancelled, 130 interrupted by Ctrl-C. Of several runs the worst counts.
    """
    command = RunCommand(
        target=target,
        input=input,
        answers=Answers(name=model, record=record, replay=replay),
        all=all,
        max_turns=max_turns,
        answer=_answer(yes=yes, no=no),
        store=_store(state, keys),
        json=json,
    )
    return lambda loop, screen: run(command, loop=loop, screen=screen)


@app.command(name="chat")
def chat_command(
    target: Annotated[
        str | None, Parameter(name="MODULE_OR_FILE[:definition]", help="The agent; a plain assistant without it.")
    ] = None,
    /,
    *,
    model: Model = None,
    max_turns: MaxTurns = MAX_TURNS,
    yes: Yes = False,
    no: No = False,
    record: Record = None,
    replay: Replay = None,
    state: State = None,
    keys: Keys = None,
    session: Annotated[str | None, Parameter(help="The conversation in --state to go on with, or to begin.")] = None,
) -> Work:
    """Talk with an agent, one line at a time. The conversation ends with the process, unless --state keeps it.

    A line that is typed while the agent works steers it; Ctrl-C interrupts an answer; /help says what else there is;
    /exit or Ctrl-D ends the conversation. Exit codes are those of run.
    """
    command = ChatCommand(
        target=target,
        answers=Answers(name=model, record=record, replay=replay),
        max_turns=max_turns,
        answer=_answer(yes=yes, no=no),
        store=_store(state, keys),
        session=session,
    )
    return lambda loop, screen: chat(command, loop=loop, screen=screen)


@app.command(name="resume")
def resume_command(
    target: Annotated[str, Parameter(name="MODULE_OR_FILE[:definition]", help="The agent that began the run.")],
    run_id: Run,
    /,
    *,
    state: Kept,
    keys: Keys = None,
    model: Model = None,
    max_turns: Annotated[
        int | None, Parameter(validator=Number(gte=1), help="Raise how many answers of the model the run may take.")
    ] = None,
    yes: Yes = False,
    no: No = False,
    json: Annotated[bool, Parameter(help="One JSON object on the standard output, all else apart.")] = False,
    wait: Annotated[
        float,
        Parameter(validator=Number(gte=0), help="How many seconds to wait while another process has the run."),
    ] = 0.0,
    record: Record = None,
    replay: Replay = None,
) -> Work:
    """Go on with a run that waits, or whose process died, and show it as run does.

    Exit codes are those of run, and 5 while another process works on it: of two, one goes on and the other is told.
    What a killed process was working on is free 30 seconds after its last sign of life; --wait waits for it.
    """
    command = ResumeCommand(
        target=target,
        run_id=run_id,
        answers=Answers(name=model, record=record, replay=replay),
        max_turns=max_turns,
        answer=_answer(yes=yes, no=no),
        store=Store(state, keys),
        wait=wait,
        json=json,
    )
    return lambda loop, screen: resume(command, loop=loop, screen=screen)


@app.command(name="runs")
def runs_command(
    *,
    state: Kept,
    keys: Keys = None,
    status: Annotated[RunStatus | None, Parameter(help="Only those that stand so.")] = None,
    definition: Annotated[str | None, Parameter(help="Only those of the agent of this name.")] = None,
    since: Annotated[
        str | None, Parameter(help="Only those written to since then: 30m, 2h, 7d ago, or a date and time.")
    ] = None,
    limit: Annotated[int, Parameter(validator=Number(gte=1), help="How many at most, 100 without it.")] = 100,
    json: Annotated[bool, Parameter(help="One JSON object a run.")] = False,
) -> Work:
    """List the runs of a store, those that were written to last first."""
    command = RunsCommand(
        store=Store(state, keys), status=status, definition=definition, since=since, limit=limit, json=json
    )
    return lambda loop, screen: runs(command, loop=loop, screen=screen)


@app.command(name="why")
def why_command(
    run_id: Run,
    /,
    *,
    state: Kept,
    keys: Keys = None,
    json: Annotated[bool, Parameter(help="One JSON object, with everything in full.")] = False,
) -> Work:
    """Tell what happened in a run and what it waits for, from its journal and its evidence.

    Exit codes: 0 if the evidence holds together, 1 if it was changed somewhere.
    """
    command = WhyCommand(store=Store(state, keys), run_id=run_id, json=json)
    return lambda loop, screen: why(command, loop=loop, screen=screen)


@app.command(name="approve")
def approve_command(run_id: Run, call: Call, /, *, state: Kept, keys: Keys = None, by: By = None) -> Work:
    """Say yes to one call: exactly to the tool and the arguments that are shown, bound by their digest."""
    who = spoken(by)
    command = CallWord(
        store=Store(state, keys),
        run_id=run_id,
        call=call,
        kind="approval",
        word=lambda each: Approve(each.effect_id, each.digest, by=who, level=each.level),
        done=f"approved by {who}",
    )
    return lambda loop, screen: say_about_call(command, loop=loop, screen=screen)


@app.command(name="deny")
def deny_command(
    run_id: Run,
    call: Call,
    /,
    *,
    state: Kept,
    keys: Keys = None,
    reason: Annotated[str, Parameter(help="Why; the model is told.")] = "",
    by: By = None,
) -> Work:
    """Say no to one call. It never runs, and the run goes on."""
    who = spoken(by)
    command = CallWord(
        store=Store(state, keys),
        run_id=run_id,
        call=call,
        kind="approval",
        word=lambda each: Deny(each.effect_id, reason, by=who),
        done=f"denied by {who}",
    )
    return lambda loop, screen: say_about_call(command, loop=loop, screen=screen)


@app.command(name="resolve")
def resolve_command(
    run_id: Run,
    call: Call,
    /,
    *,
    state: Kept,
    keys: Keys = None,
    happened: Annotated[
        str | None,
        Parameter(help="It took effect and returned this: JSON, or else text."),
    ] = None,
    did_not_happen: Annotated[bool, Parameter(help="It did not take effect; the model may ask for it again.")] = False,
    agent: Annotated[
        str | None,
        Parameter(
            help="The agent that began the run, MODULE_OR_FILE[:definition]: what the call returned is then held "
            "against what its tool returns at once, and not at the resume."
        ),
    ] = None,
    by: By = None,
) -> Work:
    """Say what became of a call in doubt, after finding out where it would have taken effect."""
    if (happened is None) != did_not_happen:
        raise CommandError("say either --happened with what the call returned, or --did-not-happen")
    who = spoken(by)
    output = None if happened is None else value_of(happened)
    command = CallWord(
        store=Store(state, keys),
        run_id=run_id,
        call=call,
        kind="in-doubt",
        word=lambda each: Resolve(each.effect_id, happened is not None, output, by=who),
        done=f"resolved by {who}: it {'did not happen' if did_not_happen else 'happened'}",
        agent=agent,
    )
    return lambda loop, screen: say_about_call(command, loop=loop, screen=screen)


@app.command(name="cancel")
def cancel_command(
    run_id: Run,
    /,
    *,
    state: Kept,
    keys: Keys = None,
    reason: Annotated[str, Parameter(help="Why, for the record.")] = "",
    by: By = None,
) -> Work:
    """End a run: nothing new of it is started."""
    who = spoken(by)
    command = RunWord(store=Store(state, keys), run_id=run_id, word=Cancel(reason, who), done=f"cancelled by {who}")
    return lambda loop, screen: say(command, loop=loop, screen=screen)


@app.command(name="steer")
def steer_command(
    run_id: Run,
    text: Annotated[str, Parameter(name="TEXT", help="What the model is told next.")],
    /,
    *,
    state: Kept,
    keys: Keys = None,
) -> Work:
    """Say something to a run: the model hears it before its next answer."""
    command = RunWord(store=Store(state, keys), run_id=run_id, word=Steer(UserMessage(text)), done="said")
    return lambda loop, screen: say(command, loop=loop, screen=screen)


def parse(tokens: Sequence[str]) -> Work | None:
    """Return the work that *tokens* ask for; None if they asked for help, which was given. CommandError if neither."""
    try:
        work: Work | None = app(tokens, print_error=False, exit_on_error=False, result_action="return_value")
    except CycloptsError as error:
        raise CommandError(f"{error} (turnwright --help tells what there is)") from error
    return work


def _answer(*, yes: bool, no: bool) -> Answer:
    if yes and no:
        raise CommandError("--yes and --no exclude each other")
    return "yes" if yes else "no" if no else "ask"


def _store(name: str | None, keys: Path | None) -> Store | None:
    if name is None and keys is not None:
        raise CommandError("--keys seals what a store holds; name the store with --state")
    return None if name is None else Store(name, keys)
