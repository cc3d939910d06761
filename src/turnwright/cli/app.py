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
from turnwright.cli.models import DEFAULT, PROVIDERS, Answers
from turnwright.cli.run import RunCommand, run
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
        state=state,
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
) -> Work:
    """Talk with an agent, one line at a time. The conversation ends with the process.

    Ctrl-C interrupts an answer; /exit or Ctrl-D ends the conversation. Exit codes are those of run.
    """
    command = ChatCommand(
        target=target,
        answers=Answers(name=model, record=record, replay=replay),
        max_turns=max_turns,
        answer=_answer(yes=yes, no=no),
        state=state,
    )
    return lambda loop, screen: chat(command, loop=loop, screen=screen)


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
