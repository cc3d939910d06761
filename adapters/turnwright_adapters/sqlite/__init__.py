"""Durable runs in one SQLite file, with nothing but the standard library."""

from turnwright_adapters.sqlite.state import Content, SqliteState

__all__ = ["Content", "SqliteState"]
