"""One request through the whole chain: the processes are started if needed, and ended after it."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.common.text import content_text, one_line
from console.backend.supervisor import Supervisor
from console.cli.common import settings_of
from console.cli.effective import client_key
from console.cli.setup.progress import progress
from core.runtime.home import Home, RunInfo, running
from core.runtime.sockets import is_free
from core.runtime.tls import absolute_path, verification_for
from core.settings import Settings
from core.state import Group, Server, State

if TYPE_CHECKING:
    from proxy.control.client import ControlClient

EMBEDDED_LIMIT = 60.0
"""Seconds in which the embedded engine must accept requests."""
SERVER_LIMIT = 900.0
"""The same for an AgentJet server, which loads a model first."""
GROUP_LIMIT = 180.0
"""Seconds that the request and its rewards may take."""
POLL = 0.1
TAKES_REQUESTS = ("ROLLING", "ROLLING_POST", "WEIGHT_SYNCING", "OBSERVING")
TODO_START = "`ajet-console setup --start` starts it with its job"


class NotTried(AjetError):
    """The request could not be sent; the settings are written nevertheless."""


class ServerOffline(NotTried):
    """The engine of the AgentJet server is not started."""


@dataclass(frozen=True, slots=True)
class Result:
    """The group of the request."""

    query: str
    answer: str
    group: Group
    server: str
    seconds: float
    accepted: bool = False
    """The group waited for a vote, and the setup accepted its automatic reward."""


@dataclass(slots=True)
class Trial:
    """The processes of one home for one request.

    Attributes:
        started: Roles of the processes that were started here, in order.
    """

    home: Home
    settings: Settings
    supervisor: Supervisor
    started: list[str] = field(default_factory=list)
    _port: int = 0
    """Port of the proxy that was stopped for a restart; 0 without one."""

    @classmethod
    def of(cls, home: Home) -> "Trial":
        """Return the trial of a home with its present settings."""
        settings = settings_of(home)
        return cls(home, settings, Supervisor(home, settings))

    @property
    def embedded(self) -> bool:
        """Whether the settings name the embedded engine."""
        return "embedded" in self.settings.servers().values()

    async def start(self) -> RunInfo:
        """Start the engine, if it is embedded, and the proxy, unless they run.

        Returns:
            The proxy's run file.
        """
        if self.embedded:
            engine = self.settings.engine
            free = await asyncio.to_thread(is_free, engine.host, engine.port)
            await self._start("engine", [] if free else ["--port", "0"])
        if not self._port:
            return await self._start("proxy", ["--next-port"])
        info = await self._start("proxy", ["--port", str(self._port)])
        self.started.remove("proxy")  # it ran before
        return info

    async def _start(self, role: str, args: Sequence[str]) -> RunInfo:
        info = await asyncio.to_thread(self.supervisor.find, role)
        if info is None:
            async with progress(f"starting the {role}"):
                self.started.append(role)
                await self.supervisor.start(role, args)
                info = await self.supervisor.wait_ready(role)
        return info

    async def stop_proxy(self, port: int) -> None:
        """Stop the proxy of the home; `start` starts it on the same port with new settings."""
        async with progress("stopping the proxy"):
            await self.supervisor.stop("proxy")
        self._port = port

    async def stop(self) -> None:
        """Stop the processes that were started here."""
        async with progress("stopping what was started"):
            while self.started:
                await self.supervisor.stop(self.started[-1])
                self.started.pop()

    def leave(self) -> None:
        """Leave the processes running."""
        self.started.clear()
        self.supervisor.release()

    async def request(self, query: str, *, start_server: bool = False) -> Result:
        """Send one request and return its group with the rewards.

        Args:
            query: The user's message.
            start_server: Start an AgentJet server that is OFFLINE with its saved job.

        Raises:
            NotTried: no server takes requests, or there was no answer in time.
        """
        from proxy.control.client import ControlClient

        info = await asyncio.to_thread(running, self.home, "proxy")
        if info is None:
            raise NotTried("no proxy runs in this home", str(self.home.root))
        cert = info.extra.get("cert", "") or absolute_path(self.settings.proxy.tls_cert)
        token = await asyncio.to_thread(self.home.token)
        async with ControlClient(info.url, token, cert=cert) as client, Tasks("setup") as tasks:
            server = await self._ready(client, start_server)
            session = f"setup-{secrets.token_hex(6)}"
            began = time.monotonic()
            sent = tasks.spawn(self._send(info.url, cert, query, session), "request")
            async with progress(f"the request: {one_line(query, 60)}"):
                group, accepted = await self._group(client, session, sent)
                answer = await sent
            return Result(query, answer, group, server, time.monotonic() - began, accepted)

    async def _ready(self, client: "ControlClient", start_server: bool) -> str:
        """Wait until a server takes requests; return its name."""
        limit = EMBEDDED_LIMIT if self.embedded else SERVER_LIMIT if start_server else 20.0
        deadline = time.monotonic() + limit
        started = False
        async with progress("waiting until the engine takes requests"):
            while True:
                state = await client.snapshot()
                if ready := [one for one in state.servers.values() if _takes_requests(one)]:
                    return ready[0].name
                offline = [one for one in state.servers.values() if _is_offline(one)]
                if offline and not started:
                    if not (offline[0].own or start_server):
                        name = one_line(offline[0].name, 40)
                        raise ServerOffline(f"the engine of `{name}` is OFFLINE", todo=TODO_START)
                    await client.command("engine.start", {"server": offline[0].name})
                    started = True
                if time.monotonic() > deadline:
                    raise NotTried(_why_not_ready(state, limit), str(self.home.logs))
                await asyncio.sleep(POLL)

    async def _send(self, url: str, cert: str, query: str, session: str) -> str:
        """Send the request as an application does; return the text of the answer."""
        import httpx

        key = client_key(self.settings, self.home) or "any"
        headers = {"authorization": f"Bearer {key}", "x-ajet-session": session}
        model = self.settings.proxy.served_model_name or "ajet"
        body = {"model": model, "messages": [{"role": "user", "content": query}]}
        async with httpx.AsyncClient(
            trust_env=False, timeout=GROUP_LIMIT, verify=verification_for(url, cert)
        ) as http:
            try:
                answer = await http.post(f"{url}/v1/chat/completions", json=body, headers=headers)
            except httpx.HTTPError as error:
                raise NotTried(f"the request failed: {type(error).__name__}", url) from error
        if answer.status_code != 200:
            raise NotTried(f"the proxy answered {answer.status_code}: {_reason(answer.text)}", url)
        message = answer.json()["choices"][0]["message"]
        return content_text(message.get("content"))

    async def _group(
        self, client: "ControlClient", session: str, sent: "asyncio.Task[str]"
    ) -> tuple[Group, bool]:
        """Wait for the rewards of the group; a group that waits for a vote is accepted.

        Raises:
            NotTried: the request failed, or there are no rewards in time.
        """
        accepted, group = False, None
        deadline = time.monotonic() + GROUP_LIMIT
        while time.monotonic() < deadline:
            if sent.done() and sent.exception() is not None:
                await sent
            state = await client.snapshot()
            groups = [one for one in state.groups.values() if one.session == session]
            group = groups[-1] if groups else None
            if group is not None and not group.open:
                return group, accepted
            if group is not None and group.phase == "AWAITING_RATING" and not accepted:
                if group.abstained:
                    with contextlib.suppress(AjetError):
                        await client.command("group.abort", {"group_id": group.group_id})
                    return group, False
                await client.command("group.accept", {"group_id": group.group_id})
                accepted = True
            await asyncio.sleep(POLL)
        phase = group.phase if group is not None else "not begun"
        raise NotTried(f"no rewards within {GROUP_LIMIT:g} s; the group is {phase}")


def _takes_requests(server: Server) -> bool:
    return not server.lost and server.state in TAKES_REQUESTS


def _is_offline(server: Server) -> bool:
    return not server.lost and server.state == "OFFLINE"


def _why_not_ready(state: State, limit: float) -> str:
    states = "; ".join(
        f"{one_line(one.name, 40)} {one_line(one.lost or one.state, 120)}"
        for one in state.servers.values()
    )
    return f"no engine takes requests after {limit:g} s: {states or 'no server is known'}"


def _reason(text: str) -> str:
    """Return the message of an error's body."""
    import msgspec

    with contextlib.suppress(msgspec.MsgspecError, LookupError, TypeError):
        body: Any = msgspec.json.decode(text)
        return one_line(str(body["error"]["message"]), 300)
    return one_line(text, 300)


