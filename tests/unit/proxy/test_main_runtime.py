"""All parts of the proxy read the clocks and draw from the chance of its options."""

import dataclasses
import random
from pathlib import Path

import msgspec
import pytest

from ajet_swarm.runtime import Chance, Clock, Runtime
from core.runtime.home import Home
from core.settings import Settings
from proxy.api.handler import RequestHandler
from proxy.endpoint import create_app
from proxy.main import ProxyOptions, _open_context, http_config
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
            for part in (handle.client, handle.claimer):
                assert vars(part)["_chance"] is runtime.chance


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
