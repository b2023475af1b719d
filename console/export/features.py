"""Types of the columns of a file, for Parquet and for the library `datasets`.

Source: datasets 5.2, `datasets/features/features.py` (`Features._to_yaml_list`): the types in the
dataset card make `load_dataset(FOLDER)` read every row alike. Without them it infers the types from
the first ten megabytes, and refuses a later row that has, say, the first tool call.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]


def arrow_schema(features: Mapping[str, Any]) -> "pyarrow.Schema":
    """Return the Arrow schema of the columns, in alphabetical order."""
    import pyarrow

    return pyarrow.schema([(name, _arrow_type(features[name])) for name in sorted(features)])


def _arrow_type(feature: Any) -> Any:
    import pyarrow

    if isinstance(feature, Mapping):
        return pyarrow.struct([(name, _arrow_type(feature[name])) for name in sorted(feature)])
    if isinstance(feature, list):
        return pyarrow.list_(_arrow_type(feature[0]))
    plain = {
        "string": pyarrow.string(),
        "int64": pyarrow.int64(),
        "float64": pyarrow.float64(),
        "bool": pyarrow.bool_(),
    }
    return plain[feature]


def yaml_features(features: Mapping[str, Any], indent: int = 2) -> list[str]:
    """Return the lines of `features` in the YAML of a dataset card."""
    lines: list[str] = []
    pad = " " * indent
    for name, feature in features.items():
        lines.append(f"{pad}- name: {name}")
        lines += _yaml_type(feature, indent + 2)
    return lines


def _yaml_type(feature: Any, indent: int) -> list[str]:
    pad = " " * indent
    if isinstance(feature, Mapping):
        return [f"{pad}struct:", *yaml_features(feature, indent)]
    if isinstance(feature, list):
        inner = feature[0]
        if isinstance(inner, Mapping):
            return [f"{pad}list:", *yaml_features(inner, indent)]
        return [f"{pad}list: {inner}"]
    return [f"{pad}dtype: {feature}"]
