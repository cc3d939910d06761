"""What tests of agents need: scripted and recorded models, clocks and ids that a test can foresee, crashes."""

from turnwright.memory import FixedClock, SequentialIds
from turnwright.testing.models import Fails, RecordedModel, Reply, ScriptedModel, call, fails, text

__all__ = ["Fails", "FixedClock", "RecordedModel", "Reply", "ScriptedModel", "SequentialIds", "call", "fails", "text"]
