"""The agent turn that never pays twice: `await run_agent(definition, input, ports)`."""

from turnwright.definition import AgentDefinition, Block, CallView, Go, Limits, Rewrite, RunCall, Stop, TurnView
from turnwright.errors import (
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
from turnwright.replay import Divergence, Replay, replay_agent
from turnwright.run import resume_agent, run_agent, run_agent_sync
from turnwright.streaming import AgentStream, stream_agent
from turnwright.tools import DidNotHappen, Happened, Tool, ToolContext, ToolOutput, tool
from turnwright.wiring import Ports

__all__ = [
    "AgentDefinition",
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
