"""Which version of the program this is."""

from functools import cache


@cache
def version() -> str:
    """The installed version; `0+source` when it runs from a tree that was never installed."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("ajet-console")
    except PackageNotFoundError:
        return "0+source"
