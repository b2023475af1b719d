"""What `/metrics` counts, and that a scraper can read it."""

import re
from pathlib import Path

import pytest

from proxy.api.metrics import RequestMetrics
from proxy.api.prometheus import CONTENT_TYPE, line
from tests.support.proxy.front import BODIES, fronted
from tests.support.proxy.world import settings
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.wire import wire

CHAT = "/v1/chat/completions"
SAMPLE = re.compile(
    r'[a-zA-Z_:][a-zA-Z0-9_:]*(\{([a-z_]+="([^"\\\n]|\\.)*",?)+\})? ([-+]?[0-9.e+-]+|\+Inf)'
)


async def test_the_output_is_valid_prometheus_text(tmp_path: Path) -> None:
    async with fronted(tmp_path) as f:
        answer = await f.client.get("/metrics")
        assert answer.headers["content-type"].encode() == CONTENT_TYPE
        assert answer.text.endswith("\n")
        family = ""
        for one in answer.text.splitlines():
            if one.startswith("# HELP "):
                family = one.split()[2]
            elif one.startswith("# TYPE "):
                assert one.split()[2] == family
                assert one.split()[3] in ("gauge", "counter", "histogram")
            else:
                assert SAMPLE.fullmatch(one), one
                assert one.startswith(family)


@pytest.mark.slow
async def test_requests_are_counted_by_their_result(tmp_path: Path) -> None:
    async with fronted(tmp_path) as f:
        for path, body in BODIES.items():
            assert (await f.client.post(path, json=body)).is_success
        await f.client.post(CHAT, json={**BODIES[CHAT], "stream": True})
        await f.client.post(CHAT, json={})
        await f.world.closed()
        metrics = await f.metrics()
        name = f'engine="0",model_name="{f.world.groups.models()[0]}"'
        done = f'vllm:request_success_total{{{name},finished_reason="stop"}}'
        assert metrics[done] == 5
        assert metrics[f"vllm:prompt_tokens_total{{{name}}}"] == 5 * 7
        assert metrics[f"vllm:generation_tokens_total{{{name}}}"] == 5 * 4  # of the winners alone
        latency = "vllm:e2e_request_latency_seconds"
        assert metrics[f"{latency}_count{{{name}}}"] == 5
        assert metrics[f'{latency}_bucket{{{name},le="+Inf"}}'] == 5
        assert 0 < metrics[f"{latency}_sum{{{name}}}"] < 30
        assert metrics['ajet_requests_refused_total{status="400"}'] == 1
        assert metrics['ajet_episodes_total{outcome="ended"}'] == 20
        assert metrics["ajet_rewards_sent_total"] == 20
        assert metrics['ajet_groups_closed_total{phase="DONE"}'] == 5
        assert metrics["ajet_episodes_held"] == 0
        assert metrics['ajet_global_step{server="s"}'] >= 1
        assert metrics[f"vllm:num_requests_running{{{name}}}"] == 0


async def test_running_and_waiting_requests_are_gauges(tmp_path: Path) -> None:
    async with ScriptedSwarm(sync_seconds=None) as swarm, fronted(tmp_path, swarm) as f:
        swarm.delay = 30.0
        name = f'engine="0",model_name="{f.world.groups.models()[0]}"'
        async with wire(f.url) as one, wire(f.url) as two:
            await one.ask("POST", CHAT, BODIES[CHAT])
            await f.world.until(lambda: len(swarm.chats) == 4)
            metrics = await f.metrics()
            assert metrics[f"vllm:num_requests_running{{{name}}}"] == 1
            assert metrics[f"vllm:num_requests_waiting{{{name}}}"] == 0
            assert metrics["ajet_episodes_held"] == 4
            assert metrics['ajet_groups_open{phase="GENERATING"}'] == 1
            assert metrics['ajet_engine_state{server="s",state="ROLLING"}'] == 1
            swarm.set_state("WEIGHT_SYNCING", 1)
            await f.world.until(
                lambda: f.world.server.watcher.current.display_state == "WEIGHT_SYNCING"
            )
            await two.ask("POST", CHAT, {**BODIES[CHAT], "user": "two"})
            await f.world.until(lambda: f.world.groups.waiting)
            metrics = await f.metrics()
            assert metrics[f"vllm:num_requests_waiting{{{name}}}"] >= 1
            assert metrics["ajet_groups_queued"] >= 1
        await f.world.closed()
        metrics = await f.metrics()
        assert metrics['ajet_groups_closed_total{phase="ABORTED"}'] == 2
        assert metrics[f'vllm:request_success_total{{{name},finished_reason="stop"}}'] == 0


async def test_dead_groups_are_counted(tmp_path: Path) -> None:
    async with fronted(tmp_path, configured=settings(rating={"window": 0.0})) as f:

        async def same(ctx: object) -> list[float]:
            return [1.0] * 4

        f.world.source.scorer = same
        await f.client.post(CHAT, json=BODIES[CHAT])
        await f.world.closed()
        assert (await f.metrics())['ajet_groups_dead_total{cause="equal rewards"}'] == 1


def test_labels_are_escaped() -> None:
    assert line("a", {"b": 'x"y\\z\n'}, 1) == 'a{b="x\\"y\\\\z\\n"} 1.0'


def test_histogram_buckets_are_cumulative() -> None:
    meter = RequestMetrics()
    for seconds in (0.1, 0.3, 0.4, 1e9):
        meter.count_answer([], seconds)
    assert sum(meter._latencies) == 4
    assert meter._latencies[:2] == [2, 1]
    assert meter._latencies[-1] == 1
