"""What tests of agents need: scripted and recorded models, clocks and ids that a test can foresee, crashes."""

from turnwright.memory import FixedClock, SequentialIds
from turnwright.testing.crashes import CrashReport, Fault, Violation, explore_crashes
from turnwright.testing.models import Fails, RecordedModel, Reply, ScriptedModel, call, fails, text

__all__ = [
    "CrashReport",
    "Fails",
    "Fault",
    "FixedClock",
    "RecordedModel",
    "Reply",
    "ScriptedModel",
    "SequentialIds",
    "Violation",
    "call",
    "explore_crashes",
    "fails",
    "text",
]
