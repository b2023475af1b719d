"""All parts of the proxy read the clocks and draw from the chance of its options."""

import dataclasses
import random
from pathlib import Path

import msgspec
import pytest

from ajet_swarm.runtime import Chance, Clock, Runtime
from core.runtime.home import Home, Role
from core.settings import Settings
from proxy.api.handler import RequestHandler
from proxy.endpoint import create_app
from proxy.http.server import http_config
from proxy.main import ProxyOptions, _open_context
from tests.support.proxy.front import BODIES
from tests.support.proxy.world import world
from tests.support.scripted.openai import ScriptedOpenAI
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.served import client, served


@pytest.mark.parametrize("observes", [False, True])
async def test_all_parts_have_one_runtime(observes: bool, tmp_path: Path) -> None:
    runtime = Runtime(Clock(wall=lambda: 7.0), Chance(random.Random(1)))
    async with ScriptedOpenAI() if observes else ScriptedSwarm() as server:
        address = {"upstream": {"url": server.url}} if observes else {"swarm_url": server.url}
        settings = msgspec.convert({**address, "proxy": {"watch_only": not observes}}, Settings)
        options = ProxyOptions(Home.open(tmp_path), settings, runtime=runtime)
        async with _open_context(options, "http://127.0.0.1:0") as (context, _):
            (handle,) = context.servers.values()
            assert context.bus.run_id == Chance(random.Random(1)).token(6)
            assert context.clock() == context.bus.clock() == handle.watcher.clock() == 7.0
            assert vars(handle.client)["_runtime"] is runtime
            assert vars(handle.claimer)["_chance"] is runtime.chance


@pytest.mark.parametrize(
    ("starts_by", "message"), [(30.0, "The engine is starting."), (10.0, "The engine is OFFLINE")]
)
async def test_an_own_engine_that_is_off_starts_if_that_was_announced(
    starts_by: float, message: str, tmp_path: Path
) -> None:
    home = Home.open(tmp_path)
    runtime = Runtime(Clock(wall=lambda: 20.0))
    async with ScriptedSwarm(state="OFFLINE") as engine:
        settings = msgspec.convert({"swarm_url": "embedded"}, Settings)
        options = ProxyOptions(home, settings, runtime=runtime, engine_starts_by=starts_by)
        with Role(home, "engine") as role:
            role.publish(url=engine.url)
            async with _open_context(options, "http://127.0.0.1:0") as (context, _):
                (handle,) = context.servers.values()
                await handle.watcher.poll()
                assert handle.overloaded("", 1).message.startswith(message)


async def test_the_ids_of_an_answer_are_drawn_by_the_runtime(tmp_path: Path) -> None:
    class Fixed(Chance):
        def token(self, size: int) -> str:
            return "ab" * size

    async with world(tmp_path) as w:
        context = dataclasses.replace(w.context, runtime=Runtime(chance=Fixed()))
        app = create_app(context, w.groups, handler=RequestHandler(context, w.groups))
        async with (
            served(app, http_config(context.settings.proxy, app)) as url,
            client(url) as http,
        ):
            path = "/v1/chat/completions"
            chat = (await http.post(path, json=BODIES[path])).json()
            path = "/v1/responses"
            response = (await http.post(path, json=BODIES[path])).json()
    drawn = "ab" * 8
    assert chat["id"] == f"chatcmpl-{drawn}"
    assert (response["id"], response["output"][0]["id"]) == (f"resp_{drawn}", f"msg_{drawn}")
