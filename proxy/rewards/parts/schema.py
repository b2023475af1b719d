"""Validation of a value by a JSON schema: the keywords of the standard without remote references.

No library gives its three guarantees: an unknown keyword is refused when the schema is read,
`pattern` is bounded, and a schema that refers to itself takes bounded time, because the result of
a reference for a value is computed once. `fastjsonschema` lacks `prefixItems` and fetches a remote
`$ref`; `jsonschema` takes exponential time on references that are used twice at each level.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any
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

Check = Callable[[Any], str]
"""Returns the fault of a value; empty if it is valid."""


class Scope:
    """The whole schema, and its parts that are named by `$ref`, each compiled once.

    Args:
        root: The whole schema.
        field: Setting that holds the schema, for errors.
    """

    def __init__(self, root: Any, field: str) -> None:
        self.field = field
        self._root = root
        self._checks: dict[str, Check | None] = {}
        """Check of each reference; None while it is being compiled."""
        self._results: dict[tuple[str, int], str] = {}
        """Result of a reference for a value, by the value's id: each is computed once."""
        self._depth = 0

    def refer(self, reference: str) -> Check:
        """Return the check of the part of the schema that `reference` names; it may be recursive.

        Raises:
            SettingError: There is no such part in this schema.
        """
        if reference not in self._checks:
            self._checks[reference] = None
            self._checks[reference] = _compiled(self._target(reference), self, 0)
        return lambda value: self._check(reference, value)

    def _check(self, reference: str, value: Any) -> str:
        check = self._checks[reference]
        assert check is not None
        key = (reference, id(value))
        if key not in self._results:
            self._results[key] = f"{reference} refers to itself"
            self._depth += 1
            try:
                self._results[key] = check(value)
            finally:
                self._depth -= 1
                if not self._depth:
                    fault = self._results[key]
                    self._results.clear()
            if not self._depth:
                return fault
        return self._results[key]

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
                self.field,
                f"`$ref` names {reference:.80}, which is not in this schema",
                "Only parts of the same schema can be named, as #/$defs/NAME",
            ) from error
        return target


def compiled(schema: Any, field: str) -> Check:
    """Return the check of a value by `schema`.

    Raises:
        SettingError: It is not a schema, or has an unknown keyword.
    """
    return _compiled(schema, Scope(schema, field), 0)


def _compiled(schema: Any, scope: Scope, depth: int) -> Check:
    if isinstance(schema, bool):
        return lambda value: "" if schema else "nothing is allowed here"
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        raise SettingError(scope.field, "a JSON schema is a mapping of at most 40 levels")
    checks: list[Check] = []
    for keyword, argument in schema.items():
        if keyword in _ANNOTATIONS:
            continue
        maker = _MAKERS.get(keyword)
        if maker is None:
            known = ", ".join(_MAKERS)
            raise SettingError(
                scope.field, f"`{keyword}` of JSON schema is not known", f"Known: {known}"
            )
        try:
            checks.append(maker(argument, schema, scope, depth + 1))
        except (TypeError, ValueError, AttributeError) as error:
            raise SettingError(scope.field, f"`{keyword}` cannot be {argument!r:.60}") from error

    def check(value: Any) -> str:
        for one in checks:
            if fault := one(value):
                return fault
        return ""

    return check


def _type(argument: Any, schema: Any, scope: Scope, depth: int) -> Check:
    names = [argument] if isinstance(argument, str) else list(argument)
    if unknown := [name for name in names if name not in _TYPES]:
        raise SettingError(scope.field, f"there is no type {unknown[0]!r:.40}", ", ".join(_TYPES))
    tests = [_TYPES[name] for name in names]
    expected = " or ".join(names)
    return lambda value: "" if any(test(value) for test in tests) else f"not of type {expected}"


