"""Detects PyPI's package `mock` in this environment: the mock user's package has the same name."""

import importlib.util
from importlib import metadata
from pathlib import Path

REMEDY = "Install ajet-console in its own environment: with pipx, uvx or `make run`"
"""What the operator can do about a collision."""
_OURS = Path(__file__).resolve().parents[2] / "mock" / "__init__.py"


def mock_collision() -> str:
    """Describe what is wrong with this environment's package `mock`; empty when it is ours.

    The package is not imported.
    """
    try:
        installed = metadata.version("mock")
    except metadata.PackageNotFoundError:
        installed = ""
    if installed:
        return (
            f"PyPI's package `mock` {installed} is in this environment and overwrites or hides the "
            "mock user's package of the same name"
        )
    spec = importlib.util.find_spec("mock")
    if spec is None or spec.origin is None:
        return "the mock user's package `mock` cannot be imported"
    if Path(spec.origin).resolve() != _OURS:
        return f"another package `mock` hides the mock user's: {spec.origin}"
    return ""
