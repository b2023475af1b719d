"""Validation of a value by a JSON schema: the keywords of the standard without remote references.

No library gives its three guarantees: an unknown keyword is refused when the schema is read,
`pattern` is bounded, and a schema that refers to itself takes bounded time, because the result of
a reference for a value is computed once. `fastjsonschema` lacks `prefixItems` and fetches a remote
`$ref`; `jsonschema` takes exponential time on references that are used twice at each level.

A keyword is a rule of `_RULES`: the form of its argument, the type of value that it applies to, and
a function that returns the fault of such a value, empty if it is valid.
"""

import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from proxy.rewards.part import SettingError
from proxy.rewards.parts.patterns import Pattern, pattern

MAX_DEPTH = 40
"""Deepest level of a schema."""

_ANNOTATIONS = frozenset({
    "$schema", "$id", "$comment", "title", "description", "default", "examples", "format",
    "deprecated", "readOnly", "writeOnly", "propertyOrder", "discriminator",
})  # fmt: skip
"""Keywords that describe a schema and check nothing."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": _is_number,
    "integer": lambda value: _is_number(value) and float(value).is_integer(),
}

_FORMS: Mapping[str, Callable[[Any], bool]] = {
    "schema": lambda argument: True,
    "schemas": _TYPES["array"],
    "schemas by name": _TYPES["object"],
    "schemas by pattern": _TYPES["object"],
    "reference": _TYPES["string"],
    "pattern": _TYPES["string"],
    "types": lambda argument: all(name in _TYPES for name in _as_list(argument)),
    "names": lambda argument: isinstance(argument, list) and all(map(_TYPES["string"], argument)),
    "number": _is_number,
    "list": _TYPES["array"],
    "anything": lambda argument: True,
}
"""Form of a keyword's argument -> whether an argument has it."""


def _as_list(names: Any) -> list[Any]:
    return names if isinstance(names, list) else [names]


class Schema:
    """A checked schema.

    Args:
        root: The whole schema.
        field: Setting that holds it, for errors.

    Raises:
        SettingError: It is not a schema, or has an unknown keyword.
    """

    def __init__(self, root: Any, field: str) -> None:
        self._root = root
        self._field = field
        self._patterns: dict[str, Pattern] = {}
        self._targets: dict[str, Any] = {}
        """Part of the schema that each `$ref` names."""
        self._results: dict[tuple[str, int], str] = {}
        """Result of a reference for a value, by the value's id: each is computed once."""
        self._examine(root, 0)

    def fault_of(self, value: Any) -> str:
        """Return the fault of a value; empty if it is valid."""
        try:
            return self.fault(value, self._root)
        finally:
            self._results.clear()

    def fault(self, value: Any, schema: Any) -> str:
        """Return the fault of a value by a part of the schema."""
        if isinstance(schema, bool):
            return "" if schema else "nothing is allowed here"
        for keyword, argument in schema.items():
            rule = _RULES.get(keyword)
            if rule is not None and (not rule.applies_to or _TYPES[rule.applies_to](value)):
                fault = rule.fault(self, value, argument, schema)
                if fault:
                    return fault
        return ""

    def referred(self, value: Any, reference: str) -> str:
        """Return the fault of a value by the part that a reference names; it may be recursive."""
        key = (reference, id(value))
        if key not in self._results:
            self._results[key] = f"{reference} refers to itself"
            self._results[key] = self.fault(value, self._targets[reference])
        return self._results[key]

    def matches(self, name: str, text: str) -> bool:
        """Return whether a text matches one of the schema's expressions."""
        return self._patterns[name].matches(text)

    # --- reading a schema -----------------------------------------------------------------------

    def _examine(self, schema: Any, depth: int) -> None:
        """Check a part of the schema, and prepare its expressions and references."""
        if isinstance(schema, bool):
            return
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
            raise SettingError(self._field, "a JSON schema is a mapping of at most 40 levels")
        for keyword, argument in schema.items():
            if keyword in _ANNOTATIONS:
                continue
            if keyword not in _RULES:
                known = ", ".join(_RULES)
                raise SettingError(
                    self._field, f"`{keyword}` of JSON schema is not known", f"Known: {known}"
                )
            if not _FORMS[_RULES[keyword].argument](argument):
                raise SettingError(self._field, f"`{keyword}` cannot be {argument!r:.60}")
            for inner in self._inner(argument, _RULES[keyword].argument):
                self._examine(inner, depth + 1)

    def _inner(self, argument: Any, form: str) -> Iterator[Any]:
        """Yield the schemas in an argument; compile its expressions."""
        if form == "schema":
            yield argument
        elif form == "schemas":
            yield from argument
        elif form in ("schemas by name", "schemas by pattern"):
            yield from argument.values()
        elif form == "reference" and argument not in self._targets:
            self._targets[argument] = self._target(argument)
            yield self._targets[argument]
        if form == "pattern":
            self._patterns[argument] = pattern(argument, self._field)
        elif form == "schemas by pattern":
            self._patterns |= {name: pattern(name, self._field) for name in argument}

    def _target(self, reference: str) -> Any:
        target = self._root
        try:
            if not reference.startswith("#"):
                raise KeyError(reference)
            for step in unquote(reference[1:]).split("/")[1:]:
                name = step.replace("~1", "/").replace("~0", "~")
                target = target[int(name)] if isinstance(target, list) else target[name]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise SettingError(
                self._field,
                f"`$ref` names {reference:.80}, which is not in this schema",
                "Only parts of the same schema can be named, as #/$defs/NAME",
            ) from error
        return target


