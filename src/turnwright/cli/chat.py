"""`turnwright chat`: a conversation on a terminal, with the stateful agent.

    a line            is said; while the agent works, it steers: it is delivered at the next turn
    Ctrl-C            aborts the answer; what had come of it stays, and the conversation goes on
    /help             what else there is

Rule: the terminal is read line by line, by Python's line editing while the agent is idle, and as it comes while it
works; a question about an approval is never answered by what was typed before it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import mimetypes
import os
import sys
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Final

import msgspec
from attrs import frozen

from turnwright.agent import Agent, Signal
from turnwright.cli.attended import GRACE, Answer, approvals, decide
from turnwright.cli.console import Screen
from turnwright.cli.exits import COMPLETED, UNUSABLE, CommandError, exit_code, worst
from turnwright.cli.loading import load
from turnwright.cli.loop import EventLoop, interrupts
from turnwright.cli.models import Answers, choose
from turnwright.cli.run import tell
from turnwright.cli.stores import Store
from turnwright.cli.visible import one_line
from turnwright.definition import AgentDefinition
from turnwright.errors import AgentError
from turnwright.inbox import Approve, Deny
from turnwright.lifecycle import LifecycleEvent, MessageUpdate
from turnwright.messages import NO_USAGE, File, Image, Usage
from turnwright.outcomes import Outcome, Pending
from turnwright.ports import Decision
from turnwright.wiring import Ports

__all__ = ["ChatCommand", "chat"]

HINT: Final = "Ctrl-C interrupts an answer; /exit or Ctrl-D ends the conversation; /help says more."
HELP: Final = """\
/continue            go on without saying anything, also after a failure
/image PATH [TEXT]   show a picture, with a word on it
/file PATH [TEXT]    give a document to read, such as a PDF, with a word on it
/model NAME          let another model answer, as with -m
/tools               what the model may call
/usage               what was used so far
/save PATH           write the conversation to a new file, as JSON
/exit                end the conversation
A line that is typed while the agent works steers it."""
BYTES: Final = 20_000_000
"""The largest picture or document."""


@frozen(kw_only=True)
class ChatCommand:
    """What `turnwright chat` was told."""

    target: str | None
    answers: Answers
    max_turns: int
    answer: Answer
    store: Store | None
    session: str | None = None


def chat(command: ChatCommand, *, loop: EventLoop, screen: Screen) -> int:
    """Do *command* and return its exit code: 0 for a person, the worst of the answers for a script."""
    if command.target is None:
        definition, recording = AgentDefinition("chat", "You are a helpful assistant."), None
    else:
        target = load(command.target)
        definition, recording = target.definition, target.recording
    if definition.input_schema.document.get("type") != "string":
        raise CommandError(f"chat needs an agent that takes text, and {definition.name!r} takes something else")
    state = None if command.store is None else command.store.open(loop=loop)
    name, model = choose(command.answers, recording, loop=loop, screen=screen)
    agent = Agent(
        model,
        definition=definition,
        state=state,
        session_id=command.session or (None if state is None else Ports(model).ids.new_id()),
        ports=Ports(model, grace=GRACE),
        max_turns=command.max_turns,
    )
    conversation = Conversation(agent, definition, command, loop=loop, screen=screen)
    if screen.can_ask:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - gives input() its line editing and history
        screen.note(f"{definition.name} with {name}. {HINT}")
    if state is not None:
        screen.note(f"session {agent.session_id}")
    return conversation.hold()


class Conversation:
    """One conversation between a person, or a script, and an agent."""

    def __init__(
        self,
        agent: Agent,
        definition: AgentDefinition[str, str],
        command: ChatCommand,
        *,
        loop: EventLoop,
        screen: Screen,
    ) -> None:
        self._agent = agent
        self._definition = definition
        self._command = command
        self._loop = loop
        self._screen = screen
        self._used: dict[str, Usage] = {}
        self._ended = False
        agent.subscribe(self._show)

    def hold(self) -> int:
        """Talk until there is nothing more to read."""
        attentive = self._screen.can_ask
        codes: list[int] = []
        while not self._ended and (line := _read(self._screen, attentive=attentive)) is not None:
            try:
                work = self._meant(line)
                if work is not None:
                    codes.append(exit_code(self._attend(work)))
            except (AgentError, CommandError) as error:
                self._screen.error(str(error))
                codes.append(UNUSABLE)
        return COMPLETED if attentive else worst(codes)

    def _show(self, event: LifecycleEvent, signal: Signal) -> None:
        self._screen.show(event.delta if isinstance(event, MessageUpdate) else event)

    # --- saying something

    def _attend(self, work: Coroutine[object, object, Outcome[str]]) -> Outcome[str]:
        """Have the agent work, and ask about the calls that need it, each once."""
        asked: set[str] = set()
        seconds = 0.0
        while True:
            began = time.monotonic()
            outcome = self._loop.run(self._watch(work))
            seconds += time.monotonic() - began
            self._used[outcome.run_id] = outcome.usage
            decisions = self._decide(outcome, asked)
            if not decisions:
                tell(outcome, seconds, definition=self._definition, screen=self._screen)
                return outcome
            work = self._agent.continue_(decisions=decisions)

    def _decide(self, outcome: Outcome[str], asked: set[str]) -> dict[str, str | Decision]:
        decisions: dict[str, str | Decision] = {}
        for each in approvals(outcome):
            if each.effect_id not in asked:
                asked.add(each.effect_id)
                with contextlib.suppress(KeyboardInterrupt):
                    if (decision := self._ask(each)) is not None:
                        decisions[each.effect_id] = decision
        return decisions

    def _ask(self, pending: Pending) -> Decision | None:
        match decide(pending, self._screen, self._command.answer):
            case Approve(by=by, level=level):
                return Decision(approved=True, by=by, level=level)
            case Deny(by=by, reason=reason):
                return Decision(approved=False, by=by, reason=reason)
            case None:
                return None

    async def _watch(self, work: Coroutine[object, object, Outcome[str]]) -> Outcome[str]:
        task = asyncio.current_task()
        assert task is not None
        with interrupts(self._agent.abort, task.cancel), self._steered():
            return await work

    @contextlib.contextmanager
    def _steered(self) -> Iterator[None]:
        """Let the lines that are typed meanwhile steer the agent."""
        if not self._screen.can_ask:
            yield
            return
        loop, terminal = asyncio.get_running_loop(), sys.stdin.fileno()
        loop.add_reader(terminal, self._hear, terminal)
        try:
            yield
        finally:
            loop.remove_reader(terminal)

    def _hear(self, terminal: int) -> None:
        said = os.read(terminal, 65536).decode(errors="replace")
        if not said:
            self._ended = True
            asyncio.get_running_loop().remove_reader(terminal)
        for line in said.splitlines():
            if line.startswith("/"):
                self._screen.note("commands wait until the answer is there")
            elif line.strip():
                self._agent.steer(line.strip())
                self._screen.note(f"queued: {one_line(line.strip())}")

    # --- commands

    def _meant(self, line: str) -> Coroutine[object, object, Outcome[str]] | None:
        """What the agent is to do about *line*; None where there is nothing for it to do."""
        if not line.startswith("/"):
            return self._agent.prompt(line)
        command, _, rest = line.partition(" ")
        rest = rest.strip()
        match command:
            case "/continue":
                return self._agent.continue_()
            case "/image" | "/file":
                path, _, words = rest.partition(" ")
                shown = _image(path) if command == "/image" else _file(path)
                return self._agent.prompt(words.strip() or "What is this?", [shown])
            case "/model" if rest:
                answers = Answers(name=rest, record=None, replay=None)
                name, self._agent.state.model = choose(answers, None, loop=self._loop, screen=self._screen)
                self._screen.note(f"{name} answers from now on")
            case "/tools":
                self._tools()
            case "/usage":
                self._usage()
            case "/save" if rest:
                self._save(Path(rest))
            case "/help":
                self._screen.note(HELP)
            case _:
                raise CommandError(f"there is no {command!r} as it was given; /help says what there is")
        return None

    def _tools(self) -> None:
        for each in self._agent.state.tools:
            approval = "" if each.approval == "none" else " (asks for approval)"
            self._screen.note(f"{each.name}{approval}: {one_line(each.description)}")
        if not self._agent.state.tools:
            self._screen.note("no tools")

    def _usage(self) -> None:
        used = sum(self._used.values(), NO_USAGE)
        self._screen.note(
            f"{used.requests} requests, {used.input_tokens:,} tokens in, {used.output_tokens:,} out, "
            f"{used.cache_read_tokens:,} read from a cache, {used.tool_calls} tool calls"
        )

    def _save(self, path: Path) -> None:
        said = msgspec.json.format(msgspec.json.encode(self._agent.state.messages), indent=1)
        try:
            with path.open("xb") as file:
                file.write(said + b"\n")
        except OSError as error:
            raise CommandError(f"{path}: {error.strerror or error}; name a new file") from error
        self._screen.note(f"saved: {path}")


def _image(path: str) -> Image:
    kind, _ = mimetypes.guess_type(path)
    if kind is None or not kind.startswith("image/"):
        raise CommandError(f"{path or 'no path'!r} is no picture by its name; give a file such as photo.png")
    return Image(kind, data=_base64(path))


def _file(path: str) -> File:
    kind, _ = mimetypes.guess_type(path)
    if kind is None:
        raise CommandError(f"what {path or 'no path'!r} holds is not told by its name; give a file such as report.pdf")
    return File(kind, data=_base64(path), name=Path(path).name)


def _base64(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            data = file.read(BYTES + 1)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error
    if len(data) > BYTES:
        raise CommandError(f"{path}: larger than {BYTES:,} bytes")
    return base64.b64encode(data).decode()


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
