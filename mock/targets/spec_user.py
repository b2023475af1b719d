"""Reader of `user:` in a target file: the model that plays the user."""

import os
import re
from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.urls import web_address
from core.runtime.secrets import env_key
from mock.targets.spec_fields import TargetFields

KEY_OWNER = "the key of the model that plays the user"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER_TYPES: Mapping[str, Any] = {
    "temperature": Annotated[float, Meta(ge=0, le=2)],
    "turns": Annotated[int, Meta(ge=1, le=100)],
    "tokens": Annotated[int, Meta(ge=16, le=65_536)],
    "seed": Annotated[int, Meta(ge=0, le=2**31)],
}


def read_user(fields: TargetFields) -> Mapping[str, Any]:
    """Return the fields present in `user:`; empty without it.

    Raises:
        TargetFileError: a field is invalid; gives line and field, never a variable's value.
    """
    inner = fields.inner("user")
    if inner is None:
        return {}
    inner.require("url", "url: https://HOST/v1")
    inner.require("model", "model: NAME")
    user: dict[str, Any] = {"url": inner.text("url"), "model": inner.text("model")}
    parts = web_address(user["url"])
    if parts is None or parts.username or parts.query:
        raise inner.fault("url", "is not an address", "Give it as https://HOST/v1")
    if not user["model"].strip():
        raise inner.fault("model", "is empty", "Give the model's name at that address")
    user["key_env"] = _key_env(inner)
    for name, number_type in _NUMBER_TYPES.items():
        if name in inner:
            user[name] = inner.get(name, number_type)
    if "stop" in inner:
        user["stop"] = inner.text("stop")
        if not 1 <= len(user["stop"]) <= 100:
            raise inner.fault("stop", "is empty or longer than 100 characters")
    inner.check_unknown()
    return user


def _key_env(fields: TargetFields) -> str:
    name = fields.text("key_env")
    if not name:
        return ""
    if not _NAME.fullmatch(name):
        todo = "Put the key in a variable and give its name, never the key itself"
        raise fields.fault("key_env", "is not a valid variable name", todo)
    try:
        env_key(name, KEY_OWNER, os.environ)
    except UsageError as error:
        raise fields.fault("key_env", f"names `{name}`: {error.what}", error.todo) from error
    return name
