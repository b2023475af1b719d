"""Model of a swarm server in memory, and the transport that reaches it.

The rules of engine and episodes are those of `tests.support.scripted.pool`. This module adds the
network with its faults, the janitor, other clients, and a record of each claim and end, from which
`tests.simulation.invariants` derives what the proxy did.

All tasks and timers of the server belong to no incarnation: they go on when the proxy is killed.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ajet_swarm.http.interface import Request, Response, Streamed
from ajet_swarm.protocol.errors import TimedOut, TransportError, Unreachable
from tests.simulation.loop import Incarnation, context_of
from tests.support.scripted.chat import completion, episode_of
from tests.support.scripted.pool import Crash, Denied, Episode, ScriptedPool
from tests.support.scripted.stream import three

EPOCH = 1_700_000_000.0
"""Unix seconds at which the loop's clock is 0."""
URL = "http://server:10086"
ME = "me"
"""`client_uuid` of the proxy."""
JANITOR = 10.0
"""Seconds between two sweeps of the janitor."""
LLM_POLL = 2.0
"""Seconds between two checks of a chat call that its episode is still claimed."""
NETWORK = (0.0, 0.01)
"""Seconds that a request or a response travels."""


@dataclass
class Call:
    """One request of a client."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str]
    sent_at: float
    sender: Incarnation
    claim: "Claim | None" = None
    """The claim that it made."""
    end: "End | None" = None
    """The end that it was."""
    chat: "Claim | None" = None
    """The claim that it was a chat call of."""
    durable: bool = False
    """It is an end, and the journal held its reward durably when it was sent."""


@dataclass
class Claim:
    """One claim of an episode, from the grant to the release. Times are those of the loop."""

    uuid: str
    client: str
    episode_type: str
    at: float
    sender: Incarnation | None
    timeout: float
    delivered: bool = False
    """The client received the answer."""
    prompt: str = ""
    """Text of the user in its first chat call."""
    chats: list[tuple[float, float | None]] = field(default_factory=list)
    """Begin and end of each chat call; None for one that got no answer."""
    answered_at: float = 0.0
    """When the client had the answer to the newest of its chat calls that was answered."""
    released_at: float | None = None
    released_by: str = ""
    """end, abort, janitor or engine."""
    released_for: Incarnation | None = None
    """The sender of the end or abort."""
    release_sent_at: float = 0.0
    """When it sent that."""


@dataclass
class End:
    """One end that reached the server."""

    uuid: str
    task_id: str
    reward: float
    sent_at: float
    at: float
    sender: Incarnation
    accepted: bool
    claim: Claim | None
    """The newest claim of the episode."""
    durable: bool
    """The journal held the reward durably when the end was sent."""


@dataclass(frozen=True)
class Trouble:
    """A fault that lasts for some seconds; times are those of the loop."""

    kind: str
    at: float
    seconds: float
    share: float = 1.0
    """Probability that it hits one request."""
    route: str = ""
    """Route of the requests that it hits; empty for all."""

    @property
    def until(self) -> float:
        return self.at + self.seconds


class SimulatedServer:
    """The server; use it inside the loop.

    Args:
        chance: Chooses delays and outcomes.
        is_durable: Returns whether the journal holds a reward durably, by task, episode and value.
    """

    def __init__(
        self, chance: random.Random, is_durable: Callable[[str, str, float], bool]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._chance = chance
        self.is_durable = is_durable
        self.pool = ScriptedPool(
            lambda: EPOCH + self._loop.time(), lambda: f"{chance.getrandbits(128):032x}"
        )
        self.troubles: list[Trouble] = []
        """All faults, also those that are over."""
        self.up = True
        self.boots = 1
        self.claims: list[Claim] = []
        self.ends: list[End] = []
        self.answers: set[tuple[str, str]] = set()
        """Question and text of each answer to a chat call."""
        self.states: list[tuple[float, str]] = []
        """State from each time on."""
        self.arrivals: dict[str, asyncio.Future[None]] = {}
        """Route -> future that is done when the next request to it arrives."""
        self._open: dict[str, Claim] = {}
        self._chatting: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thawed = asyncio.Event()
        self._thawed.set()
        self.routes: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "/claim_episode": self.pool.claim,
            "/end_episode": self.pool.end,
            "/abort_episode": self.pool.abort,
            "/can_continue_episode": self.pool.can_continue,
            "/get_episode_buffer": lambda _: self.pool.buffer(),
            "/agree_sync_weight": self.pool.agree,
            "/get_engine_status": lambda _: {
                "engine_status": f"ENGINE.{self.pool.state}",
                "engine_status_detail": None,
                "global_step": self.pool.step,
            },
            "/get_current_batch_rollout_pool_information": lambda _: self.pool.pool(),
            "/health": lambda _: {"status": "ok"},
            "/openapi.json": lambda _: {"paths": {path: {} for path in self.routes}},
        }

    def start(self, state: str = "ROLLING", step: int | None = 1) -> None:
        """Begin to serve in a state; the janitor runs from now on."""
        self.set_state(state, step)
        self.spawn(self._sweep(), "janitor")

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Start a task of the server."""
        task = self._loop.create_task(work, name=name, context=context_of(None))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- faults ---------------------------------------------------------------------------------

    def trouble(self, trouble: Trouble) -> None:
        """Begin a fault that hits requests: lost before, lost after, crash, garbled or slow."""
        self.troubles.append(trouble)

    def hit(self, kind: str, route: str = "") -> bool:
        """Return whether a fault of this kind hits a request now."""
        for trouble in self.troubles:
            lasts = trouble.at <= self._loop.time() < trouble.until
            if lasts and trouble.kind == kind and trouble.route in ("", route):
                return self._chance.random() < trouble.share
        return False

    async def next_request(self, path: str) -> None:
        """Wait until a request to `path` arrives."""
        await self.arrivals.setdefault(path, self._loop.create_future())

    async def freeze(self, seconds: float) -> None:
        """Accept requests and serve them only after `seconds`."""
        self.troubles.append(Trouble("frozen", self._loop.time(), seconds))
        self._thawed.clear()
        await asyncio.sleep(seconds)
        self._thawed.set()

    async def restart(self, seconds: float) -> None:
        """Lose all records, be unreachable for `seconds`, then roll again from step 1."""
        self.troubles.append(Trouble("down", self._loop.time(), seconds))
        self.up = False
        self.boots += 1
        self.set_state("OFFLINE", 0)
        await asyncio.sleep(seconds)
        self.up = True
        await asyncio.sleep(1.0)
        self.set_state("BOOTING")
        await asyncio.sleep(2.0)
        self.set_state("ROLLING", 1)

    async def stop_engine(self, seconds: float) -> None:
        """Stop the engine, as another client may do, and start it again after `seconds`."""
        self.troubles.append(Trouble("stopped", self._loop.time(), seconds))
        self.set_state("OFFLINE", 0)
        await asyncio.sleep(seconds)
        self.set_state("BOOTING")
        await asyncio.sleep(2.0)
        self.set_state("ROLLING", 1)

    def set_state(self, state: str, step: int | None = None) -> None:
        """Post a status, as the trainer does."""
        self.pool.set_state(state, step)
        self._note_releases("engine")

    # --- other clients --------------------------------------------------------------------------

    async def compete(self, client: str, until: float) -> None:
        """Be another client, which claims episodes, holds them for a while and ends most."""
        while self._loop.time() < until:
            await asyncio.sleep(self._chance.uniform(0.1, 4.0))
            held = []
            for _ in range(self._chance.randint(1, 4)):
                answer = self.pool.claim(_claim_body(client))
                if answer["success"]:
                    held.append(answer["episode_uuid"])
                    self._granted(answer["episode_uuid"], client, "train", None)
            await asyncio.sleep(self._chance.uniform(0.5, 6.0))
            task = f"{client}-{self._chance.getrandbits(32):08x}"
            for uuid in held:
                body = {
                    "client_uuid": client,
                    "episode_uuid": uuid,
                    "task_id": task,
                    "workflow_output": {
                        "reward": self._chance.random(),
                        "metadata": {"task_id": task},
                    },
                }
                episode = self.pool.episodes.get(uuid)
                if episode is None or episode.client != client:
                    continue
                episode.calls += 1
                ends = self._chance.random() < 0.8
                with contextlib.suppress(Denied):
                    (self.pool.end if ends else self.pool.abort)(body)
                self._note_releases("end" if ends else "abort", uuid)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(JANITOR)
            for uuid in self._chatting:  # a call in flight counts as activity
                if (episode := self.pool.episodes.get(uuid)) is not None:
                    episode.active = self.pool.clock()
            late = self.pool.expire()
            for uuid in late:
                self._note_releases("janitor", uuid)
            self._note_releases("engine")

    # --- requests -------------------------------------------------------------------------------

    async def serve(self, call: Call) -> Response:
        """Serve one request.

        Raises:
            Unreachable: the network or the server lost it, or its answer.
        """
        if not self.up:
            raise Unreachable("connection refused", URL, sent=False)
        if self.hit("lost before", call.path):
            raise Unreachable("connection reset", URL)
        boot = self.boots
        await self._thawed.wait()
        if boot != self.boots:
            raise Unreachable("connection reset", URL)
        if (arrival := self.arrivals.pop(call.path, None)) is not None:
            arrival.set_result(None)
        response = await self._response(call)
        if boot != self.boots or self.hit("lost after", call.path):
            raise Unreachable("connection reset", URL)
        return response

    def travel(self, path: str = "") -> float:
        """Return the seconds that a request, or its response, is on its way; without a path those
        of a reset, which nothing delays."""
        slow = self._chance.uniform(0.2, 4.0) if path and self.hit("slow", path) else 0.0
        return self._chance.uniform(*NETWORK) + slow

    async def _response(self, call: Call) -> Response:
        garbled = {"Content-Type": "text/html"}
        if call.path == "/get_engine_status" and self.hit("garbled"):
            return Response(200, garbled, b"<html>a page of a front</html>")
        crashes = self.hit("crash", call.path)
        if crashes and self._chance.random() < 0.5:
            return _crashed()
        try:
            if call.path == "/v1/chat/completions":
                return await self._chat(call)
            result = self._route(call)
        except Denied as denied:
            return _json({"detail": denied.detail}, denied.status)
        except Crash:
            return _crashed()
        return _crashed() if crashes else _json(result)

    def _route(self, call: Call) -> dict[str, Any]:
        if (route := self.routes.get(call.path)) is None:
            raise Denied(404, "Not Found")
        uuid = call.body.get("episode_uuid", "")
        if call.path == "/end_episode":
            call.end = self._end_of(call, uuid)
            self.ends.append(call.end)
        result = route(call.body)
        if call.path == "/claim_episode" and result["success"]:
            client, episode_type = call.body["client_uuid"], call.body["episode_type"]
            call.claim = self._granted(result["episode_uuid"], client, episode_type, call)
        elif call.end is not None:
            call.end.accepted = True
            self._note_releases("end", uuid, call)
        elif call.path == "/abort_episode":
            self._note_releases("abort", uuid, call)
        self._note_releases("engine")
        return result

    def _end_of(self, call: Call, uuid: str) -> End:
        reward, task = call.body["workflow_output"]["reward"], call.body["task_id"]
        newest = [claim for claim in self.claims if claim.uuid == uuid]
        return End(
            uuid=uuid,
            task_id=task,
            reward=reward,
            sent_at=call.sent_at,
            at=self._loop.time(),
            sender=call.sender,
            accepted=False,
            claim=newest[-1] if newest else None,
            durable=call.durable,
        )

    def _granted(self, uuid: str, client: str, episode_type: str, call: Call | None) -> Claim:
        timeout = self.pool.episodes[uuid].timeout
        sender = call.sender if call else None
        claim = Claim(uuid, client, episode_type, self._loop.time(), sender, timeout)
        self.claims.append(claim)
        self._open[uuid] = claim
        return claim

    def _note_releases(self, kind: str, uuid: str = "", call: Call | None = None) -> None:
        """Record the claims that are over; with `uuid` only that of one episode."""
        now = self._loop.time()
        for held in (uuid,) if uuid else tuple(self._open):
            claim, episode = self._open.get(held), self.pool.episodes.get(held)
            if claim is None or (episode is not None and episode.claimed):
                continue
            claim.released_at, claim.released_by = now, kind
            if call is not None:
                claim.released_for, claim.release_sent_at = call.sender, call.sent_at
            del self._open[held]
        if not self.states or self.states[-1][1] != self.pool.state:
            self.states.append((now, self.pool.state))

    # --- chat -----------------------------------------------------------------------------------

    async def _chat(self, call: Call) -> Response:
        uuid, wrong = episode_of(call.headers.get("Authorization", ""))
        if wrong:
            return _json({"status_code": 401, "detail": wrong, "headers": None})
        episode = self._rolling_episode(uuid)
        episode.calls += 1
        episode.active = self.pool.clock()
        claim, began = self._open.get(uuid), self._loop.time()
        if claim is not None:
            claim.prompt = claim.prompt or str(call.body["messages"][-1]["content"])
            claim.chats.append((began, None))
            call.chat = claim
            place = len(claim.chats) - 1
        self._chatting[uuid] += 1
        try:
            async with episode.turn:  # calls in one episode are strictly serial
                await self._generate(uuid)
        finally:
            self._chatting -= Counter([uuid])
            episode.active = self.pool.clock()
        if claim is not None:
            claim.chats[place] = (began, self._loop.time())
        text = f"answer {self._chance.getrandbits(24)} of {uuid[:6]}"
        self.answers.add((str(call.body["messages"][-1]["content"]), text))
        answer = completion(text)
        answer["id"], answer["created"] = f"{self._chance.getrandbits(128):032x}", int(began)
        if not call.body.get("stream"):
            return _json(answer)
        events = [*map(msgspec.json.encode, three(answer)), b"[DONE]"]
        stream = b"".join(b"data: " + event + b"\n\n" for event in events)
        return Response(200, {"Content-Type": "text/event-stream"}, stream)

    async def _generate(self, uuid: str) -> None:
        seconds = self._chance.uniform(0.1, 3.0)
        if self.hit("straggler"):
            seconds = self._chance.uniform(10.0, 90.0)
        if self.hit("silent"):
            seconds = 300.0
        end = self._loop.time() + seconds
        while (left := end - self._loop.time()) > 0:
            await asyncio.sleep(min(LLM_POLL, left))
            self._rolling_episode(uuid, claimed=True)
        if seconds == 300.0 or self.hit("failing"):
            raise Crash

    def _rolling_episode(self, uuid: str, claimed: bool = False) -> Episode:
        if not self.pool.rolling:
            raise Denied(404, f"The server is not in ENGINE.ROLLING status: {self.pool.state}.")
        episode = self.pool.episodes.get(uuid)
        if episode is None:
            raise Denied(404, f"Episode {uuid} not found.")
        if claimed and not episode.claimed:
            raise Denied(404, f"Episode {uuid} is not claimed.")
        return episode


