"""A swarm server for tests: the real one's routes, shapes, statuses and quirks, on a script.

    async with ScriptedSwarm(batch=2, repeat=4) as server:     # rolls at step 1, port 0
        server.answer = my_answer          # async (episode_uuid, body, call_index) -> str | dict
        client = SwarmWire(server.url, transport, "me")

Constructor: `ScriptedSwarm(*, state="ROLLING", batch=4, repeat=4, slots=None, automatic=True,
sync_seconds=0.05, method=..., answer=None)`. `slots` bounds the episodes offered at once (default
batch x repeat); every argument is also an attribute and may be changed while it runs.

Scripting:
    answer         async fn(episode_uuid, body, call_index): a text, a message dict, a whole
                   response dict (has `choices`), or an exception (raised or returned): a `Denied`
                   becomes its status, any other a 500. Default: a text that differs per episode.
    delay          seconds each chat call takes on top.
    streaming      how a stream is sent, see `scripted_stream`: three (default), keepalive, tokens,
                   whole; `keepalive` is the seconds between its comments.
    on_token       async fn(episode_uuid, chunk_index), awaited before each chunk of a stream; a
                   `Cut` raised there breaks the connection, an `End` ends the stream.
    fail_next(route, how, times=1)   the next requests to `route` ("/claim_episode", ...) fail: an
                   int is a status with a plain-text body, "drop" closes the connection before the
                   request is read, "drop_after" acts on it and then drops (the answer is
                   lost), "hang" acts on it and never answers, "hang_before" never reads it,
                   "late" acts on it and answers after `release()`, "stall" acts on it after
                   `release()`, "front" does so too, but a front's 504 is the answer, at once.
    fail_always(route, how | None)   the same until taken back with None.
    set_state(state, step=None)      post a status by hand; leaving rolling wipes the records.
    freeze(seconds) / unfreeze()     accept connections and answer nothing meanwhile.
    old_auth       True (default) answers a bad key as servers up to 2026-05 did: 200 with a body.
    pool_default   True gives the all-default pool object.
    start_error / config_error       what `/start_engine`, `/sync_train_config` refuse with.
    strict         True (default) reads a job as an AgentJet server does; the embedded engine, which
                   `AjetcTransport` puts in front, needs no key of it.
    gpus           GPUs of the one node (8): a job that asks for more does not start.
    log_lines      (tag, message) of `/get_verbose_logs`.
    composed       the job over the server's own defaults, once it was read; `boot_error` is why a
                   start failed after it was accepted (then the engine goes back to OFFLINE).
    saves          step of the newest save by experiment name: a start under that name resumes it,
                   whatever model its job names, as a trainer does.
    boot_seconds, stop_seconds       how long BOOTING lasts and a stop freezes the server.
    expire(uuid=None), register(n), finish_sync(), set `automatic` False: see `ScriptedPool`.

What happened (see `ScriptedPool` for all): `claims`, `refusals`, `ends`, `aborts`, `rewards` (by
uuid), `reward_log` ((uuid, task, reward)), `duplicate_ends`, `lost` (claimed when the records were
wiped), `batches`, `most_claimed`, `claimed()`; here: `chats` ((uuid, body, headers)), `requests`
(a Counter by route; `arrived` counts those of a frozen server too), `stops`, `connections`
(accepted so far). `await until(test, timeout=20)` waits for a condition on any of them.
"""

import asyncio
import contextlib
import inspect
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

import yaml
from aiohttp import web

from ajet_swarm.common.tasks import Tasks
from tests.support.scripted.chat import by_episode, completion, episode_of
from tests.support.scripted.job import compose, trainer_error
from tests.support.scripted.pool import Crash, Denied, Episode, ScriptedPool
from tests.support.scripted.stream import Cut, End, OnToken, begin, send_stream, with_keepalives
from tests.support.server_close import end_site

__all__ = ["Crash", "Cut", "Denied", "End", "Episode", "ScriptedSwarm"]

