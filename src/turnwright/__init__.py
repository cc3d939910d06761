"""The agent turn that never pays twice."""
