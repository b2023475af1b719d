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
