"""A declared type or JSON Schema, ready to accept, load and dump values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar, overload

from turnwright.canonical import JSON, encode, plain
from turnwright.errors import DefinitionError, InvalidValue
from turnwright.schema.annotations import Scope
from turnwright.schema.coercion import Settle, coerce, copied, settling
from turnwright.schema.documents import Document, named_schemas, referred, schemas, types_of
from turnwright.schema.explaining import explain
from turnwright.schema.forms import Forms
from turnwright.schema.scalars import FORMATS
from turnwright.schema.validation import Validation
from turnwright.schema.wire import Form

T = TypeVar("T")


class Schema(Generic[T]):
    """What a value must be: a JSON Schema for the model, and the way from JSON to Python and back.

    *document* is the JSON Schema; its references resolve from its root. It is shared: read it, do not write it.
    Immutable and safe to share between threads. Checks are compiled when they are first needed, and kept.
    """

    __slots__ = ("_fits", "_form", "_must_encode", "_raw", "_settle", "_validation", "document")

    def __init__(self, document: Document, form: Form, *, raw: bool = False) -> None:
        self.document: Mapping[str, JSON] = document
        self._form = form
        self._raw = raw
        self._validation = Validation(document, {} if raw else FORMATS)
        self._fits: Callable[[JSON], bool] | None = None
        self._settle: Settle | None = None
        self._must_encode = True

    def __repr__(self) -> str:
        return f"Schema({self.document!r})"

    def accept(self, value: JSON) -> JSON:
        """Return *value* coerced by the table in `turnwright.schema`, validated, with defaults filled in.

        Pure JSON to JSON: *value* is never changed, what was accepted is accepted again as it is. `InvalidValue` names
        every place that is wrong, up to twenty.
        """
        if (fits := self._fits) is None:
            fits = self._prepare()
        if self._must_encode:
            encode(value)
        try:
            fitting = fits(value)
        except (ValueError, RecursionError):
            fitting = False
        if not fitting:
            encode(value)
            value = coerce(self._validation, value)
            if issues := explain(self._validation, value):
                raise InvalidValue(issues)
        return self._settle(value) if self._settle else value

    def load(self, value: JSON) -> T:
        """Return the Python value that the accepted *value* stands for. Nothing of *value* is shared with it.

        `InvalidValue` with the path if a class refuses to be made of it.
        """
        own = copied(value)
        return self._form.load(own) if self._form.load else own  # type: ignore[return-value]

    def dump(self, value: T) -> JSON:
        """Return the JSON that stands for *value*. `InvalidValue` if it is not what the schema declares."""
        json: JSON = self._form.dump(value) if self._form.dump else value  # type: ignore[assignment]
        try:
            encode(json)
        except TypeError:  # a class of the caller's own that is text, say: what it stands for is plain
            json = plain(json)
        fits = self._fits or self._prepare()
        if not fits(json):
            raise InvalidValue(explain(self._validation, json))
        return json

    def check(self) -> None:
        """Compile everything now. `DefinitionError` if the document is no usable schema."""
        self._prepare()

    def _prepare(self) -> Callable[[JSON], bool]:
        fits = self._validation.compile().is_valid
        self._settle = settling(self._validation, fill=not self._raw)
        self._must_encode = _leaves_room(self._validation.document)
        self._fits = fits
        return fits


@overload
def schema_of(declared: type[T]) -> Schema[T]: ...  # pyright: ignore[reportOverlappingOverload]  (a class is an object)
@overload
def schema_of(declared: object) -> Schema[object]: ...
def schema_of(declared: object) -> Schema[object] | Schema[T]:
    """Return the schema of a Python type, or of a JSON Schema given as a mapping, which is copied and kept verbatim.

    `DefinitionError` for a type without a JSON form, and for a mapping that is no usable JSON Schema, refers to
    something outside of itself, or has a pattern that cannot be matched in linear time.
    """
    if isinstance(declared, Mapping):
        return _raw(declared)
    forms = Forms()
    form = forms.of(declared, Scope(None, {}))
    return made(form, forms)


def made(form: Form, forms: Forms) -> Schema[object]:
    """Return the schema whose root is *form*, with the definitions that it needs."""
    forms.finish()
    root = form.schema
    if target := referred({"$defs": forms.definitions}, root):  # providers want to see an object at the root
        assert isinstance(target.schema, dict)
        root = {**target.schema, **{key: value for key, value in root.items() if key != "$ref"}}
    document = dict(root)
    if forms.definitions and (needed := _needed(root, forms.definitions)):
        document["$defs"] = needed
    try:
        encode(document)
    except InvalidValue as error:
        raise DefinitionError(f"its schema is not JSON: {error}") from None
    return Schema(document, form)


def _raw(declared: Mapping[str, object]) -> Schema[object]:
    try:
        document = plain(declared)
    except InvalidValue as error:
        raise DefinitionError(f"the JSON Schema is not JSON: {error}") from None
    assert isinstance(document, dict)
    schema: Schema[object] = Schema(document, Form(document, dump=plain), raw=True)
    schema.check()
    return schema


def _needed(root: JSON, definitions: Document) -> Document:
    """Return the definitions that *root* refers to, also through others, in the order in which they were described."""
    names: set[str] = set()
    waiting = [root]
    while waiting:
        match waiting.pop():
            case dict(node):
                if isinstance(reference := node.get("$ref"), str):
                    name = reference.removeprefix("#/$defs/")
                    if name not in names and name in definitions:
                        names.add(name)
                        waiting.append(definitions[name])
                waiting.extend(node.values())
            case list(items):
                waiting.extend(items)
            case _:
                pass
    return {name: schema for name, schema in definitions.items() if name in names}


def _leaves_room(node: JSON) -> bool:
    """Tell whether a value can validate and yet hold, somewhere, what is not JSON or not bounded in depth."""
    if not isinstance(node, dict) or "$ref" in node:
        return True
    types = types_of(node)
    arms = [arm for keyword in ("anyOf", "oneOf", "allOf") for arm in schemas(node, keyword)]
    if not types and not arms and "enum" not in node and "const" not in node:
        return True
    if "object" in types and node.get("additionalProperties") is not False:
        return True
    if "array" in types and "items" not in node:
        return True
    inside = [*named_schemas(node, "properties").values(), *schemas(node, "prefixItems"), *arms]
    return any(_leaves_room(part) for part in inside) or ("items" in node and _leaves_room(node["items"]))
