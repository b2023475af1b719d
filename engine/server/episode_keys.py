"""Episode keys: what a client sends as its API key (protocol section 3)."""

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
    """What an episode's API key says."""

    episode_uuid: str
    address: str

    def opens(self, address: str) -> bool:
        """Whether the key was given out for the record with this address."""
        return hmac.compare_digest(self.address.encode(), address.encode())


def make_key(episode_uuid: str, address: str) -> str:
    """The API key of an episode."""
    facts = {
        "agent_name": "default_agent_name",
        "target_tag": "default_target_tag",
        "episode_uuid": episode_uuid,
        "episode_address": address,
    }
    return _PREFIX + base64.b64encode(json.dumps(facts).encode()).decode()


def parse_key(header: str | None) -> EpisodeKey:
    """Read an Authorization or x-api-key header, with or without `Bearer `.

    Raises:
        Refused: 401, in the words of the real server.
    """
    if not header:
        raise EngineError(401, "Missing authorization header")
    try:
        facts = json.loads(base64.b64decode(_NOISE.sub("", header).strip(), validate=True))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise EngineError(401, "Invalid authorization header: not a key of this server") from error
    if not isinstance(facts, dict):
        raise EngineError(401, "Invalid authorization data")
    names = [facts.get(name) for name in ("agent_name", "target_tag", "episode_uuid")]
    if not all(isinstance(name, str) and name for name in names):
        raise EngineError(401, "Invalid authorization data")
    return EpisodeKey(
        episode_uuid=replace_surrogates(str(facts["episode_uuid"])),
        address=replace_surrogates(str(facts.get("episode_address", ""))),
    )


def replace_surrogates(text: str) -> str:
    """Half of a surrogate pair cannot be encoded; JSON can carry it all the same."""
    return _SURROGATE.sub("\ufffd", text)
