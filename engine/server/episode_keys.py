"""Episode keys: the API key by which a client calls the LLM of an episode (protocol section 3)."""

import base64
import binascii
import hmac
import json
import re
from dataclasses import dataclass

from engine.server.lifecycle import EngineError

_PREFIX = "sk-ajet-"
_NOISE = re.compile(r"Bearer |bearer |sk-ajet-")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class EpisodeKey:
    """Decoded content of an episode's API key."""

    episode_uuid: str
    address: str

    def matches(self, address: str) -> bool:
        """Return whether the key belongs to the episode with this address."""
        return hmac.compare_digest(self.address.encode(), address.encode())


def make_key(episode_uuid: str, address: str) -> str:
    """Return the API key of an episode."""
    payload = {
        "agent_name": "default_agent_name",
        "target_tag": "default_target_tag",
        "episode_uuid": episode_uuid,
        "episode_address": address,
    }
    return _PREFIX + base64.b64encode(json.dumps(payload).encode()).decode()


def parse_key(header: str | None) -> EpisodeKey:
    """Decode an Authorization or x-api-key header, with or without `Bearer `.

    Raises:
        EngineError: 401, with the real server's text.
    """
    if not header:
        raise EngineError(401, "Missing authorization header")
    try:
        payload = json.loads(base64.b64decode(_NOISE.sub("", header).strip(), validate=True))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise EngineError(401, "Invalid authorization header: not a key of this server") from error
    if not isinstance(payload, dict):
        raise EngineError(401, "Invalid authorization data")
    names = [payload.get(name) for name in ("agent_name", "target_tag", "episode_uuid")]
    if not all(isinstance(name, str) and name for name in names):
        raise EngineError(401, "Invalid authorization data")
    return EpisodeKey(
        episode_uuid=replace_surrogates(str(payload["episode_uuid"])),
        address=replace_surrogates(str(payload.get("episode_address", ""))),
    )


def replace_surrogates(text: str) -> str:
    """Return `text` with lone surrogates replaced: JSON can contain them, UTF-8 cannot."""
    return _SURROGATE.sub("\ufffd", text)