def _enum(argument: Any, schema: Any, scope: Scope, depth: int) -> Check:
    allowed = list(argument)
    return lambda value: (
        "" if any(_equal(value, one) for one in allowed) else "not one of the allowed values"
    )


def _const(argument: Any, schema: Any, scope: Scope, depth: int) -> Check:
    return lambda value: "" if _equal(value, argument) else "not the expected value"


def _equal(one: Any, two: Any) -> bool:
    """Return whether two JSON values are equal; true is not 1."""
    return isinstance(one, bool) == isinstance(two, bool) and bool(one == two)


def _properties(argument: Any, schema: Any, scope: Scope, depth: int) -> Check:
    checks = {name: _compiled(one, scope, depth) for name, one in argument.items()}

    def check(value: Any) -> str:
        if isinstance(value, dict):
            for name, one in checks.items():
                if name in value and (fault := one(value[name])):
                    return f"{name}: {fault}"
        return ""

    return check


def _additional(argument: Any, schema: Any, scope: Scope, depth: int) -> Check:
    known = frozenset(schema.get("properties", ()))
    patterns = [pattern(one, scope.field) for one in schema.get("patternProperties", ())]
    rest = _compiled(argument, scope, depth)

    def check(value: Any) -> str:
        if isinstance(value, dict):
            for name in value:
                if name in known or any(one.matches(name) for one in patterns):
                    continue
                if fault := rest(value[name]):
                    return f"{name:.40}: {fault}"
        return ""

    return check


def _required(argument: Any, schema: Any, scope: Scope, depth: int) -> Check:
    names = tuple(str(name) for name in argument)

    def check(value: Any) -> str:
        missing = [name for name in names if isinstance(value, dict) and name not in value]
        return f"{missing[0]} is missing" if missing else ""

    return check


def _items(argument: Any, schema: Any, scope: Scope, depth: int) -> Check:
    """Return the check of the items after those of `prefixItems`."""
    check_one, first = _compiled(argument, scope, depth), len(schema.get("prefixItems", ()))

    def check(value: Any) -> str:
        rest = value[first:] if isinstance(value, list) else ()
        for place, one in enumerate(rest, first + 1):
            if fault := check_one(one):
                return f"item {place}: {fault}"
        return ""

    return check


def _prefix_items(argument: Any, schema: Any, scope: Scope, depth: int) -> Check:
    checks = [_compiled(one, scope, depth) for one in argument]

    def check(value: Any) -> str:
        pairs = zip(checks, value if isinstance(value, list) else (), strict=False)
        for place, (check_one, one) in enumerate(pairs, 1):
            if fault := check_one(one):
                return f"item {place}: {fault}"
        return ""

    return check


def _ref(argument: Any, schema: Any, scope: Scope, depth: int) -> Check:
    return scope.refer(argument)


def _defs(argument: Any, schema: Any, scope: Scope, depth: int) -> Check:
    """Compile the parts for `$ref`, so that their errors are reported; they check nothing here."""
    for one in argument.values():
        _compiled(one, scope, depth)
    return lambda value: ""


def _pattern_properties(argument: Any, schema: Any, scope: Scope, depth: int) -> Check:
    pairs = [
        (pattern(name, scope.field), _compiled(one, scope, depth)) for name, one in argument.items()
    ]

    def check(value: Any) -> str:
        for name, one in value.items() if isinstance(value, dict) else ():
            for name_pattern, check_one in pairs:
                if name_pattern.matches(name) and (fault := check_one(one)):
                    return f"{name:.40}: {fault}"
        return ""

    return check


def _property_names(argument: Any, schema: Any, scope: Scope, depth: int) -> Check:
    check_one = _compiled(argument, scope, depth)

    def check(value: Any) -> str:
        for name in value if isinstance(value, dict) else ():
            if fault := check_one(name):
                return f"name {name:.40}: {fault}"
        return ""

    return check


