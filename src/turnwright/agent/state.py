"""What an agent is at the moment. The first five fields are for its owner to change, the others tell what goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from turnwright.messages import AssistantMessage, Message
from turnwright.ports import Model
from turnwright.tools import Tool, tool

__all__ = ["AgentState"]


class AgentState:
    """System prompt, model, thinking level, tools and transcript; and what the run that goes on is at.

    `tools` and `messages` copy what they are given and give what they hold.
    """

    def __init__(
        self,
        model: Model,
        system_prompt: str,
        thinking_level: str,
        tools: Sequence[Tool[..., object] | Callable[..., object]],
        messages: Sequence[Message],
    ) -> None:
        self.model = model
        self.system_prompt = system_prompt
        self.thinking_level = thinking_level
        self.tools = tools
        self.is_streaming = False
        """Whether the agent works; until every listener has heard of the end."""
        self.messages = messages
        self.pending_tool_calls: frozenset[str] = frozenset()
        """The ids of the calls that run. Each change makes a new set."""
        self.error_message: str | None = None
        """What went wrong in the last run."""
        self._streaming: Callable[[], Message | None] | None = None

    @property
    def tools(self) -> list[Tool[..., object]]:
        """What the model may call, from the next prompt on."""
        return self._tools

    @tools.setter
    def tools(self, tools: Sequence[Tool[..., object] | Callable[..., object]]) -> None:
        self._tools = [each if isinstance(each, Tool) else tool(each) for each in tools]

    @property
    def messages(self) -> list[Message]:
        """All that was said. A change is kept in this process alone, and counts from the next prompt on."""
        return self._messages

    @messages.setter
    def messages(self, messages: Sequence[Message]) -> None:
        self._messages = [*messages]
        if not self.is_streaming:
            self._answer: AssistantMessage | None = None

    @property
    def streaming_message(self) -> Message | None:
        """The message that is being said, as far as it has come."""
        return None if self._streaming is None else self._streaming()

    @property
    def last_answer(self) -> AssistantMessage | None:
        """The newest message of the model, also where somebody took it out of the transcript while its tools run."""
        if self._answer is not None:
            return self._answer
        return next((each for each in reversed(self._messages) if isinstance(each, AssistantMessage)), None)

    def streams(self, message: Callable[[], Message | None] | None) -> None:
        """A message is being said: *message* gives what there is of it; None: it is over."""
        self._streaming = message

    def append(self, message: Message) -> None:
        """A message is complete."""
        self._messages.append(message)
        if isinstance(message, AssistantMessage):
            self._answer = message

    def forget(self) -> None:
        """Forget what was said and what went wrong."""
        self._messages = []
        self._answer = None
        self.error_message = None
        self._streaming = None
        self.pending_tool_calls = frozenset()
