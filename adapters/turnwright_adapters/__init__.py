"""Adapters: one module per means, named for it; none imports another."""
