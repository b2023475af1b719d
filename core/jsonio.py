"""JSON of records with every field, for readers without this program: scripts, other tools.

In the journal and on the wire records omit fields that have their default.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import msgspec


def every_field(value: Any) -> Any:
    """Return `value` with each record in it as a dict of all its fields, its kind first.

    Fields have the names that they have in other JSON of the record.
    """
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        fields = {} if config.tag_field is None else {config.tag_field: config.tag}
        names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
        for attribute, name in names:
            fields[name] = every_field(getattr(value, attribute))
        return fields
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        attributes = [field.name for field in dataclasses.fields(value)]
        return {name: every_field(getattr(value, name)) for name in attributes}
    if isinstance(value, Mapping):
        return {name: every_field(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [every_field(item) for item in value]
    return value


def encode_full(value: Any) -> bytes:
    """Return `value` as one line of JSON with every field."""
    return msgspec.json.encode(every_field(value))
