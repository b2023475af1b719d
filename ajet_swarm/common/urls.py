"""Addresses on the web, as people give them."""

from urllib.parse import SplitResult, urlsplit


def web_address(url: str) -> SplitResult | None:
    """The parts of an address over http or https; None where it is none, or leads to no host."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # looked at only here: a wrong one is an error
    except ValueError:
        return None
    return parts if parts.scheme in ("http", "https") and parts.hostname else None


def server_root(url: str) -> str:
    """The address of a swarm server, without the `/v1` of its OpenAI routes and slashes at its end.

    A server prints its address with `/v1`, as clients of those routes need it.
    """
    return url.strip().rstrip("/").removesuffix("/v1").rstrip("/")