class SimulatedTransport:
    """Transport of one incarnation of the proxy: nothing arrives once that is killed."""

    def __init__(self, server: SimulatedServer, incarnation: Incarnation) -> None:
        self._server, self._incarnation = server, incarnation

    async def request(self, request: Request) -> Response:
        """See `ajet_swarm.http.interface.Transport`."""
        if request.repeatable:
            with contextlib.suppress(Unreachable):
                return await self._send(request)
        return await self._send(request)

    @contextlib.asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Streamed]:
        """See `ajet_swarm.http.interface.Transport`."""
        response = await self._send(request)
        yield _Stream(response, cut=self._server.hit("lost after", urlsplit(request.url).path))

    def _send(self, request: Request) -> asyncio.Future[Response]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Response] = loop.create_future()
        path = urlsplit(request.url).path
        call = Call(
            path=path,
            body=msgspec.json.decode(request.body or b"{}"),
            headers=dict(request.headers or {}),
            sent_at=loop.time(),
            sender=self._incarnation,
        )
        if path == "/end_episode":
            reward = call.body["workflow_output"]["reward"]
            call.durable = self._server.is_durable(
                call.body["task_id"], call.body["episode_uuid"], reward
            )
        context = copy_context()

        def resolve(outcome: Response | TransportError) -> None:
            if self._incarnation.killed or future.done():
                return
            if call.chat is not None:
                call.chat.answered_at = loop.time()
            if isinstance(outcome, Response):
                if call.claim is not None:
                    call.claim.delivered = outcome.status == 200
                future.set_result(outcome)
            else:
                future.set_exception(outcome)

        timed_out = TimedOut(f"no answer in {request.timeout:g} s", request.url)
        timer = loop.call_later(request.timeout, resolve, timed_out)

        async def serve() -> None:
            outcome: Response | TransportError
            try:
                outcome = await self._server.serve(call)
            except TransportError as error:
                outcome = error
            seconds = self._server.travel(path if isinstance(outcome, Response) else "")
            loop.call_later(seconds, arrive, outcome, context=outside)

        def arrive(outcome: Response | TransportError) -> None:
            timer.cancel()
            context.run(resolve, outcome)

        outside = context_of(None)

        def begin() -> None:
            self._server.spawn(serve(), path)

        loop.call_later(self._server.travel(path), begin, context=outside)
        return future


