"""The servers that others wrote, one of each for the session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.judges.mocks import serving


@pytest.fixture(scope="session")
def aimock() -> Iterator[str]:
    """The address of `aimock`, started for the first test that needs it."""
    with serving() as address:
        yield address
