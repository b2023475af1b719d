"""The list of models in vLLM's form, and what a named model can take."""

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ajet_swarm.common.text import one_line
from core.settings import Settings
from proxy.context import ServerHandle
from proxy.http.errors import ApiError

FALLBACK = "ajet"
"""What the policy is called when nobody has named it."""


def shown_name(path: str | None) -> str:
    """A model's name as clients may see it: of a path only the last part."""
    name = (path or "").replace("\\", "/").rstrip("/")
    local = name.startswith(("/", ".", "~")) or name[1:2] == ":"
    return name.rpartition("/")[2] if local else name


def model_names(settings: Settings, upstreams: Mapping[str, str | None]) -> list[str]:
    """What is served, the default first.

    Args:
        settings: `served_model_name` goes before the upstream's own name.
        upstreams: Each swarm server's name and its model's path; with several servers each can be
            asked for by its name.
    """
    first = next(iter(upstreams.values()), None)
    default = settings.proxy.served_model_name or shown_name(first) or FALLBACK
    others = [name for name in upstreams if name != default] if len(upstreams) > 1 else []
    return [default, *others]


def check_model(settings: Settings, asked: str, names: Sequence[str]) -> None:
    """Refuse a model that is not served; only when a name was set. An empty one is served.

    Raises:
        ApiError: vLLM's 404.
    """
    if settings.proxy.served_model_name and asked and asked not in names:
        raise no_model(asked, names)


def no_model(asked: str, names: Sequence[str]) -> ApiError:
    """vLLM's 404 for a model that is not served."""
    text = f"The model `{asked}` does not exist. Valid aliases: {', '.join(names)}."
    return ApiError(404, None, text, param="model")


def model_card(name: str, created: float, max_model_len: int | None) -> dict[str, Any]:
    """One entry of the list."""
    now = int(time.time())
    permission = {
        "id": f"modelperm-{secrets.token_hex(8)}",
        "object": "model_permission",
        "created": now,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    return {
        "id": name,
        "object": "model",
        "created": int(created),
        "owned_by": "vllm",
        "root": name,
        "parent": None,
        "max_model_len": max_model_len,
        "permission": [permission],
    }


def model_list(cards: list[dict[str, Any]]) -> bytes:
    """The whole answer."""
    return msgspec.json.encode({"object": "list", "data": cards})


def check_vision(server: ServerHandle, settings: Settings, *, own: bool) -> None:
    """Refuse a request with an image for a server that takes text only.

    Args:
        own: The server is known to run the embedded engine, whose models take text only.

    Raises:
        ApiError: a 400 with the reason. In observe mode the upstream decides.
    """
    known = settings.server.get(server.name)
    embedded = own or settings.servers().get(server.name) == "embedded"
    if server.observes or (known is not None and known.vision and not embedded):
        return
    name = one_line(server.name, 60)
    if embedded:
        text = f"Server `{name}` is the embedded engine, which takes text only: it sees no images."
    else:
        text = (
            f"Server `{name}` takes text only, and the request holds an image. "
            f"Set servers.{name}.vision: true if its model sees images."
        )
    raise ApiError(400, None, text, param="messages")
