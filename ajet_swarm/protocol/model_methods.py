"""What scripts use of AgentJet's models, which are pydantic's: methods and lenient constructors."""

import copy
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, Self, TypeVar, dataclass_transform, get_origin

import msgspec

from ajet_swarm.protocol.errors import SwarmError, WrongUse

log = logging.getLogger(__name__)

Fields = dict[str, Any]

M = TypeVar("M", bound="Model")

_WARNED: set[tuple[str, str]] = set()
"""Class and field of each warning about an ignored field."""


class Model:
    """Base of dataclasses with pydantic's methods for copies, dicts and JSON.

    Raises:
        WrongUse: a field that is declared as text, truth value, list or dict has another type.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        for declared in fields(self):  # type: ignore[arg-type]  # each of them is a dataclass
            kind: Any = get_origin(declared.type) or declared.type
            value = getattr(self, declared.name)
            if kind in (str, bool, list, dict) and not isinstance(value, kind):
                raise WrongUse(
                    f"`{declared.name}` is a {type(value).__name__}, not a {kind.__name__}",
                    self._place(),
                )

    def _place(self) -> str:
        """Return the name of this object in errors."""
        return type(self).__name__

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
            field.name
            for field in fields(cls)  # type: ignore[arg-type]  # each of them is a dataclass
            if field.default is MISSING and field.default_factory is MISSING
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


@dataclass_transform(field_specifiers=(field,))
def model(*, kw_only: bool = False) -> Callable[[type[M]], type[M]]:
    """Return a decorator that makes a dataclass whose constructor is as lenient as AgentJet's.

    An unknown field is ignored, with one warning; None for a list or a dict means an empty one.

    Args:
        kw_only: All fields are keyword arguments.
    """

    def decorate(plain: type[M]) -> type[M]:
        made = dataclass(slots=True, kw_only=kw_only)(plain)
        parts = fields(made)  # type: ignore[arg-type]  # it is a dataclass by now
        names = [part.name for part in parts]
        empty = {part.name for part in parts if part.default_factory is not MISSING}
        strict: Any = made.__init__

        def lenient(self: M, *args: Any, **values: Any) -> None:
            for name in [name for name in values if name not in names]:
                del values[name]
                if (made.__name__, name) not in _WARNED:
                    _WARNED.add((made.__name__, name))
                    known = ", ".join(names)
                    log.warning("a %s has no `%s`: ignored. It has %s", made.__name__, name, known)
            for name in empty & values.keys():
                if values[name] is None:
                    del values[name]
            strict(self, *args, **values)

        made.__init__ = lenient  # type: ignore[method-assign, assignment]  # with any argument
        return made

    return decorate


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


def to_plain(value: Any) -> Any:
    """Return a value as dicts, lists, text and numbers; convert numpy values and models.

    Raises:
        TypeError, ValueError, RecursionError, msgspec.MsgspecError: a part of it has no JSON form
            (`JSON_ERRORS`).
    """
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_convert)


JSON_ERRORS = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)
"""Errors of `to_plain`, and of encoding its result."""


def _convert(value: Any) -> Any:
    for name in ("tolist", "model_dump"):
        if callable(method := getattr(value, name, None)):
            return method()
    raise TypeError(f"a {type(value).__name__} has no JSON form")
