"""The typed client of the control API, used by consoles, mock users and command lines."""

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from ajet_swarm.common.errors import AjetError
from core.commands.plan import Plan
from core.control_payloads import EpisodeTokens, JobInfo, RewindPlan, ServerDetails
from core.events import AnyEvent, Event, decode, encode
from core.journal.reader import HistoryPage
from core.roles import OWNER, Identity
from core.runtime.tls import verification_for
from core.settings.effective import EffectiveSettings
from core.state import Group, RunPoint, State

T = TypeVar("T")

PING_LIMIT = 15.0
"""Seconds without a byte after which the feed counts as lost; the server pings every 5."""


class ControlError(AjetError):
    """The proxy refused a request; the message is the proxy's own."""

    def __init__(self, what: str, where: str = "", todo: str = "", status: int = 0) -> None:
        self.status = status
        super().__init__(what, where, todo)


class ControlLost(AjetError):
    """The proxy does not respond."""


class Reset(msgspec.Struct, frozen=True):
    """The feed cannot continue from the client's last event: read the snapshot again."""


class CommandReply(msgspec.Struct, frozen=True):
    """The result of a command that was executed."""

    ok: bool
    message: str
    result: dict[str, Any] = msgspec.field(default_factory=dict)


class _Snapshot(msgspec.Struct):
    state: State
    identity: Identity = OWNER


