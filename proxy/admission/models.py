"""The list of models in vLLM's form, and checks of a request's model."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ajet_swarm.common.text import one_line
from ajet_swarm.runtime import Runtime
from core.settings import Settings
from proxy.context import ServerHandle
from proxy.http.errors import ApiError

FALLBACK = "ajet"
"""Model name if neither the settings nor the server give one."""
_FILES = ("file", "input_file", "input_audio", "audio_url", "video_url")


def public_name(path: str | None) -> str:
    """Return a model's name for clients: of a local path only the last part."""
    name = (path or "").replace("\\", "/").rstrip("/")
    local = name.startswith(("/", ".", "~")) or name[1:2] == ":"
    return name.rpartition("/")[2] if local else name


def model_names(settings: Settings, upstreams: Mapping[str, str | None]) -> list[str]:
    """Return the served model names, the default first.

    Args:
        settings: `served_model_name` takes precedence over the upstream's own name.
        upstreams: Name of each swarm server -> path of its model. With several servers, the name of
            each server is a model name too.
    """
    first = next(iter(upstreams.values()), None)
    default = settings.proxy.served_model_name or public_name(first) or FALLBACK
    others = [name for name in upstreams if name != default] if len(upstreams) > 1 else []
    return [default, *others]


def check_model(settings: Settings, model: str, names: Sequence[str]) -> None:
    """Refuse an unknown model if `served_model_name` is set; an empty name is accepted.

    Raises:
        ApiError: vLLM's 404.
    """
    if settings.proxy.served_model_name and model and model not in names:
        raise no_model(model, names)


def no_model(model: str, names: Sequence[str]) -> ApiError:
    """Return vLLM's 404 for an unknown model."""
    text = f"The model `{model}` does not exist. Valid aliases: {', '.join(names)}."
    return ApiError(404, None, text, param="model")


def model_card(
    name: str, created: float, max_model_len: int | None, runtime: Runtime
) -> dict[str, Any]:
    """Return one entry of the list of models.

    Args:
        name: Name of the model.
        created: Start of the proxy in Unix seconds.
        max_model_len: Context window in tokens; None if unknown.
        runtime: For the time and the id of the entry.
    """
    now = int(runtime.clock.wall())
    permission = {
        "id": f"modelperm-{runtime.chance.token(8)}",
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
    """Return the response body of `/v1/models`."""
    return msgspec.json.encode({"object": "list", "data": cards})


def check_vision(server: ServerHandle, settings: Settings, *, own: bool) -> None:
    """Refuse a request with an image if the server's model accepts text only.

    In observe mode the upstream decides.

    Args:
        server: The server.
        settings: The settings, which may declare that a server's model accepts images.
        own: The server runs the embedded engine, whose models accept text only.

    Raises:
        ApiError: A 400 with the reason.
    """
    known = settings.server.get(server.name)
    embedded = own or settings.servers().get(server.name) == "embedded"
    if not server.trains or (known is not None and known.vision and not embedded):
        return
    name = one_line(server.name, 60)
    if embedded:
        text = f"Server `{name}` is the embedded engine, which accepts text only, no images."
    else:
        text = (
            f"Server `{name}` accepts text only, but the request contains an image. "
            f"Set servers.{name}.vision: true if its model accepts images."
        )
    raise ApiError(400, None, text, param="messages")


def check_files(server: ServerHandle, messages: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a file, audio or video after the last answer, which a server that trains would drop.

    Raises:
        ApiError: A 400 with the reason.
    """
    if not server.trains:
        return
    for back, message in enumerate(reversed(messages)):
        if back and message.get("role") == "assistant":  # the last one is the answer's beginning
            return
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and (kind := part.get("type")) in _FILES:
                name = one_line(server.name, 60)
                text = f"Server `{name}` does not accept content parts of type '{kind}'."
                raise ApiError(400, None, text, param="messages")