# --- what is shown ---------------------------------------------------------------------------


def shown(result: Result, width: int = 100) -> list[str]:
    """Return the lines that show a group: each answer with its reward, the winner marked."""
    group = result.group
    step = f", step {group.step}" if group.step is not None else ""
    lines = [
        f"`{one_line(result.query, width - 2)}`",
        f"{len(group.candidates)} answers of {one_line(result.server, 40)}{step}, "
        f"{result.seconds:.1f} s; ▶ was returned",
    ]
    for one in group.candidates:
        reward = one.reward if one.reward is not None else one.auto_reward
        value = "   –  " if reward is None else f"{reward:6.3f}"
        mark = "▶" if one.index == group.returned else " "
        text = one.text or one.error or "no text"
        lines.append(f" {mark} {one.index + 1}  {value}  {one_line(text, width - 18)}")
    best = next((one for one in group.candidates if one.index == group.best), None)
    if best is not None and best.parts:
        parts = ", ".join(f"{one_line(one.name, 30)} {one.value:.2f}" for one in best.parts)
        lines.append(f"   parts of the best: {one_line(parts, width - 25)}")
    if group.abstained:
        lines.append(f" ! no reward: {one_line(group.abstained, 300)}")
    elif group.cause and group.phase != "DONE":
        lines.append(f" ! {group.phase}: {one_line(group.cause, 300)}")
    if result.accepted:
        lines.append("   it waited for your vote: the automatic rewards were accepted")
    return lines


def no_rewards(result: Result) -> AjetError | None:
    """Return the error of a group without rewards; None when it has them."""
    group = result.group
    if not group.abstained and any(one.auto_reward is not None for one in group.candidates):
        return None
    cause = group.abstained or group.cause or "unknown cause"
    todo = "Run the setup again to change an answer; `ajet-console doctor` checks the rewards"
    return AjetError(f"the request has no rewards: {one_line(cause, 300)}", todo=todo)


def data(result: Result) -> dict[str, Any]:
    """Return the group as JSON data."""
    group = result.group
    return {
        "query": result.query,
        "answer": result.answer,
        "group": group.group_id,
        "server": result.server,
        "seconds": round(result.seconds, 3),
        "phase": group.phase,
        "cause": group.abstained or group.cause,
        "returned": group.returned,
        "best": group.best,
        "candidates": [
            {
                "index": one.index,
                "text": one.text,
                "reward": one.reward if one.reward is not None else one.auto_reward,
                "parts": {part.name: part.value for part in one.parts},
            }
            for one in group.candidates
        ],
    }