class ControlClient:
    """Client of one proxy's control API.

    Args:
        url: Base URL of the proxy.
        token: Its control token.
        transport: Transport of the requests; None for the network.
        cert: File with the proxy's certificate, if no public authority signed it.
        read_only: Refuse every request that would change something.
    """

    def __init__(
        self,
        url: str,
        token: str,
        transport: httpx.AsyncBaseTransport | None = None,
        cert: str = "",
        *,
        read_only: bool = False,
    ) -> None:
        self.url = url.rstrip("/")
        self.read_only = read_only
        self.identity = OWNER
        """Name and role of the token, from the last snapshot."""
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers={"authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(10.0, read=30.0),
            transport=transport,
            verify=verification_for(url, cert),
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def snapshot(self, *, whole: int | None = None) -> State:
        """Return the present state; the feed continues after `state.seq`.

        Args:
            whole: Number of newest groups whose texts are needed. Older closed groups and ended
                engine runs are brief, see `groups` and `curves`. None for everything.
        """
        query = "" if whole is None else f"?whole={whole}"
        snapshot = await self._get(f"/control/snapshot{query}", _Snapshot)
        self.identity = snapshot.identity
        return snapshot.state

    async def groups(self, ids: Sequence[str]) -> list[Group]:
        """Return the whole groups of these ids, without those that have left the state."""
        path = f"/control/snapshot/groups?ids={quote(','.join(ids))}"
        return (await self._get(path, dict[str, list[Group]]))["groups"]

    async def curves(self, numbers: Sequence[int]) -> dict[int, list[RunPoint]]:
        """Return the curves of engine runs by number, without runs that were dropped."""
        path = f"/control/snapshot/curves?runs={','.join(map(str, numbers))}"
        return (await self._get(path, dict[str, dict[int, list[RunPoint]]]))["curves"]

    async def settings(self) -> EffectiveSettings:
        """Return the settings the proxy was started with, without the values of keys.

        Raises:
            ControlError: its version does not report them (status 404).
            ControlLost: the proxy does not respond.
        """
        return await self._get("/control/settings", EffectiveSettings)

    async def events(
        self,
        after: int,
        console: bool = False,
        run_id: str = "",
        holder: str = "",
        rater: str = "",
    ) -> AsyncIterator[AnyEvent | Reset]:
        """Yield the events after `after` as they happen, over one connection.

        Args:
            after: Sequence number of the last known event.
            console: Whether this client counts as an attached console.
            run_id: The run of the proxy that `after` belongs to. A proxy that was killed may have
                lost its last events, so the feed of another run begins with a reset.
            holder: Id of this console, as in its leases.
            rater: Name of its rater, if known.

        Raises:
            ControlLost: the connection broke or fell silent; call again with the last `seq` seen.
        """
        if self._http.is_closed:
            raise self._unreachable("the connection was closed")
        parameters = {"after": str(after), "console": "1" if console else "0", "run": run_id}
        if console and holder:
            parameters |= {"holder": holder, "rater": rater}
        limits = httpx.Timeout(10.0, read=PING_LIMIT)
        try:
            async with self._http.stream(
                "GET", "/control/events", params=parameters, timeout=limits
            ) as response:
                if response.status_code != 200:
                    raise _refused(response.status_code, await response.aread(), self.url)
                async for kind, data in _sse(response):
                    if kind == b"reset":
                        yield Reset()
                    elif kind != b"ping":
                        with contextlib.suppress(msgspec.MsgspecError):  # from a newer version
                            yield decode(data)
        except httpx.HTTPError as error:
            raise self._connection_error(error) from error
        raise ControlLost("the proxy closed the feed", where=self.url)

    async def command(self, name: str, args: Mapping[str, Any]) -> CommandReply:
        """Execute a command of `core.commands`.

        Raises:
            ControlError: the command was refused; gives the reason.
            ControlLost: the proxy does not respond.
        """
        read = 180.0 if name.startswith("engine.") else 60.0  # a real server stops in 19 s
        data = await self._call("POST", f"/control/commands/{name}", args, read=read)
        return _read(data, CommandReply)

    async def plan(self, name: str, args: Mapping[str, Any]) -> Plan:
        """Return what a command of `core.commands` would do now, without executing it.

        Raises:
            ControlError: the command would be refused; gives the reason.
            ControlLost: the proxy does not respond.
        """
        return _read(await self._call("POST", f"/control/plan/{name}", args, reads=True), Plan)

    async def group_events(self, group_id: str) -> list[AnyEvent]:
        """Return all events of one group, with complete texts."""
        path = f"/control/groups/{group_id}"
        return (await self._get(path, dict[str, list[AnyEvent]]))["events"]

    async def history(self, first: int, limit: int) -> HistoryPage:
        """Return groups of the whole journal from position `first` on; 0 is the oldest."""
        return await self._get(f"/control/groups?first={first}&limit={limit}", HistoryPage)

    async def tokens(self, episode_uuid: str, server: str) -> EpisodeTokens:
        """Return the token log of an episode.

        Raises:
            ControlError: its server provides none, or no longer has the episode.
            ControlLost: the proxy does not respond.
        """
        path = f"/control/tokens/{quote(episode_uuid, safe='')}?server={quote(server)}"
        return await self._get(path, EpisodeTokens, read=60.0)

    async def server_details(self, server: str) -> ServerDetails:
        """Return everything that a swarm server reports, read now.

        Raises:
            ControlError: there is no such server.
            ControlLost: the proxy does not respond.
        """
        return await self._get(f"/control/look/{quote(server, safe='')}", ServerDetails)

    async def job(self, server: str) -> JobInfo:
        """Return the jobs of a server: saved, running, presets.

        Raises:
            ControlError: there is no such server, or the saved job cannot be read.
            ControlLost: the proxy does not respond.
        """
        return await self._get(f"/control/job/{quote(server, safe='')}", JobInfo)

    async def rewind_plan(self, server: str, path: str = "") -> RewindPlan:
        """Return what a rewind of a server would do now, or why it is not possible.

        Raises:
            ControlError: there is no such server, or the path is invalid.
            ControlLost: the proxy does not respond.
        """
        query = f"?path={quote(path, safe='')}" if path else ""
        url = f"/control/rewind/{quote(server, safe='')}{query}"
        return await self._get(url, RewindPlan)

    async def register_row(self, row: Mapping[str, Any]) -> str:
        """Announce a dataset row before its request; return its directive, see `mock.control`."""
        response = msgspec.json.decode(await self._call("POST", "/control/rows", row))
        return str(response["directive"])

    async def release_row(self, row_id: str) -> None:
        """End an announced row: no further request is matched with it."""
        await self._call("POST", "/control/rows/over", {"row_id": row_id})

    async def directive(self, mock_id: str) -> str:
        """Return what the mock user should do now: `run`, `pause` or `stop`."""
        found = await self._get(f"/control/mock?mock_id={mock_id}", dict[str, Any])
        return str(found["directive"])

    async def post_fact(self, fact_id: str, event: Event) -> None:
        """Store a fact of the mock user in the journal; repeated posts store it once."""
        body = b'{"id":' + msgspec.json.encode(fact_id) + b',"event":' + encode(event) + b"}"
        await self._call("POST", "/control/facts", body)

    async def _get(self, path: str, kind: type[T], read: float = 30.0) -> T:
        return _read(await self._call("GET", path, read=read), kind)

    async def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | bytes | None = None,
        read: float = 30.0,
        reads: bool = False,
    ) -> bytes:
        if self.read_only and method != "GET" and not reads:
            raise ControlError("this connection is read-only: it sends no commands", path)
        if self._http.is_closed:
            raise self._unreachable("the connection was closed")
        content = msgspec.json.encode(body) if isinstance(body, Mapping) else body
        try:
            response = await self._http.request(
                method,
                path,
                content=content,
                headers={"content-type": "application/json"} if content is not None else None,
                timeout=httpx.Timeout(10.0, read=read),
            )
        except httpx.HTTPError as error:
            raise self._connection_error(error) from error
        if response.status_code != 200:
            raise _refused(response.status_code, response.content, self.url)
        return response.content

    def _connection_error(self, error: Exception) -> AjetError:
        if isinstance(error, httpx.RemoteProtocolError) and "closed" not in str(error).lower():
            return _no_proxy("it does not speak HTTP", self.url)
        if "SSL" in str(error) or "CERTIFICATE" in str(error):
            todo = "Check that http or https is right; its certificate: proxy.tls_cert of your home"
            return ControlError(f"no secure connection to the proxy: {error}", self.url, todo)
        return self._unreachable(f"the proxy does not answer ({type(error).__name__})")

    def _unreachable(self, what: str) -> ControlLost:
        return ControlLost(what, where=self.url, todo="Start it, or name another with --url")