class _Stream:
    """A body that arrives event by event; with `cut` it breaks before its end."""

    def __init__(self, response: Response, cut: bool) -> None:
        self.status, self.headers = response.status, response.headers
        self._parts = [part + b"\n\n" for part in response.body.split(b"\n\n") if part]
        if response.status != 200:
            self._parts = [response.body]
        self._cut = cut

    async def read(self) -> bytes:
        """See `ajet_swarm.http.interface.Streamed`."""
        await asyncio.sleep(0.01)
        if self._cut and len(self._parts) <= 1:
            raise Unreachable("connection reset", URL)
        return self._parts.pop(0) if self._parts else b""

    async def whole(self) -> Response:
        """See `ajet_swarm.http.interface.Streamed`."""
        body = b""
        while part := await self.read():
            body += part
        return Response(self.status, self.headers, body)

    def hold(self, size: int) -> None:
        """All memory is granted."""


def _claim_body(client: str) -> dict[str, Any]:
    return {"client_uuid": client, "episode_type": "train", "discard_episode_timeout": 30.0}


def _json(value: object, status: int = 200) -> Response:
    return Response(status, {"Content-Type": "application/json"}, msgspec.json.encode(value))


def _crashed() -> Response:
    return Response(500, {"Content-Type": "text/plain"}, b"Internal Server Error")
