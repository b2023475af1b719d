"""A proxy in observe mode in the test's own loop, on a scripted upstream.

async with observed(tmp_path) as o:
    reply = await o.world.reply(await o.world.ask("hello"))
"""

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec

from ajet_swarm.common.tasks import Tasks
from ajet_swarm.http.transport import HttpTransport
from core.bus import Bus
from core.events import ProxyStarted
from core.journal.writer import Journal
from core.settings import UpstreamSettings
from proxy.admission.registry import Groups
from proxy.admission.sessions import Limits
from proxy.api.handler import RequestHandler
from proxy.context import ProxyContext
from proxy.dataset_rows import Rows
from proxy.endpoint import create_app
from proxy.http.server import http_config
from proxy.servers.observe import ObserveClient, observe_handle
from proxy.servers.watch import ServerWatch
from tests.support.proxy.world import FAST, Line, Source, World, settings
from tests.support.scripted.openai import ScriptedOpenAI
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.served import client, served


@dataclass
class Observed:
    """One proxy, its upstream and a client of it."""

    world: World
    upstream: ScriptedOpenAI
    client: httpx.AsyncClient

    @property
    def observe(self) -> ObserveClient:
        client = self.world.server.client
        assert isinstance(client, ObserveClient)
        return client

    async def post(self, text: str = "hello", **body: Any) -> httpx.Response:
        """One chat request over the wire."""
        result = {"model": "any", "messages": [{"role": "user", "content": text}], **body}
        return await self.client.post("/v1/chat/completions", json=result)


@contextlib.asynccontextmanager
async def observed(
    home: Path,
    upstream: ScriptedOpenAI | None = None,
    upstream_settings: Mapping[str, Any] | None = None,
    *,
    ready: bool = True,
    **sections: Mapping[str, Any],
) -> AsyncIterator[Observed]:
    """A proxy on `upstream`, one of its own when not given.

    Args:
        home: Of its journal.
        upstream: Already serving.
        upstream_settings: Further settings of the upstream.
        ready: Wait until it was seen.
        sections: Other settings, see `context.settings`.
    """
    async with contextlib.AsyncExitStack() as stack:
        if upstream is None:
            upstream = await stack.enter_async_context(ScriptedOpenAI())
        wanted = msgspec.convert(
            {"url": upstream.url, **(upstream_settings or {})}, UpstreamSettings
        )
        configured = msgspec.structs.replace(settings(**sections), upstream=wanted)
        line = Line(await stack.enter_async_context(HttpTransport()))
        journal = Journal(home / "j.db")
        stack.callback(journal.close)
        bus = Bus(journal, "run")
        tasks = await stack.enter_async_context(Tasks("proxy"))
        server = observe_handle(configured, "upstream", line, "me")
        stack.push_async_callback(server.claimer.close, 0.5)
        source = Source()
        context = ProxyContext(
            settings=configured,
            journal=journal,
            bus=bus,
            servers={"upstream": server},
            rewards=source,
            rows=Rows(),
            tasks=tasks,
            client_uuid="me",
        )
        groups = Groups(context, Limits.of(configured.proxy, **FAST))
        stack.push_async_callback(groups.close)
        world = World(ScriptedSwarm(), context, groups, source, line)
        bus.listen(lambda event, _: world.events.append(event))
        bus.publish(
            ProxyStarted(
                client_uuid="me",
                pid=1,
                url="",
                version="0",
                servers={"upstream": server.url},
                rewards="scripted",
                rating_mode=configured.rating.mode,
            )
        )
        tasks.spawn(ServerWatch(context, server).run(), "watch")
        if ready:
            await server.watcher.wait_for(lambda status: status.reachable, 60)
        await groups.recover()
        app = create_app(context, groups, handler=RequestHandler(context, groups))
        url = await stack.enter_async_context(served(app, http_config(configured.proxy, app)))
        yield Observed(world, upstream, await stack.enter_async_context(client(url)))
