"""Records with every field, for whoever reads them without this program: scripts, other tools.

Events go to the journal and over the wire without what is as always; only who knows the defaults
can read that.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import msgspec


def every_field(value: Any) -> Any:
    """`value` with all records in it as dicts of all their fields, a record's kind first."""
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        told = {} if config.tag_field is None else {config.tag_field: config.tag}
        for name in value.__struct_fields__:
            told[name] = every_field(getattr(value, name))
        return told
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: every_field(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {name: every_field(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [every_field(one) for one in value]
    return value


def encode_full(value: Any) -> bytes:
    """One line of JSON with every field."""
    return msgspec.json.encode(every_field(value))