async def _sse(response: httpx.Response) -> AsyncIterator[tuple[bytes, bytes]]:
    """Yield kind and data of each frame.

    It splits bytes because httpx also ends lines at U+2028 and similar characters, which JSON
    leaves unescaped.
    """
    rest = b""
    async for chunk in response.aiter_bytes():
        *frames, rest = (rest + chunk).split(b"\n\n")
        for frame in frames:
            kind = data = b""
            for line in frame.split(b"\n"):
                if line.startswith(b"event:"):
                    kind = line[6:].strip()
                elif line.startswith(b"data:"):
                    data += line[5:].strip()
            if kind:
                yield kind, data


def _read(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        if not isinstance(error, msgspec.ValidationError):
            raise _no_proxy("its answer is not JSON") from error
        raise ControlError(
            f"the proxy's answer cannot be read: {error}",
            todo="Use the same version of the program on both ends",
        ) from error


def _no_proxy(why: str, where: str = "", status: int = 0) -> ControlError:
    return ControlError(
        f"what answers there is not the proxy of an ajet-console ({why})",
        where,
        "Give the address that `ajet-console run proxy` prints when it starts",
        status,
    )


def _refused(status: int, body: bytes, where: str) -> ControlError:
    try:
        fields = msgspec.json.decode(body)["error"]
        return ControlError(fields["message"], fields["where"], fields["todo"], status)
    except (msgspec.MsgspecError, KeyError, TypeError):
        if status < 500:
            return _no_proxy(f"it answered {status}", where, status)
        return ControlError(f"the proxy answered {status}", where, status=status)
