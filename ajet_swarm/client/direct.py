"""`SwarmClient._http_client`: plain HTTP, for scripts that claim episodes themselves."""

from typing import TYPE_CHECKING

import msgspec

from ajet_swarm.protocol.schemas import ClaimAnswer

if TYPE_CHECKING:
    import httpx

    from ajet_swarm.client.synchronous import SwarmClient

TIMEOUT = 30.0
"""Timeout of a request in seconds, as in AgentJet's client."""
CLAIM = "/claim_episode"


class _ClaimFields(msgspec.Struct):
    """The fields of a claim request that are used here."""

    client_uuid: str = ""
    episode_type: str = "train"
    discard_episode_timeout: float = 240.0


class LazyHttpClient:
    """Descriptor of `SwarmClient` that creates its `httpx.Client` on first access.

    Any number of threads may use the HTTP client. If a script claims an episode with it, under the
    uuid of the `SwarmClient`, the `SwarmClient` can end and abort the episode like any other.

    Raises:
        WrongUse: the `SwarmClient` is closed, or was created in another process.
    """

    def __get__(self, client: "SwarmClient", kind: "type[SwarmClient]") -> "httpx.Client":
        with client._thread.closing:
            client._thread.check_usable()
            if client._http is None:
                client._http = _http_client(client)
            return client._http


def _http_client(client: "SwarmClient") -> "httpx.Client":
    import httpx  # the import takes 0.1 s, and few scripts need it

    def remember(response: httpx.Response) -> None:
        request = response.request
        if request.method != "POST" or not request.url.path.endswith(CLAIM):
            return
        response.read()
        try:
            claim = msgspec.json.decode(request.content, type=_ClaimFields)
            answer = msgspec.json.decode(response.content, type=ClaimAnswer)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return
        if answer.success and answer.episode_uuid and claim.client_uuid == client.client_uuid:
            idle, kind = claim.discard_episode_timeout, claim.episode_type
            client._thread.run(client._swarm._remember(answer.episode_uuid, idle, kind))

    return httpx.Client(
        timeout=TIMEOUT,
        limits=httpx.Limits(max_keepalive_connections=20),  # does not limit concurrent requests
        trust_env=False,
        event_hooks={"response": [remember]},
    )
