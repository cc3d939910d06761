"""Durable runs in one SQLite file, with nothing but the standard library: runs, budgets and keys.

    SqliteState         the state port: journal, evidence, inbox, leases
    SqliteBudgets       the budgets port
    SqliteIdempotency   the idempotency port

All three may name the same file, and then share its writer and its fsyncs.
"""

from turnwright_adapters.sqlite.budgets import SqliteBudgets
from turnwright_adapters.sqlite.idempotency import SqliteIdempotency
from turnwright_adapters.sqlite.state import Content, SqliteState

__all__ = ["Content", "SqliteBudgets", "SqliteIdempotency", "SqliteState"]
