"""The methods AgentJet's models have, of pydantic, as far as scripts use them."""

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

_TOLD: set[tuple[str, str]] = set()
"""Kind and field that were said to be ignored."""


class Model:
    """A dataclass that can be copied, written out and made of a dict."""

    __slots__ = ()

    @classmethod
    def model_validate(cls, obj: Any) -> Self:
        """One of a dict, or of another of its kind.

        Raises:
            SwarmError: it is neither, a field is missing or is of another kind.
        """
        if isinstance(obj, cls):
            return obj
        if not isinstance(obj, Mapping):
            raise SwarmError(f"a {type(obj).__name__} is no {cls.__name__}", cls.__name__)
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
        """One of its JSON.

        Raises:
            SwarmError: it is none.
        """
        try:
            obj = msgspec.json.decode(json_data)
        except JSON_ERRORS as error:
            raise SwarmError(f"no JSON: {error}", cls.__name__) from error
        return cls.model_validate(obj)

    def model_dump(self) -> Fields:
        """The fields as a dict."""
        told: Fields = asdict(self)  # type: ignore[call-overload]  # each of them is a dataclass
        return told

    def model_dump_json(self, *, indent: int | None = None) -> str:
        """The fields as JSON.

        Raises:
            SwarmError: a value has no such form.
        """
        return to_json(self.model_dump(), type(self).__name__, indent)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy, with some fields set anew."""
        made = copy.deepcopy(self) if deep else copy.copy(self)
        for name, value in (update or {}).items():
            setattr(made, name, value)
        return made

    def copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As `model_copy`."""
        return self.model_copy(update=update, deep=deep)

    def dict(self) -> Fields:
        """As `model_dump`."""
        return self.model_dump()

    def _ignore(self, given: Mapping[str, Any]) -> None:
        """Fields it does not have are ignored, as AgentJet's ignore them; said once for each."""
        kind = type(self).__name__
        for name in given:
            if (kind, name) not in _TOLD:
                _TOLD.add((kind, name))
                known = ", ".join(one.name for one in fields(self))  # type: ignore[arg-type]
                log.warning("a %s has no `%s`: ignored. It has %s", kind, name, known)


class ServerRecord(msgspec.Struct, frozen=True):
    """What a server told; fields are attributes, and keys as of a dict."""

    def __getitem__(self, name: str) -> Any:
        if name not in self.__struct_fields__:
            raise KeyError(name)
        return getattr(self, name)

    def __contains__(self, name: object) -> bool:
        return name in self.__struct_fields__

    def __iter__(self) -> Iterator[str]:
        return iter(self.__struct_fields__)

    def get(self, name: str, default: Any = None) -> Any:
        """A field, or `default` where there is none of this name."""
        return getattr(self, name) if name in self.__struct_fields__ else default

    def keys(self) -> tuple[str, ...]:
        """The fields' names."""
        return self.__struct_fields__

    def items(self) -> list[tuple[str, Any]]:
        """The fields, by name."""
        return [(name, self[name]) for name in self]

    def model_dump(self) -> dict[str, Any]:
        """The fields as a dict."""
        told: dict[str, Any] = msgspec.to_builtins(self)
        return told

    def model_dump_json(self, *, indent: int | None = None) -> str:
        """The fields as JSON."""
        return to_json(self.model_dump(), type(self).__name__, indent)


def to_json(given: Mapping[str, Any], where: str, indent: int | None = None) -> str:
    """A dict as JSON.

    Raises:
        SwarmError: a value has no such form.
    """
    try:
        told = msgspec.json.encode(to_plain(given))
        return (told if indent is None else msgspec.json.format(told, indent=indent)).decode()
    except JSON_ERRORS as error:
        raise SwarmError(f"a value is no JSON: {error}", where) from error
