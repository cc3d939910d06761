"""`turnwright chat`: a conversation on a terminal. Each line is a run, and the model sees the runs before it.

What was said is kept in this process alone, and reaches the model through the context port.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import Final

from attrs import evolve as replace, frozen

from turnwright.cli.attended import Answer, attend
from turnwright.cli.console import Screen
from turnwright.cli.exits import COMPLETED, CommandError, exit_code, worst
from turnwright.cli.loading import load
from turnwright.cli.loop import EventLoop
from turnwright.cli.models import Answers, choose
from turnwright.cli.run import tell
from turnwright.cli.stores import open_state
from turnwright.definition import AgentDefinition
from turnwright.messages import Message
from turnwright.wiring import Ports

__all__ = ["ChatCommand", "chat"]

HINT: Final = "Ctrl-C interrupts an answer; /exit or Ctrl-D ends the conversation."


@frozen(kw_only=True)
class ChatCommand:
    """What `turnwright chat` was told."""

    target: str | None
    answers: Answers
    max_turns: int
    answer: Answer
    state: str | None


class Conversation:
    """All that was said in earlier runs, as a context port: the model sees it before the messages of the run."""

    def __init__(self) -> None:
        self._said: list[Message] = []

    async def prepare(self, messages: Sequence[Message], budget: int | None) -> Sequence[Message]:
        """Return everything, from the first line on."""
        return [*self._said, *messages]

    def keep(self, transcript: Sequence[Message]) -> None:
        """Remember a run, also one that was interrupted: what its tools did has happened."""
        self._said += transcript


def chat(command: ChatCommand, *, loop: EventLoop, screen: Screen) -> int:
    """Do *command* and return its exit code: 0 for a person, the worst of the runs for a script."""
    if command.target is None:
        definition, recording = AgentDefinition("chat", "You are a helpful assistant."), None
    else:
        target = load(command.target)
        definition, recording = target.definition, target.recording
    if definition.input_schema.document.get("type") != "string":
        raise CommandError(f"chat needs an agent that takes text, and {definition.name!r} takes something else")
    state = None if command.state is None else open_state(command.state, loop=loop)
    name, model = choose(command.answers, recording, loop=loop, screen=screen)
    attentive = screen.can_ask
    if attentive:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - gives input() its line editing and history
        screen.note(f"{definition.name} with {name}. {HINT}")
    conversation = Conversation()
    ports = Ports(model=model, context=conversation)
    if state is not None:
        ports = replace(ports, state=state)
    codes = []
    while (line := _read(screen, attentive=attentive)) is not None:
        attended = attend(
            *(definition, line, ports),
            loop=loop,
            screen=screen,
            answer=command.answer,
            max_turns=command.max_turns,
            require="none" if state is None else "process",
        )
        tell(attended.outcome, attended.seconds, definition=definition, screen=screen)
        conversation.keep(attended.outcome.transcript)
        codes.append(exit_code(attended.outcome))
    return COMPLETED if attentive else worst(codes)


def _read(screen: Screen, *, attentive: bool) -> str | None:
    """Return the next line that says something, None at the end."""
    while True:
        try:
            line = input("> ") if attentive else sys.stdin.readline()
        except EOFError:
            line = ""
            screen.note("")
        except KeyboardInterrupt:
            if not attentive:
                raise
            screen.note(f"\n{HINT}")
            continue
        else:
            if attentive:
                line += "\n"
        if not line or line.strip() in {"/exit", "/quit"}:
            return None
        if line.strip():
            return line.strip()
