"""A schema has a closed form, that a provider can hold an answer to, or none."""

from __future__ import annotations

import pytest
from anthropic import transform_schema
from hypothesis import given, strategies as st

from tests.adapters.chat import Object, request, tool
from tests.adapters.test_anthropic import CLAUDE
from turnwright.definition import OutputSpec
from turnwright_adapters._wire.schemas import closed_form

TEXT: Object = {"type": "string"}
POINT: Object = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}

plain = st.sampled_from(
    [
        TEXT,
        {"type": "integer"},
        {"type": "null"},
        {"enum": ["a", 1, None]},
        {"const": "a"},
        {"type": "string", "format": "date", "description": "when"},
        {"$ref": "#/$defs/point"},
    ]
)


def wider(inner: st.SearchStrategy[Object]) -> st.SearchStrategy[Object]:
    """Schemas of which *inner* ones are parts."""
    objects = st.dictionaries(st.sampled_from("abc"), inner, min_size=1).map(
        lambda each: {"type": "object", "properties": each, "required": [*each], "title": "t"}
    )
    arrays = inner.map(lambda each: {"type": "array", "items": each, "minItems": 1})
    return objects | arrays | st.lists(inner, min_size=1, max_size=3).map(lambda each: {"anyOf": each})


@given(st.recursive(plain, wider, max_leaves=6))
def test_the_closed_form_is_the_vendors_own(schema: Object) -> None:
    """As the vendor's SDK makes it; what was given stays as it is."""
    whole = {"$defs": {"point": POINT}, "type": "object", "properties": {"it": schema}, "required": ["it"]}
    before = repr(whole)

    assert transform_schema(whole) == closed_form(whole)
    assert before == repr(whole)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": {"a": {}}},
        {"type": "object", "properties": {"a": TEXT}, "additionalProperties": TEXT},
        {"type": "array"},
        {"type": "array", "prefixItems": [TEXT], "items": False},
        {"allOf": [POINT]},
        {"enum": [{"a": 1}]},
        {"$ref": "https://example.com/schema"},
        {"$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}, "$ref": "#/$defs/tree"},
    ],
)
def test_what_cannot_be_closed_has_no_closed_form(schema: Object) -> None:
    """A map of anything, a tuple, a tree, and what has no type."""
    assert closed_form(schema) is None


def test_a_type_of_several_is_any_of_them_and_a_bound_is_left_out() -> None:
    """Bounds are checked when the answer is there."""
    schema: Object = {"type": ["string", "null"], "maxLength": 3, "description": "d"}

    assert {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "d"} == closed_form(schema)


@pytest.mark.parametrize(
    ("model", "schema", "native"),
    [
        ("claude-sonnet-4-5", POINT, True),
        ("claude-opus-4-1-20250805", POINT, True),
        ("claude-opus-5-5", POINT, True),
        ("claude-sonnet-4-20250514", POINT, False),
        ("claude-3-7-sonnet-latest", POINT, False),
        ("some-other", POINT, False),
        ("claude-sonnet-4-5", {"type": "object", "additionalProperties": TEXT}, False),
    ],
)
async def test_an_output_is_asked_for_in_the_best_way_that_the_model_has(
    model: str, schema: Object, native: bool
) -> None:
    """Held to, beside tools too, where the model can do that and the schema has a closed form; else in words."""
    asked = request(output=OutputSpec("point", schema), tools=(tool("f"),), options={"model": model})

    body = await CLAUDE.sent(asked)

    told = {"format": {"type": "json_schema", "schema": closed_form(schema)}} if native else None
    assert (told, native) == (body.get("output_config"), "system" not in body)


async def test_members_are_asked_for_in_the_order_of_the_schema() -> None:
    """It is the order in which they are written: what is to be thought of first comes first."""
    members = {"why": TEXT, "answer": TEXT}
    asked = request(output=OutputSpec("o", {"type": "object", "properties": members}))

    body = await CLAUDE.sent(asked, output_mode="native")

    assert ["why", "answer"] == [*body["output_config"]["format"]["schema"]["properties"]]  # type: ignore[index]


async def test_a_native_output_may_be_asked_for_or_not() -> None:
    """Who makes the model goes first, and an effort stands beside it."""
    options = {"model": "claude-opus-4-6", "thinking_level": "low"}
    asked = request(output=OutputSpec("point", POINT), options=options)

    unasked = await CLAUDE.sent(asked, output_mode="prompted")
    native = await CLAUDE.sent(asked, output_mode="native")

    assert {"effort": "low"} == unasked["output_config"]
    assert {"effort", "format"} == native["output_config"].keys()  # type: ignore[attr-defined]
