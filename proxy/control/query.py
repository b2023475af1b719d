"""Parameters in the query of a request to the control API."""

import re

from ajet_swarm.common.errors import UsageError

_INTEGER = re.compile(r"-?[0-9]{1,18}")


def integer(text: str, name: str) -> int:
    """Return the whole number of the parameter `name`.

    Raises:
        UsageError: it is not a whole number; the request is answered with status 400.
    """
    if not _INTEGER.fullmatch(text):
        raise UsageError(f"`{name}` must be a whole number")
    return int(text)
