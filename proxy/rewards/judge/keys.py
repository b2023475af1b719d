"""The key of a judge: where it comes from, and whether it can be one."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from core.runtime.secrets import is_placeholder


class Key(msgspec.Struct, frozen=True):
    """A key, or why there is none."""

    value: str = ""
    """Empty: none is sent."""
    fault: str = ""
    """Why nothing can be asked; never holds the key."""
    todo: str = ""


def find(env: str | None, file: Path | None, environ: Mapping[str, str] | None = None) -> Key:
    """The key that the settings name.

    Args:
        env: Name of a variable.
        file: File that holds it.
        environ: Variables; those of the process when left out.
    """
    if env is not None:
        found = (os.environ if environ is None else environ).get(env, "").strip()
        what, todo = f"the environment variable {env}", "Set it, then start the proxy again"
        if not found:
            return Key("", f"the judge's key is missing: {what} is not set", todo)
    elif file is not None:
        what, todo = f"the file {file}", "Put the key in it"
        try:
            found = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
            return Key("", f"the judge's key is missing: {what} cannot be read: {why}", todo)
        if not found:
            return Key("", f"the judge's key is missing: {what} is empty", todo)
    else:
        return Key()
    if is_placeholder(found):
        return Key("", f"the judge's key is a placeholder: {what} holds no real key", todo)
    if not found.isascii() or not found.isprintable() or " " in found:
        return Key("", f"the judge's key cannot be one: {what} holds spaces or odd letters", todo)
    return Key(found)