class _Rule(NamedTuple):
    """A keyword."""

    argument: str
    applies_to: str
    """Type of value in `_TYPES`; empty for all."""
    fault: Callable[[Schema, Any, Any, Mapping[str, Any]], str]
    """(the whole schema, value, argument, the part of the schema with the keyword) -> fault."""


def _of_type(whole: Schema, value: Any, names: Any, part: Mapping[str, Any]) -> str:
    names = _as_list(names)
    valid = any(_TYPES[name](value) for name in names)
    return "" if valid else f"not of type {' or '.join(names)}"


def _enum(whole: Schema, value: Any, allowed: Any, part: Mapping[str, Any]) -> str:
    valid = any(_equal(value, other) for other in allowed)
    return "" if valid else "not one of the allowed values"


def _const(whole: Schema, value: Any, expected: Any, part: Mapping[str, Any]) -> str:
    return "" if _equal(value, expected) else "not the expected value"


def _equal(first: Any, second: Any) -> bool:
    """Return whether two JSON values are equal; true is not 1."""
    return isinstance(first, bool) == isinstance(second, bool) and bool(first == second)


Inner = Iterator[tuple[str, Any, Any]]
"""Name, value and schema of each part of a value that a keyword checks."""


def _each(
    form: str, applies_to: str, inner: Callable[[Schema, Any, Any, Mapping[str, Any]], Inner]
) -> _Rule:
    """Return the rule of a keyword that checks parts of a value by schemas of their own."""

    def fault(whole: Schema, value: Any, argument: Any, part: Mapping[str, Any]) -> str:
        for name, item, schema in inner(whole, value, argument, part):
            if found := whole.fault(item, schema):
                return f"{name}: {found}"
        return ""

    return _Rule(form, applies_to, fault)


def _properties(whole: Schema, value: Any, schemas: Any, part: Mapping[str, Any]) -> Inner:
    return ((name, value[name], schemas[name]) for name in schemas if name in value)


def _pattern_properties(whole: Schema, value: Any, schemas: Any, part: Mapping[str, Any]) -> Inner:
    for name, expression in itertools.product(value, schemas):
        if whole.matches(expression, name):
            yield f"{name:.40}", value[name], schemas[expression]


def _additional(whole: Schema, value: Any, schema: Any, part: Mapping[str, Any]) -> Inner:
    known, expressions = part.get("properties", ()), part.get("patternProperties", ())
    for name in value:
        if name not in known and not any(whole.matches(other, name) for other in expressions):
            yield f"{name:.40}", value[name], schema


def _property_names(whole: Schema, value: Any, schema: Any, part: Mapping[str, Any]) -> Inner:
    return ((f"name {name:.40}", name, schema) for name in value)


def _items(whole: Schema, value: Any, schema: Any, part: Mapping[str, Any]) -> Inner:
    """Yield the items after those of `prefixItems`."""
    first = len(part.get("prefixItems", ()))
    return ((f"item {place}", item, schema) for place, item in enumerate(value[first:], first + 1))


