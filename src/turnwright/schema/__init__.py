"""A Python type or a JSON Schema -> (JSON Schema for the model, validation with issues).

Two steps, because what is approved and journaled is JSON and may be run by another process: `accept` turns a model's
JSON into accepted JSON, `load` (or `Parameters.bind`) turns accepted JSON into Python values.

`accept` coerces by this table, along the schema, only where the value does not validate as it is:

| the schema wants | the value is | it becomes |
| --- | --- | --- |
| integer | text of a whole number: "3", "3.0" | 3 |
| number | text of a number: "2.5", "1e3" | 2.5, 1000.0 |
| integer | a whole float: 1.0 | 1 (also where 1.0 validates) |
| array or object | text that is such JSON: "[1, 2]" | [1, 2] |
| a property that is optional and not nullable | null | absent |
| one of several (`anyOf`, `oneOf`) | fits none | coerced to the first that it then fits |

Never: a boolean and a number into each other, a number or boolean into text, text into a boolean, a null that is
allowed, and anything where text is allowed. Parts under `patternProperties`, `if` and `not` are validated only.

Then defaults are filled in where the schema was made from Python types; the `default` of a JSON Schema that was given
as one is a note for its readers and changes nothing.
"""

from __future__ import annotations

from turnwright.schema.declared import Schema, schema_of
from turnwright.schema.parameters import Parameters, parameters_of

__all__ = ["Parameters", "Schema", "parameters_of", "schema_of"]
