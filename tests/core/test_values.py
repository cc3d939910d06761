"""The core's frozen values are attrs classes to whoever looks, whenever they look."""

from __future__ import annotations

import copy
import pickle
import weakref

import attrs
import pytest
from attrs.exceptions import FrozenInstanceError

from turnwright.values import frozen


def _doubled(n: int) -> int:
    return 2 * n


@frozen
class Point:
    """A place."""

    x: int
    y: int = 0
    far: int = attrs.field(default=1, converter=_doubled)
    kind: str = attrs.field(default="point", init=False, repr=False)
    seen: object = attrs.field(factory=list, eq=False)

    def __attrs_post_init__(self) -> None:
        if self.x < 0:
            message = "x is at least 0"
            raise ValueError(message)


@frozen
class Named(Point):
    """A place with a name."""

    name: str = ""


class Marked(Named):
    """A plain class above a value."""

    def __init__(self, x: int) -> None:
        super().__init__(x, name="marked")


def test_it_is_made_compared_shown_and_copied_as_attrs_does_it() -> None:
    """Converters, factories, defaults, fields that are not given, and what runs after the rest."""
    point = Point(1, far=4)

    assert ("Point(x=1, y=0, far=8, seen=[])", "point") == (repr(point), point.kind)
    assert Point(1, far=4) == point != Point(1)
    assert 1 == len({point, Point(1, far=4)})
    assert Point(2, far=4) == attrs.evolve(point, x=2, far=4)
    assert ["x", "y", "far", "kind", "seen"] == [each.name for each in attrs.fields(Point)]
    with pytest.raises(ValueError, match="at least 0"):
        Point(-1)


def test_it_cannot_be_changed_and_holds_nothing_else() -> None:
    """A slotted class refuses new attributes as well as new values; a weak reference is all it allows."""
    point = Point(1)

    for name in ("x", "other"):
        with pytest.raises(FrozenInstanceError):
            setattr(point, name, 2)
    with pytest.raises(FrozenInstanceError):
        del point.x  # type: ignore[misc]
    assert not hasattr(point, "__dict__")
    assert point is weakref.ref(point)()


def test_it_survives_copying_and_pickling() -> None:
    """Both go around `__init__`."""
    point = Named(3, name="here")

    for again in (copy.copy(point), copy.deepcopy(point), pickle.loads(pickle.dumps(point))):
        assert point == again


def test_it_matches_by_position() -> None:
    """Fields in their order, a base's first, without those that are not given."""
    match Named(1, 2, 3, [], "here"):
        case Named(x, y, far, _, name):
            assert (1, 2, 6, "here") == (x, y, far, name)
        case _:
            pytest.fail("no match")


def test_the_first_instance_may_be_one_of_a_subclass() -> None:
    """Whether the subclass is a value or a plain class, each class is completed once."""

    @frozen
    class Base:
        n: int

    @frozen
    class Derived(Base):
        m: int = 0

    class Plain(Derived):
        """A plain class."""

    assert (1, 2) == (Plain(1, 2).n, Plain(3, 2).m)
    assert "marked" == Marked(1).name
    assert Derived(1, 2) == Derived(1, 2)
    assert Derived(1, 2) != Base(1)
