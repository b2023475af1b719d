"""One request through the whole chain: the processes are started if needed, and ended after it."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.common.text import one_line
from console.backend.supervisor import Supervisor
from console.cli.common import cert_of, client_key, settings_of
from console.cli.output import progress
from console.clients.catalog import DEFAULT_MODEL
from core.runtime.home import Home, running
from core.runtime.sockets import is_free
from core.state import Group, State

if TYPE_CHECKING:
    from proxy.control.client import ControlClient

SERVER_LIMIT = 900.0
"""Seconds in which an AgentJet server must accept requests after its start: it loads a model."""
EMBEDDED_LIMIT, READY_LIMIT = 60.0, 20.0
"""The same for the embedded engine, and for a server that runs."""
GROUP_LIMIT = 180.0
"""Seconds that the request and its rewards may take."""
POLL = 0.1
TAKES_REQUESTS = ("ROLLING", "ROLLING_POST", "WEIGHT_SYNCING", "OBSERVING")


class ServerOffline(AjetError):
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


class Trial:
    """The processes of one home for one request.

    Attributes:
        started: Roles of the processes that were started here, in order.
    """

    def __init__(self, home: Home) -> None:
        self.home = home
        self.settings = settings_of(home)
        self.supervisor = Supervisor(home, self.settings)
        self.embedded = "embedded" in self.settings.servers().values()
        self.started: list[str] = []

    async def start(self, restart_port: int = 0) -> None:
        """Start the engine, if it is embedded, and the proxy, unless they run.

        Args:
            restart_port: A proxy that runs starts again on this port, with the present settings.
        """
        if restart_port:
            with progress("stopping the proxy"):
                await self.supervisor.stop("proxy")
        if self.embedded:
            engine = self.settings.engine
            free = await asyncio.to_thread(is_free, engine.host, engine.port)
            await self._start("engine", *(() if free else ("--port", "0")))
        if restart_port:
            await self._start("proxy", "--port", str(restart_port))
            self.started.remove("proxy")  # it ran before
        else:
            await self._start("proxy", "--next-port")

    async def _start(self, role: str, *args: str) -> None:
        if await asyncio.to_thread(self.supervisor.find, role) is None:
            with progress(f"starting the {role}"):
                self.started.append(role)
                await self.supervisor.start(role, args)
                await self.supervisor.wait_ready(role)

    async def stop(self) -> None:
        """Stop the processes that were started here."""
        with progress("stopping what was started"):
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
            AjetError: no server takes requests, or there was no answer in time.
        """
        from proxy.control.client import ControlClient

        info = await asyncio.to_thread(running, self.home, "proxy")
        if info is None:
            raise AjetError("no proxy runs in this home", str(self.home.root))
        cert = await asyncio.to_thread(cert_of, self.home)
        token = await asyncio.to_thread(self.home.token)
        async with ControlClient(info.url, token, cert=cert) as client, Tasks("setup") as tasks:
            with progress("waiting until the engine takes requests"):
                server = await self._ready(client, start_server)
            session = f"setup-{secrets.token_hex(6)}"
            began = time.monotonic()
            with progress(f"the request: {one_line(query, 60)}"):
                sent = tasks.spawn(self._send(info.url, cert, query, session), "request")
                group, accepted = await self._group(client, session, sent)
                answer = await sent
            return Result(query, answer, group, server, time.monotonic() - began, accepted)

    async def _ready(self, client: "ControlClient", start_server: bool) -> str:
        """Wait until a server takes requests; return its name."""
        limit = EMBEDDED_LIMIT if self.embedded else SERVER_LIMIT if start_server else READY_LIMIT
        started, seen = False, "no server is known"
        async for state in _states(client, limit):
            for server in state.servers.values():
                name = one_line(server.name, 40)
                seen = f"{name} is {one_line(server.lost or server.state, 200)}"
                if not server.lost and server.state in TAKES_REQUESTS:
                    return server.name
                if not (server.lost or started) and server.state == "OFFLINE":
                    if not (server.own or start_server):
                        todo = "`ajet-console setup --start` starts it"
                        raise ServerOffline(f"the engine of `{name}` is OFFLINE", todo=todo)
                    await client.command("engine.start", {"server": server.name})
                    started = True
        what = f"no engine takes requests after {limit:g} s: {seen}"
        raise AjetError(what, str(self.home.logs))

    async def _send(self, url: str, cert: str, query: str, session: str) -> str:
        """Send the request as an application does; return the text of the answer."""
        import msgspec

        from core.openai.api import CallFailed, OpenAIApi
        from mock.targets.dialects import CHAT, read
        from mock.targets.question import SESSION

        model = self.settings.proxy.served_model_name or DEFAULT_MODEL
        body = msgspec.json.encode(CHAT.body(model, [{"role": "user", "content": query}], ()))
        key = client_key(self.settings, self.home)
        api = OpenAIApi(f"{url}/v1", key=key, headers={SESSION: session}, cert=cert)
        try:
            answer = await api.call("POST", CHAT.path, body, seconds=GROUP_LIMIT)
        except CallFailed as error:
            raise AjetError(f"the request failed: {error.text}", url) from error
        finally:
            await api.close()
        if not answer.is_success:
            raise AjetError(f"the proxy answered {one_line(answer.fault, 300)}", url)
        return read(CHAT, answer.body) or ""

    async def _group(
        self, client: "ControlClient", session: str, sent: "asyncio.Task[str]"
    ) -> tuple[Group, bool]:
        """Wait for the rewards of the group; a group that waits for a vote is accepted."""
        accepted, phase = False, "not begun"
        async for state in _states(client, GROUP_LIMIT):
            if sent.done() and sent.exception() is not None:
                await sent
            for group in (group for group in state.groups.values() if group.session == session):
                phase = group.phase
                if not group.open:
                    return group, accepted
                if phase == "AWAITING_RATING" and group.abstained:
                    with contextlib.suppress(AjetError):
                        await client.command("group.abort", {"group_id": group.group_id})
                    return group, False
                if phase == "AWAITING_RATING" and not accepted:
                    await client.command("group.accept", {"group_id": group.group_id})
                    accepted = True
        raise AjetError(f"no rewards within {GROUP_LIMIT:g} s; the group is {phase}")


