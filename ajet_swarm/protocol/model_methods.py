"""The pydantic methods of AgentJet's models that scripts use."""

import copy
import logging
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, fields
from typing import Any, Self

import msgspec

from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.plain import JSON_ERRORS, to_plain

log = logging.getLogger(__name__)

Fields = dict[str, Any]

_WARNED: set[tuple[str, str]] = set()
"""Class and field of each warning about an ignored field."""


class Model:
    """Base of dataclasses with pydantic's methods for copies, dicts and JSON."""

    __slots__ = ()

    @classmethod
    def model_validate(cls, obj: Any) -> Self:
        """Return an instance made from a dict; return an instance unchanged.

        Raises:
            SwarmError: it is neither, or a field is missing or has the wrong type.
        """
        if isinstance(obj, cls):
            return obj
        if not isinstance(obj, Mapping):
            raise SwarmError(f"a {type(obj).__name__} is not a {cls.__name__}", cls.__name__)
        needed = [
            one.name
            for one in fields(cls)  # type: ignore[arg-type]  # each of them is a dataclass
            if one.default is MISSING and one.default_factory is MISSING
        ]
        if missing := [name for name in needed if name not in obj]:
            raise SwarmError(f"`{'`, `'.join(missing)}` is missing", cls.__name__)
        return cls(**{str(name): value for name, value in obj.items()})

    @classmethod
    def model_validate_json(cls, json_data: str | bytes) -> Self:
        """Return an instance made from JSON.

        Raises:
            SwarmError: it is not JSON, or as of `model_validate`.
        """
        try:
            obj = msgspec.json.decode(json_data)
        except JSON_ERRORS as error:
            raise SwarmError(f"not JSON: {error}", cls.__name__) from error
        return cls.model_validate(obj)

    def model_dump(self) -> Fields:
        """Return the fields as a dict."""
        values: Fields = asdict(self)  # type: ignore[call-overload]  # subclasses are dataclasses
        return values

    def model_dump_json(self, *, indent: int | None = None) -> str:
        """Return the fields as JSON.

        Raises:
            SwarmError: a value has no JSON form.
        """
        return to_json(self.model_dump(), type(self).__name__, indent)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with some fields replaced."""
        duplicate = copy.deepcopy(self) if deep else copy.copy(self)
        for name, value in (update or {}).items():
            setattr(duplicate, name, value)
        return duplicate

    def copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """See `model_copy`."""
        return self.model_copy(update=update, deep=deep)

    def dict(self) -> Fields:
        """See `model_dump`."""
        return self.model_dump()

    def _ignore(self, unknown: Mapping[str, Any]) -> None:
        """Log one warning for each unknown field; AgentJet's models ignore them."""
        kind = type(self).__name__
        for name in unknown:
            if (kind, name) not in _WARNED:
                _WARNED.add((kind, name))
                known = ", ".join(one.name for one in fields(self))  # type: ignore[arg-type]
                log.warning("a %s has no `%s`: ignored. It has %s", kind, name, known)


class ServerRecord(msgspec.Struct, frozen=True):
    """Base of records from a server; fields are attributes, and keys as of a dict."""

    def __getitem__(self, name: str) -> Any:
        if name not in self.__struct_fields__:
            raise KeyError(name)
        return getattr(self, name)

    def __contains__(self, name: object) -> bool:
        return name in self.__struct_fields__

    def __iter__(self) -> Iterator[str]:
        return iter(self.__struct_fields__)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field, or `default` if there is none of this name."""
        return getattr(self, name) if name in self.__struct_fields__ else default

    def keys(self) -> tuple[str, ...]:
        """Return the names of the fields."""
        return self.__struct_fields__

    def items(self) -> list[tuple[str, Any]]:
        """Return names and values of the fields."""
        return [(name, self[name]) for name in self]

    def model_dump(self) -> dict[str, Any]:
        """Return the fields as a dict."""
        values: dict[str, Any] = msgspec.to_builtins(self)
        return values

    def model_dump_json(self, *, indent: int | None = None) -> str:
        """Return the fields as JSON."""
        return to_json(self.model_dump(), type(self).__name__, indent)


def to_json(values: Mapping[str, Any], where: str, indent: int | None = None) -> str:
    """Return a dict as JSON.

    Raises:
        SwarmError: a value has no JSON form.
    """
    try:
        data = msgspec.json.encode(to_plain(values))
        return (data if indent is None else msgspec.json.format(data, indent=indent)).decode()
    except JSON_ERRORS as error:
        raise SwarmError(f"a value is not JSON: {error}", where) from error
