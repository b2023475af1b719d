"""Whether PyPI's package `mock` shares this environment with ours, which has the same name."""

import importlib.util
from importlib import metadata
from pathlib import Path

CURE = "Install ajet-console in an environment of its own: with pipx, uvx or `make run`"
"""What to do about it."""
_OURS = Path(__file__).resolve().parents[2] / "mock" / "__init__.py"


def mock_collision() -> str:
    """Return what is wrong with the package `mock` of this environment; empty when it is ours.

    Nothing of the package is imported.
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