def _prefix_items(whole: Schema, value: Any, schemas: Any, part: Mapping[str, Any]) -> Inner:
    pairs = enumerate(zip(value, schemas, strict=False), 1)
    return ((f"item {place}", *pair) for place, pair in pairs)


def _required(whole: Schema, value: Any, names: Any, part: Mapping[str, Any]) -> str:
    return next((f"{name} is missing" for name in names if name not in value), "")


def _unique(whole: Schema, value: Any, wanted: Any, part: Mapping[str, Any]) -> str:
    repeats = wanted and len(set(map(repr, value))) < len(value)
    return "an item comes twice" if repeats else ""


def _multiple(whole: Schema, value: Any, unit: Any, part: Mapping[str, Any]) -> str:
    times = value / unit if unit else math.inf
    valid = math.isfinite(times) and abs(times - round(times)) < 1e-9 * max(1.0, abs(times))
    return "" if valid else f"not a multiple of {unit:g}"


def _matches(whole: Schema, value: Any, expression: Any, part: Mapping[str, Any]) -> str:
    return "" if whole.matches(expression, value) else "not of the pattern"


def _not(whole: Schema, value: Any, schema: Any, part: Mapping[str, Any]) -> str:
    return "" if whole.fault(value, schema) else "what must not be"


def _count(is_valid: Callable[[int, int], bool], otherwise: str) -> _Rule:
    """Return the rule of a keyword that counts how many of its schemas a value fits."""

    def fault(whole: Schema, value: Any, schemas: Any, part: Mapping[str, Any]) -> str:
        faults = [whole.fault(value, schema) for schema in schemas]
        valid = is_valid(faults.count(""), len(faults))
        return "" if valid else next(filter(None, faults), otherwise)

    return _Rule("schemas", "", fault)


def _bound(
    applies_to: str, is_valid: Callable[[float, float], bool], what: str, size: Any = len
) -> _Rule:
    """Return the rule of a bound on the size of a value."""
    return _Rule(
        "number",
        applies_to,
        lambda whole, value, limit, part: (
            "" if is_valid(size(value), limit) else f"{what} {limit:g}"
        ),
    )


_RULES: Mapping[str, _Rule] = {
    "type": _Rule("types", "", _of_type),
    "enum": _Rule("list", "", _enum),
    "const": _Rule("anything", "", _const),
    "properties": _each("schemas by name", "object", _properties),
    "additionalProperties": _each("schema", "object", _additional),
    "required": _Rule("names", "object", _required),
    "items": _each("schema", "array", _items),
    "prefixItems": _each("schemas", "array", _prefix_items),
    "$ref": _Rule("reference", "", lambda whole, value, name, part: whole.referred(value, name)),
    "$defs": _Rule("schemas by name", "", lambda whole, value, schemas, part: ""),
    "definitions": _Rule("schemas by name", "", lambda whole, value, schemas, part: ""),
    "patternProperties": _each("schemas by pattern", "object", _pattern_properties),
    "propertyNames": _each("schema", "object", _property_names),
    "multipleOf": _Rule("number", "number", _multiple),
    "uniqueItems": _Rule("anything", "array", _unique),
    "pattern": _Rule("pattern", "string", _matches),
    "minimum": _bound("number", operator.ge, "below", float),
    "maximum": _bound("number", operator.le, "above", float),
    "exclusiveMinimum": _bound("number", operator.gt, "not above", float),
    "exclusiveMaximum": _bound("number", operator.lt, "not below", float),
    "minLength": _bound("string", operator.ge, "characters: fewer than"),
    "maxLength": _bound("string", operator.le, "characters: more than"),
    "minItems": _bound("array", operator.ge, "items: fewer than"),
    "maxItems": _bound("array", operator.le, "items: more than"),
    "minProperties": _bound("object", operator.ge, "entries: fewer than"),
    "maxProperties": _bound("object", operator.le, "entries: more than"),
    "allOf": _count(lambda fits, whole: fits == whole, "fits too few"),
    "anyOf": _count(lambda fits, whole: fits > 0, "fits none"),
    "oneOf": _count(lambda fits, whole: fits == 1, "fits more than one"),
    "not": _Rule("schema", "", _not),
}
