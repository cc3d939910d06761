"""One conformance suite per port, to subclass."""
