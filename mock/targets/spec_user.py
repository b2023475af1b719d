"""The part of a target file that names the model which plays the user."""

import os
import re
from collections.abc import Mapping
from typing import Any

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.urls import web_address
from core.runtime.secrets import env_key
from mock.targets.spec_fields import Sheet

WHOSE = "the key of the model that plays the user"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TURNS = (1, 100)
_TOKENS = (16, 65_536)


def read_user(sheet: Sheet) -> Mapping[str, Any]:
    """The fields of `user:` that are given; empty without it.

    Raises:
        TargetFileError: it cannot be used; says line and field. Never says what a variable holds.
    """
    inner = sheet.inner("user")
    if inner is None:
        return {}
    inner.need("url", "url: https://HOST/v1")
    inner.need("model", "model: NAME")
    found: dict[str, Any] = {"url": inner.text("url"), "model": inner.text("model")}
    parts = web_address(found["url"])
    if parts is None or parts.username or parts.query:
        raise inner.wrong("url", "is not an address", "Give it as https://HOST/v1")
    if not found["model"].strip():
        raise inner.wrong("model", "is empty", "Give the model's name at that address")
    found["key_env"] = _key_env(inner)
    if "temperature" in inner:
        found["temperature"] = inner.number("temperature", 1.0, 0.0, 2.0)
    for name, (least, most) in {"turns": _TURNS, "tokens": _TOKENS, "seed": (0, 2**31)}.items():
        if name in inner:
            found[name] = int(inner.number(name, least, least, most))
    if "stop" in inner:
        found["stop"] = inner.text("stop")
        if not 1 <= len(found["stop"]) <= 100:
            raise inner.wrong("stop", "is empty or longer than 100 characters")
    inner.done()
    return found


def _key_env(sheet: Sheet) -> str:
    name = sheet.text("key_env")
    if not name:
        return ""
    if not _NAME.fullmatch(name):
        todo = "Put the key in a variable and give its name, never the key itself"
        raise sheet.wrong("key_env", "is no name of a variable", todo)
    try:
        env_key(name, WHOSE, os.environ)
    except UsageError as error:
        raise sheet.wrong("key_env", f"names `{name}`: {error.what}", error.todo) from error
    return name
