"""What is needed to attach to a proxy that runs elsewhere: its token, read with clear errors."""

from pathlib import Path

from ajet_swarm.common.errors import AjetError


class NoToken(AjetError):
    """The control token of the proxy cannot be read."""


def read_token(file: Path) -> str:
    """The control token in a file; blocks.

    Raises:
        NoToken: the file is not there, cannot be read or holds no token.
    """
    todo = (
        "Give the token of that proxy with --token-file: it is the file `token` in the home that "
        "proxy runs in"
    )
    try:
        token = file.expanduser().read_text(encoding="utf-8").strip()
    except OSError as error:
        why = error.strerror or str(error)
        raise NoToken(f"the control token cannot be read: {why}", str(file), todo) from error
    except UnicodeDecodeError as error:
        raise NoToken("the control token is no text", str(file), todo) from error
    if not token or not token.isascii() or not token.isprintable():
        raise NoToken("the file holds no control token", str(file), todo)
    return token
