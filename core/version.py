"""Version of the program."""

from functools import cache


@cache
def version() -> str:
    """Return the installed version; `0+source` for a source tree that was never installed."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("ajet-console")
    except PackageNotFoundError:
        return "0+source"
