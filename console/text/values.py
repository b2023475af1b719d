"""JSON values: fields of an object, and values in words for parameters of an unknown kind."""

from collections.abc import Mapping
from typing import Any

from ajet_swarm.common.text import one_line


def fields_of(of: object, names: str) -> dict[str, Any]:
    """Return the fields that `names` lists, with spaces between them; None of no object."""
    return {name: None if of is None else getattr(of, name) for name in names.split()}


def value_words(value: Any, listed: int = 6) -> str:
    """Return a JSON value in words.

    Args:
        value: The value.
        listed: Maximum number of items of a list that are shown.
    """
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4g}"
        case None:
            return "none"
        case list() | tuple():
            more = f" and {len(value) - listed} more" if len(value) > listed else ""
            return " ".join(map(value_words, value[:listed])) + more
        case Mapping():
            return " ".join(f"{name} {value_words(item)}" for name, item in value.items())
        case _:
            return one_line(str(value), 120)