def _multiple(argument: Any, schema: Any, scope: Scope, depth: int) -> Check:
    unit = float(argument)
    if not unit > 0:
        raise ValueError

    def check(value: Any) -> str:
        if not _is_number(value):
            return ""
        times = value / unit
        return (
            ""
            if abs(times - round(times)) < 1e-9 * max(1.0, abs(times))
            else f"not a multiple of {unit:g}"
        )

    return check


def _unique(argument: Any, schema: Any, scope: Scope, depth: int) -> Check:
    def check(value: Any) -> str:
        items = value if isinstance(value, list) and argument else []
        return "an item comes twice" if len({repr(one) for one in items}) < len(items) else ""

    return check


def _pattern(argument: Any, schema: Any, scope: Scope, depth: int) -> Check:
    compiled_pattern: Pattern = pattern(argument, scope.field)

    def check(value: Any) -> str:
        return (
            ""
            if not isinstance(value, str) or compiled_pattern.matches(value)
            else "not of the pattern"
        )

    return check


def _bound(
    kind: Callable[[Any], bool], size: Callable[[Any], float],
    valid: Callable[[float, float], bool],
    what: str,
) -> Any:  # fmt: skip
    def make(argument: Any, schema: Any, scope: Scope, depth: int) -> Check:
        limit = float(argument)
        message = f"{what} {limit:g}"
        return lambda value: "" if not kind(value) or valid(size(value), limit) else message

    return make


def _many(join: Callable[[int, int], bool], what: str) -> Any:
    """Return the maker of a keyword that counts how many of its schemas a value matches."""

    def make(argument: Any, schema: Any, scope: Scope, depth: int) -> Check:
        checks = [_compiled(one, scope, depth) for one in argument]

        def check(value: Any) -> str:
            faults = [one(value) for one in checks]
            fits = faults.count("")
            return "" if join(fits, len(faults)) else next(filter(None, faults), what)

        return check

    return make


def _not(argument: Any, schema: Any, scope: Scope, depth: int) -> Check:
    check_one = _compiled(argument, scope, depth)
    return lambda value: "" if check_one(value) else "what must not be"


def _at_least(have: float, limit: float) -> bool:
    return have >= limit


def _at_most(have: float, limit: float) -> bool:
    return have <= limit


_TEXT, _LIST, _OBJECT = _TYPES["string"], _TYPES["array"], _TYPES["object"]

_MAKERS: Mapping[str, Callable[[Any, Any, Scope, int], Check]] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "properties": _properties,
    "additionalProperties": _additional,
    "required": _required,
    "items": _items,
    "prefixItems": _prefix_items,
    "$ref": _ref,
    "$defs": _defs,
    "definitions": _defs,
    "patternProperties": _pattern_properties,
    "propertyNames": _property_names,
    "multipleOf": _multiple,
    "uniqueItems": _unique,
    "pattern": _pattern,
    "minimum": _bound(_is_number, float, _at_least, "below"),
    "maximum": _bound(_is_number, float, _at_most, "above"),
    "exclusiveMinimum": _bound(_is_number, float, lambda a, b: a > b, "not above"),
    "exclusiveMaximum": _bound(_is_number, float, lambda a, b: a < b, "not below"),
    "minLength": _bound(_TEXT, len, _at_least, "characters: fewer than"),
    "maxLength": _bound(_TEXT, len, _at_most, "characters: more than"),
    "minItems": _bound(_LIST, len, _at_least, "items: fewer than"),
    "maxItems": _bound(_LIST, len, _at_most, "items: more than"),
    "minProperties": _bound(_OBJECT, len, _at_least, "entries: fewer than"),
    "maxProperties": _bound(_OBJECT, len, _at_most, "entries: more than"),
    "allOf": _many(lambda fits, all_: fits == all_, "fits too few"),
    "anyOf": _many(lambda fits, all_: fits > 0, "fits none"),
    "oneOf": _many(lambda fits, all_: fits == 1, "fits more than one"),
    "not": _not,
}