Answer = Callable[[str, dict[str, Any], int], Awaitable[Any]]
Route = Callable[[dict[str, Any]], Any]


class ScriptedSwarm(ScriptedPool):
    """See the module's docstring."""

    def __init__(
        self,
        *,
        state: str = "ROLLING",
        batch: int = 4,
        repeat: int = 4,
        slots: int | None = None,
        automatic: bool = True,
        sync_seconds: float | None = 0.05,
        method: str = "rollout_until_finish_enough_tasks",
        answer: Answer | None = None,
    ) -> None:
        super().__init__()
        self._first_state = state
        self.batch, self.repeat, self.slots = batch, repeat, slots
        self.automatic, self.sync_seconds, self.method = automatic, sync_seconds, method
        self.answer = answer or by_episode
        self.delay = 0.0
        self.streaming = "three"
        self.keepalive = 0.02
        self.on_token: OnToken | None = None
        self.old_auth = True
        self.pool_default = False
        self.start_error = ""
        self.config_error = ""
        self.strict = True
        self.gpus = 8
        self.log_lines = [("server", "hello")]
        self.composed: dict[str, Any] = {}
        self.boot_error = ""
        self.saves: dict[str, int] = {}
        self.boot_seconds = 0.05
        self.stop_seconds = 0.0
        self.chats: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self.requests: Counter[str] = Counter()
        self.arrived: Counter[str] = Counter()
        self.stops = 0
        self.connections = 0
        self.latest_call: dict[str, Any] | None = None
        self._failures: defaultdict[str, list[int | str]] = defaultdict(list)
        self._always: dict[str, int | str] = {}
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._released = asyncio.Event()
        self._closing = asyncio.Event()
        self._peers: set[Any] = set()
        self._behind = Tasks("behind a front")
        """Requests in process whose sender has got a front's answer."""
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # -- scripting ------------------------------------------------------------------------------

    def fail_next(self, route: str, how: int | str, times: int = 1) -> None:
        self._failures[route].extend([how] * times)

    def fail_always(self, route: str, how: int | str | None) -> None:
        if how is None:
            self._always.pop(route, None)
        else:
            self._always[route] = how

    def freeze(self, seconds: float | None = None) -> None:
        self._thawed.clear()
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, self._thawed.set)

    def release(self) -> None:
        self._released.set()

    def unfreeze(self) -> None:
        self._thawed.set()

    async def until(self, test: Callable[[], Any], timeout: float = 20.0) -> None:
        """Wait until `test()` is true.

        Raises:
            TimeoutError: it did not become so.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while not test():
            if loop.time() >= deadline:
                raise TimeoutError(f"not within {timeout:g} s")
            await asyncio.sleep(0.005)

    # -- life -----------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        app = web.Application(middlewares=[self._outer], client_max_size=1 << 26)
        posts: dict[str, Route] = {
            "/claim_episode": self.claim,
            "/end_episode": self.end,
            "/abort_episode": self.abort,
            "/can_continue_episode": self.can_continue,
            "/get_episode_buffer": lambda _: self.buffer(),
            "/agree_sync_weight": self.agree,
            "/sync_train_config": self._sync_config,
            "/start_engine": self._start,
            "/stop_engine": self._stop,
            "/replay_latest_llm_call": lambda _: self._replay(),
            "/v1/chat/completions": lambda _: None,
        }
        gets: dict[str, Route] = {
            "/health": lambda _: {"status": "ok"},
            "/get_engine_status": lambda _: self._status(),
            "/get_current_batch_rollout_pool_information": lambda _: self._pool(),
            "/get_server_experiment_dir": lambda _: {"server_experiment_dir": "/srv/run"},
            "/get_verbose_logs": lambda _: {
                "entries": [
                    {"timestamp": time.time(), "tag": tag, "message": message}
                    for tag, message in self.log_lines
                ]
            },
            "/openapi.json": lambda _: {"paths": {path: {} for path in [*posts, *gets]}},
        }
        for path, route in posts.items():
            app.router.add_post(path, self._chat if path.startswith("/v1") else _posted(route))
        for path, route in gets.items():
            app.router.add_get(path, _posted(route))
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        if self._first_state != "OFFLINE":
            self.set_state(self._first_state, 1)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        await self._behind.close()
        for event in (self._closing, self._thawed, self._released):
            event.set()
        if self._runner is not None:
            await end_site(self._runner)

    # -- routes ---------------------------------------------------------------------------------

    @web.middleware
    async def _outer(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        peer = request.transport.get_extra_info("peername") if request.transport else None
        if peer is not None and peer not in self._peers:
            self._peers.add(peer)
            self.connections += 1
        with contextlib.suppress(ConnectionError):
            await (
                request.read()
            )  # an arrived request is served, even when its sender has left since
        self.arrived[request.path] += 1
        await self._thawed.wait()
        self.requests[request.path] += 1
        queue = self._failures[request.path]
        how = queue.pop(0) if queue else self._always.get(request.path)
        if isinstance(how, int):
            return await self._crash(request, how)
        if how == "drop":
            return _dropped(request)
        if how == "hang_before":
            await self._closing.wait()
            return _dropped(request)
        if how == "front":
            self._behind.spawn(self._act_later(request, handler), request.path)
            page = "<html><h1>504 Gateway Time-out</h1></html>"
            return web.Response(status=504, text=page, content_type="text/html")
        if how == "stall":
            await self._released.wait()
        try:
            answer = await handler(request)
        except Denied as denied:
            answer = web.json_response({"detail": denied.detail}, status=denied.status)
        except Crash:
            return await self._crash(request, 500)
        except web.HTTPNotFound:
            answer = web.json_response({"detail": "Not Found"}, status=404)
        if how == "late":
            await self._released.wait()
        if how == "hang":
            await self._closing.wait()
        return _dropped(request) if how in ("drop_after", "hang") else answer

    async def _act_later(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> None:
        """Act on a request that the front has answered already."""
        await self._released.wait()
        with contextlib.suppress(Denied, Crash):
            await handler(request)

    async def _crash(self, request: web.Request, status: int) -> web.StreamResponse:
        """What uvicorn does with an uncaught error: plain text, then the connection is gone."""
        answer = web.Response(status=status, text="Internal Server Error")
        await answer.prepare(request)
        await answer.write_eof()
        if status >= 500 and request.transport is not None:
            request.transport.close()
        return answer

    def _status(self) -> dict[str, Any]:
        state = self.state if "." in self.state else f"ENGINE.{self.state}"
        return {
            "engine_status": state,
            "engine_status_detail": self.detail,
            "global_step": self.step,
            "added_by_a_later_version": {"x": 1},
        }

    def _pool(self) -> dict[str, Any]:
        if not self.pool_default:
            return self.pool()
        return {"sample_collection_method": "", "completed_episodes": 0, "engine_status": None}

    def _sync_config(self, body: dict[str, Any]) -> dict[str, Any]:
        if self.state != "OFFLINE":
            raise Denied(400, "Engine is not offline. Cannot sync train config.")
        if self.config_error:
            return {"success": False, "error": self.config_error}
        self.config = body["yaml_as_string"]
        return {"success": True}

    def _start(self, body: dict[str, Any]) -> dict[str, Any]:
        if self.state != "OFFLINE":
            raise Denied(400, "Engine is already started. Call `stop_engine` first.")
        if self.config is None:
            return {"success": False, "error": "No training config found."}
        self.set_state("BOOTING")
        if not self.strict:
            return self._boot()
        try:
            self.composed = compose(self.config)
        except (KeyError, TypeError, ValueError, yaml.YAMLError) as error:
            return {"success": False, "error": str(error)}  # BOOTING stays: only a stop resets it
        self.boot_error = trainer_error(self.composed, self.gpus)
        self.model = self.composed["ajet"]["model"]["path"]
        return self._boot()

    def _boot(self) -> dict[str, Any]:
        if self.start_error:
            return {"success": False, "error": self.start_error}
        loop = asyncio.get_running_loop()
        experiment = self.composed.get("ajet", {}).get("experiment_name", "")
        first = self.saves.get(experiment, 0) + 1
        reached = ("OFFLINE", 0) if self.boot_error else ("ROLLING", first)
        self._later = loop.call_later(self.boot_seconds, self.set_state, *reached)
        return {"success": True, "pid": 4242}

    async def _stop(self, body: dict[str, Any]) -> dict[str, Any]:
        self.stops += 1
        self.freeze()
        await asyncio.sleep(self.stop_seconds)
        self.set_state("OFFLINE", 0)
        self.unfreeze()
        return {"success": True, "failure_reason": ""}

    def _replay(self) -> dict[str, Any]:
        if self.latest_call is None:
            raise Denied(404, "No LLM call recorded yet.")
        return self.latest_call

    # -- chat -----------------------------------------------------------------------------------

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        name, wrong = episode_of(request.headers.get("Authorization", ""))
        if wrong:
            if self.old_auth:
                return web.json_response({"status_code": 401, "detail": wrong, "headers": None})
            raise Denied(401, wrong)
        try:
            body = await request.json()
        except ValueError:
            raise Crash from None
        if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
            raise Crash
        episode = self._rolling_episode(name)
        episode.calls += 1
        index = episode.calls - 1
        episode.active = time.time()
        self.chats.append((name, body, dict(request.headers)))
        work = self._in_turn(episode, body, index)
        if not body.get("stream") or self.streaming == "whole":
            return web.json_response(await work)
        if self.streaming != "keepalive":
            answer = await work
            response = await begin(request)
        else:
            response = await begin(request)
            try:
                answer = await with_keepalives(response, work, self.keepalive)
            except (Denied, Crash):  # the real server fails with a NameError here
                return _dropped(request)
        return await send_stream(request, response, answer, self.streaming, name, self.on_token)

    async def _in_turn(self, episode: Episode, body: dict[str, Any], index: int) -> dict[str, Any]:
        name = episode.uuid
        async with episode.turn:  # calls in one episode are strictly serial
            work = asyncio.get_running_loop().create_task(self._answered(name, body, index))
            try:
                while not (await asyncio.wait({work}, timeout=0.02))[0]:
                    self._rolling_episode(name, claimed=True)
                    episode.active = time.time()
                result = await work
            finally:
                work.cancel()
        self._rolling_episode(name, claimed=True)
        answer = completion(result)
        self.latest_call = {"input": body, "output": answer}
        return answer

    def _rolling_episode(self, name: str, claimed: bool = False) -> Episode:
        if not self.rolling:
            raise Denied(404, f"The server is not in ENGINE.ROLLING status: ENGINE.{self.state}.")
        episode = self.episodes.get(name)
        if episode is None:
            raise Denied(404, f"Episode {name} not found.")
        if claimed and not episode.claimed:
            raise Denied(404, f"Episode {name} is not claimed.")
        return episode

    async def _answered(self, name: str, body: dict[str, Any], index: int) -> Any:
        if self.delay:
            await asyncio.sleep(self.delay)
        answer = await self.answer(name, body, index)
        if isinstance(answer, Denied):
            raise answer
        if isinstance(answer, Exception):
            raise Crash from answer
        return answer


def _posted(route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handler(request: web.Request) -> web.StreamResponse:
        body: Any = {}
        if request.method == "POST":
            with contextlib.suppress(ValueError):
                body = await request.json()
        try:
            result = route(body)
            if inspect.isawaitable(result):
                result = await result
        except KeyError as missing:
            where = {"type": "missing", "loc": ["body", missing.args[0]], "msg": "Field required"}
            return web.json_response({"detail": [{**where, "input": body}]}, status=422)
        return web.json_response(result)

    return handler


def _dropped(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.close()
    return web.Response()
