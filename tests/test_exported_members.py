"""The package shows what it lists, and lists what it shows."""

from __future__ import annotations

from types import ModuleType

import turnwright


def test_the_exported_members_are_the_sorted_public_names() -> None:
    """`__all__` holds each public name of the package once, in plain order; submodules need not be listed."""
    public = [
        name
        for name in dir(turnwright)
        if not name.startswith("_") and not isinstance(getattr(turnwright, name), ModuleType)
    ]

    assert sorted(public) == list(getattr(turnwright, "__all__", []))
