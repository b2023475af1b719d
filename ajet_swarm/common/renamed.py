"""Earlier names of classes, which scripts may still import."""

import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any


def renamed(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a `__getattr__` for a module that finds earlier names, with a DeprecationWarning.

    Args:
        module: The module's `__name__`.
        names: Earlier name -> name now.
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{name} is now {names[name]}", DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(module), names[name])

    return find