async def _states(client: "ControlClient", limit: float) -> AsyncIterator[State]:
    """Yield the state of the proxy now and then, for at most `limit` seconds."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        yield await client.snapshot()
        await asyncio.sleep(POLL)


def shown(result: Result, width: int = 100) -> list[str]:
    """Return the lines that show a group: each answer with its reward, the winner marked."""
    group = result.group
    step = f", step {group.step}" if group.step is not None else ""
    lines = [
        f"`{one_line(result.query, width - 2)}`",
        f"{len(group.candidates)} answers of {one_line(result.server, 40)}{step}, "
        f"{result.seconds:.1f} s; ▶ was returned",
    ]
    for candidate in group.candidates:
        reward = candidate.reward if candidate.reward is not None else candidate.auto_reward
        value = "   –  " if reward is None else f"{reward:6.3f}"
        mark = "▶" if candidate.index == group.returned else " "
        text = one_line(candidate.text or candidate.error or "no text", width - 18)
        lines.append(f" {mark} {candidate.index + 1}  {value}  {text}")
    for candidate in group.candidates:
        if candidate.index == group.best and candidate.parts:
            parts = ", ".join(
                f"{one_line(part.name, 30)} {part.value:.2f}" for part in candidate.parts
            )
            lines.append(f"   parts of the best: {one_line(parts, width - 25)}")
    if group.cause and group.phase != "DONE" and not group.abstained:
        lines.append(f" ! {group.phase}: {one_line(group.cause, 300)}")
    if result.accepted:
        lines.append("   it waited for your vote: the automatic rewards were accepted")
    return lines


def no_rewards(result: Result) -> AjetError | None:
    """Return the error of a group without rewards; None when it has them."""
    group = result.group
    if not group.abstained and any(
        candidate.auto_reward is not None for candidate in group.candidates
    ):
        return None
    cause = one_line(group.abstained or group.cause or "unknown cause", 300)
    todo = "Run the setup again to change an answer; `ajet-console doctor` checks the rewards"
    return AjetError(f"the request has no rewards: {cause}", todo=todo)
