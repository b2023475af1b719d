"""Parsing of addresses that people enter."""

from urllib.parse import SplitResult, urlsplit


def web_address(url: str) -> SplitResult | None:
    """Return the parts of an http or https address; None when it is not one or names no host."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError for a wrong port
    except ValueError:
        return None
    return parts if parts.scheme in ("http", "https") and parts.hostname else None


def server_root(url: str) -> str:
    """Return the address of a swarm server without trailing slashes and the `/v1` of OpenAI routes.

    A server prints its address with `/v1`, as clients of those routes need it.
    """
    return url.strip().rstrip("/").removesuffix("/v1").rstrip("/")
