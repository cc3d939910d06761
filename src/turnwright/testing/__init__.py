"""What tests of agents need: scripted and recorded models, clocks and ids that a test can foresee, crashes, and whole
worlds.
"""

from turnwright.memory import FixedClock, SequentialIds
from turnwright.testing.crashes import CrashReport, Fault, Violation, explore_crashes
from turnwright.testing.models import Fails, RecordedModel, Reply, ScriptedModel, call, fails, text
from turnwright.testing.simulation import Simulation, simulate
from turnwright.testing.watched import Law

__all__ = [
    "CrashReport",
    "Fails",
    "Fault",
    "FixedClock",
    "Law",
    "RecordedModel",
    "Reply",
    "ScriptedModel",
    "SequentialIds",
    "Simulation",
    "Violation",
    "call",
    "explore_crashes",
    "fails",
    "simulate",
    "text",
]
