"""Reader of the settings file: every key with its line; only `true` and `false` are booleans."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

import msgspec
import yaml

from ajet_swarm.common.text import one_line
from ajet_swarm.common.yaml_positions import PlacedErrors, YamlError, construct, positions
from core.settings.yaml_file import Faults, FileFault

_WORDS = {"yes": True, "on": True, "no": False, "off": False}


class SettingsError(FileFault):
    """A setting is misspelt or invalid."""


class Source(NamedTuple):
    """A source of settings: a file, the environment, or the command line."""

    name: str
    lines: Mapping[str, int] = {}
    """Dotted path of each key in a file -> its line, from 1; empty for other sources."""

    def place(self, path: str) -> str:
        """Return the place of a key: `FILE:LINE`, or the name of the source."""
        path = path.partition("[")[0]
        while path and path not in self.lines:
            path = path.rpartition(".")[0]
        return f"{self.name}:{self.lines[path]}" if path else self.name


class _Loader(PlacedErrors, yaml.SafeLoader):
    """YAML loader whose only booleans are `true` and `false`: `mode: off` is a text."""


def _boolean(loader: _Loader, node: yaml.ScalarNode) -> bool | str:
    text: str = node.value
    return text.lower() == "true" if text.lower() in ("true", "false") else text


_Loader.add_constructor("tag:yaml.org,2002:bool", _boolean)


def read_settings(file: Path) -> tuple[dict[str, Any], Source]:
    """Return the keys and values of a file, and its lines; both are empty for a missing file.

    Raises:
        SettingsError: it cannot be read, is not YAML, or repeats a key; gives file and line.
    """
    try:
        text = _faults(file).read(file)
    except SettingsError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        if file.is_symlink():
            raise SettingsError("the settings are a broken symbolic link", str(file)) from error
        return {}, Source(str(file))
    return parse_settings(text, file)


def parse_settings(text: str, file: Path) -> tuple[dict[str, Any], Source]:
    """Return the keys and values of a text, and their lines.

    Raises:
        SettingsError: it is not YAML, or repeats a key; gives file and line.
    """
    root = _faults(file).compose(text)
    try:
        source = Source(str(file), positions(root))
        data = construct(root, _Loader) if root is not None else None
    except YamlError as error:
        where = f"{file}:{error.line}" if error.line else str(file)
        problem = one_line(error.problem)
        if error.is_syntax:
            problem = f"a value cannot be read: {problem}"
        raise SettingsError(problem, where, line=error.line) from error
    if not isinstance(data, dict | None):
        raise SettingsError("the settings must be `key: value` lines", str(file))
    return data or {}, source


def _faults(file: Path) -> Faults[SettingsError]:
    def fault(line: int, field: str, problem: str, todo: str) -> SettingsError:
        where = f"{file}:{line}" if line else str(file)
        return SettingsError(f"this {problem}", where, todo, line)

    return Faults(SettingsError, fault)


def with_booleans(values: Mapping[str, Any], model: type[msgspec.Struct]) -> dict[str, Any]:
    """Return `values` with `on`, `off`, `yes` and `no` as booleans for fields of type bool."""
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(model)}
    return {key: _with_boolean(value, fields.get(key)) for key, value in values.items()}


def _with_boolean(value: Any, kind: Any) -> Any:
    if kind is bool and isinstance(value, str):
        return _WORDS.get(value.lower(), value)
    if isinstance(value, Mapping) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return with_booleans(value, kind)
    if isinstance(value, Mapping) and get_origin(kind) is dict:
        return {key: _with_boolean(inner, get_args(kind)[1]) for key, inner in value.items()}
    return value
