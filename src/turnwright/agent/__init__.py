"""The stateful face of the engine: a conversation that owns its transcript, its queues and its listeners."""

from turnwright.agent.agent import Agent, Receipt
from turnwright.agent.hooks import NextTurn, Signal, ToolCallContext, TurnContext
from turnwright.agent.loop import (
    AgentEvents,
    LoopOptions,
    agent_loop,
    agent_loop_continue,
    run_agent_loop,
    run_agent_loop_continue,
)
from turnwright.agent.queues import Queued, QueueMode
from turnwright.agent.state import AgentState

__all__ = [
    "Agent",
    "AgentEvents",
    "AgentState",
    "LoopOptions",
    "NextTurn",
    "QueueMode",
    "Queued",
    "Receipt",
    "Signal",
    "ToolCallContext",
    "TurnContext",
    "agent_loop",
    "agent_loop_continue",
    "run_agent_loop",
    "run_agent_loop_continue",
]
