"""The embedded engine's own routes in front of a scripted swarm server, on a script."""

import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ajet_swarm.http.interface import Request, Response, Transport
from tests.support.scripted.swarm import ScriptedSwarm

PATHS = (
    "/ajetc/info",
    "/ajetc/updates",
    "/ajetc/tokens/{episode_uuid}",
    "/ajetc/checkpoints",
    "/ajetc/restore",
    "/ajetc/prune",
    "/ajetc/reset",
)


class AjetcTransport:
    """A transport that answers `/ajetc` itself and forwards the rest to the scripted server.

    Attributes:
        saved: Name -> step, newest first.
        damaged: Names of damaged checkpoints.
        updates: What `/ajetc/updates` returns.
        tokens: Episode -> its token log.
        orders: POST requests: path and body.
        paths: Routes the server has.
        run: Id of the training run; None as from an engine that reports none.
    """

    def __init__(self, behind: Transport, swarm: ScriptedSwarm) -> None:
        self.behind, self.swarm = behind, swarm
        swarm.strict = False
        self.saved: dict[str, int] = {"latest": 7, "step-000005": 5, "previous": 6}
        self.damaged: set[str] = set()
        self.updates: list[dict[str, Any]] = []
        self.tokens: dict[str, Any] = {}
        self.orders: list[tuple[str, Any]] = []
        self.paths: tuple[str, ...] = PATHS
        self.refuses: tuple[int, str] | None = None
        self.job: dict[str, Any] | None = {"batch": 4}
        self.run: str | None = None
        self.run_start = ""
        self.hardware: dict[str, Any] | None = None
        self.backend: dict[str, str] = {}
        """Backend and model; empty as from an older engine."""

    async def request(self, request: Request) -> Response:
        parts = urlsplit(request.url)
        if parts.path == "/openapi.json":
            return self._answer(200, {"paths": {path: {} for path in self.paths}})
        if not parts.path.startswith("/ajetc"):
            return await self.behind.request(request)
        value = json.loads(request.body) if request.body else None
        if request.method == "POST":
            self.orders.append((parts.path, value))
            if self.refuses is not None:
                status, why = self.refuses
                return self._answer(status, {"detail": why})
            return self._changed(parts.path, value)
        return self._read(parts.path, parse_qs(parts.query))

    def _answer(self, status: int, value: Any) -> Response:
        return Response(status, {}, json.dumps(value).encode())

    def _read(self, path: str, query: Mapping[str, list[str]]) -> Response:
        if path == "/ajetc/info":
            info = {"job": self.job, "damping": 0.0, "hardware": self.hardware, **self.backend}
            return self._answer(200, {**info, **self._run()})
        if path == "/ajetc/updates":
            after = int(query["after"][0])
            return self._answer(200, [update for update in self.updates if update["step"] > after])
        if path == "/ajetc/checkpoints":
            return self._answer(200, [self._facts(name) for name in self.saved])
        response = self.tokens.get(path.rpartition("/")[2])
        if response is None:
            return self._answer(404, {"detail": "that episode has no tokens here"})
        return self._answer(200, response)

    def _run(self) -> dict[str, Any]:
        return {} if self.run is None else {"run": self.run, "run_start": self.run_start}

    def _facts(self, name: str) -> dict[str, Any]:
        return {
            "name": name,
            "step": self.saved[name],
            "bytes": 11_000_000,
            "at": time.time(),
            "base": "b",
            "kept": not name.startswith(("step", "hand", "mine")),
            "damaged": name in self.damaged,
        }

    def _changed(self, path: str, body: Any) -> Response:
        if path in ("/ajetc/restore", "/ajetc/reset") and self.swarm.state != "OFFLINE":
            return self._answer(400, {"detail": "Engine is not offline"})
        if path == "/ajetc/checkpoints":
            self.saved = {body["name"]: self.saved["latest"], **self.saved}
            return self._answer(200, {"success": True, **body, "step": self.saved["latest"]})
        if path == "/ajetc/restore":
            self.saved = {**self.saved, "latest": self.saved.get(body["name"], 0)}
            return self._answer(200, {"success": True, **body, "step": self.saved["latest"]})
        if path == "/ajetc/prune":
            named = [name for name in self.saved if name.startswith(("step", "hand", "mine"))]
            for name in named[body["keep"] :]:
                del self.saved[name]
            return self._answer(200, {"success": True, "deleted": named[body["keep"] :]})
        self.saved.pop("latest", None)
        return self._answer(200, {"success": True, "step": 0})
