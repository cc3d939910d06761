"""The agent turn that never pays twice: `await run_agent(definition, input, ports)`.

What a plain run does not need is imported when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from turnwright.definition import AgentDefinition, Block, CallView, Go, Limits, Rewrite, RunCall, Stop, TurnView
from turnwright.errors import (
    AgentError,
    DefinitionError,
    InvalidValue,
    Issue,
    JournalError,
    LostLease,
    MissingExtra,
    ModelError,
    PortError,
    RunBusy,
    RunError,
    RunMismatch,
    TurnwrightError,
    UnknownRun,
    UnusablePorts,
)
from turnwright.memory import EvidenceStream, MemoryState, combine_delta_sinks, combine_telemetry
from turnwright.outcomes import Cancelled, Completed, Failed, Outcome, Pending, Suspended
from turnwright.ports import Decision
from turnwright.run import resume_agent, run_agent, run_agent_sync
from turnwright.tools import DidNotHappen, Happened, Tool, ToolContext, ToolOutput, tool
from turnwright.wiring import Ports

if TYPE_CHECKING:
    from turnwright.agent import Agent
    from turnwright.replay import Divergence, Replay, replay_agent
    from turnwright.streaming import AgentStream, stream_agent

__all__ = [
    "Agent",
    "AgentDefinition",
    "AgentError",
    "AgentStream",
    "Block",
    "CallView",
    "Cancelled",
    "Completed",
    "Decision",
    "DefinitionError",
    "DidNotHappen",
    "Divergence",
    "EvidenceStream",
    "Failed",
    "Go",
    "Happened",
    "InvalidValue",
    "Issue",
    "JournalError",
    "Limits",
    "LostLease",
    "MemoryState",
    "MissingExtra",
    "ModelError",
    "Outcome",
    "Pending",
    "PortError",
    "Ports",
    "Replay",
    "Rewrite",
    "RunBusy",
    "RunCall",
    "RunError",
    "RunMismatch",
    "Stop",
    "Suspended",
    "Tool",
    "ToolContext",
    "ToolOutput",
    "TurnView",
    "TurnwrightError",
    "UnknownRun",
    "UnusablePorts",
    "combine_delta_sinks",
    "combine_telemetry",
    "replay_agent",
    "resume_agent",
    "run_agent",
    "run_agent_sync",
    "stream_agent",
    "tool",
]

_LATER = {
    "Agent": "agent",
    "AgentStream": "streaming",
    "Divergence": "replay",
    "Replay": "replay",
    "replay_agent": "replay",
    "stream_agent": "streaming",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        message = f"module 'turnwright' has no attribute {name!r}"
        raise AttributeError(message)
    value: object = getattr(import_module(f"turnwright.{_LATER[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
