"""Durable runs in a Postgres database, for any number of hosts: runs, budgets and keys. It needs the extra `postgres`.

    PostgresState         the state port: journal, evidence, inbox, leases
    PostgresBudgets       the budgets port
    PostgresIdempotency   the idempotency port

All three may name the same database and schema, and then share its connections.
"""

from turnwright.errors import MissingExtra

try:
    import psycopg as _psycopg  # noqa: F401 - asked for here, so that the answer names the extra
except ImportError as error:
    raise MissingExtra("postgres", "psycopg") from error

from turnwright_adapters._kept import Content
from turnwright_adapters.postgres.budgets import PostgresBudgets
from turnwright_adapters.postgres.idempotency import PostgresIdempotency
from turnwright_adapters.postgres.state import PostgresState

__all__ = ["Content", "PostgresBudgets", "PostgresIdempotency", "PostgresState"]
