"""The part of a target file that names the model which plays the user."""

import os
import re
from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.urls import web_address
from core.runtime.secrets import env_key
from mock.targets.spec_fields import TargetFields

WHOSE = "the key of the model that plays the user"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBERS: Mapping[str, Any] = {
    "temperature": Annotated[float, Meta(ge=0, le=2)],
    "turns": Annotated[int, Meta(ge=1, le=100)],
    "tokens": Annotated[int, Meta(ge=16, le=65_536)],
    "seed": Annotated[int, Meta(ge=0, le=2**31)],
}


def read_user(fields: TargetFields) -> Mapping[str, Any]:
    """The fields of `user:` that are given; empty without it.

    Raises:
        TargetFileError: it cannot be used; says line and field. Never says what a variable holds.
    """
    inner = fields.inner("user")
    if inner is None:
        return {}
    inner.require("url", "url: https://HOST/v1")
    inner.require("model", "model: NAME")
    found: dict[str, Any] = {"url": inner.text("url"), "model": inner.text("model")}
    parts = web_address(found["url"])
    if parts is None or parts.username or parts.query:
        raise inner.fault("url", "is not an address", "Give it as https://HOST/v1")
    if not found["model"].strip():
        raise inner.fault("model", "is empty", "Give the model's name at that address")
    found["key_env"] = _key_env(inner)
    for name, kind in _NUMBERS.items():
        if name in inner:
            found[name] = inner.get(name, kind)
    if "stop" in inner:
        found["stop"] = inner.text("stop")
        if not 1 <= len(found["stop"]) <= 100:
            raise inner.fault("stop", "is empty or longer than 100 characters")
    inner.check_unknown()
    return found


def _key_env(fields: TargetFields) -> str:
    name = fields.text("key_env")
    if not name:
        return ""
    if not _NAME.fullmatch(name):
        todo = "Put the key in a variable and give its name, never the key itself"
        raise fields.fault("key_env", "is no name of a variable", todo)
    try:
        env_key(name, WHOSE, os.environ)
    except UsageError as error:
        raise fields.fault("key_env", f"names `{name}`: {error.what}", error.todo) from error
    return name
