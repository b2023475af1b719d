"""The settings as they stand in a file: no key is lost, no word taken for a truth."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
import yaml

from ajet_swarm.common.errors import UsageError

_WORDS = {"yes": True, "on": True, "no": False, "off": False}


class SettingsError(UsageError):
    """A setting is misspelt or invalid."""


class _Loader(yaml.SafeLoader):
    """YAML whose truths are `true` and `false`: `mode: off` is a word. No key stands twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        lines: dict[Any, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if isinstance(key, yaml.ScalarNode) and lines.setdefault(key.value, line) != line:
                raise yaml.MarkedYAMLError(
                    problem=f"`{key.value}` stands here twice, first in line {lines[key.value]}",
                    problem_mark=key.start_mark,
                )
        return super().construct_mapping(node, deep)


def _truth(loader: _Loader, node: yaml.ScalarNode) -> bool | str:
    text: str = node.value
    return text.lower() == "true" if text.lower() in ("true", "false") else text


_Loader.add_constructor("tag:yaml.org,2002:bool", _truth)


def read_settings(file: Path) -> dict[str, Any]:
    """The file's keys and values; none of a file that is not there.

    Raises:
        SettingsError: it cannot be read, is no YAML, or has a key twice; names file and line.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        if file.is_symlink():
            raise SettingsError("the settings are a link that leads nowhere", str(file)) from error
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"the settings cannot be read: {error}", str(file)) from error
    try:
        data = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f":{mark.line + 1}" if mark else ""
        what = error.problem or error.context or "it cannot be understood"
        if "stands here twice" not in what:
            what = f"this is not YAML: {what}"
        raise SettingsError(what, where=f"{file}{line}") from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise SettingsError("the settings must be `key: value` lines", where=str(file))
    return data


def switched(values: Mapping[str, Any], model: type[msgspec.Struct]) -> dict[str, Any]:
    """`values` with `on`, `off`, `yes` and `no` as truths where the model has one."""
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(model)}
    return {key: _switched(value, fields.get(key)) for key, value in values.items()}


def _switched(value: Any, kind: Any) -> Any:
    if kind is bool and isinstance(value, str):
        return _WORDS.get(value.lower(), value)
    if isinstance(value, Mapping) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return switched(value, kind)
    if isinstance(value, Mapping) and get_origin(kind) is dict:
        return {key: _switched(inner, get_args(kind)[1]) for key, inner in value.items()}
    return value
