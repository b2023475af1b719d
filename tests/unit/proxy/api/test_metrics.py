"""What `/metrics` counts, and that a scraper can read it."""

import re
from pathlib import Path

import pytest

from tests.support.proxy.front import BODIES, fronted
from tests.support.proxy.world import settings
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.wire import wire

CHAT = "/v1/chat/completions"
SAMPLE = re.compile(
    r'[a-zA-Z_:][a-zA-Z0-9_:]*(\{([a-z_]+="([^"\\\n]|\\.)*",?)+\})? ([-+]?[0-9.e+-]+|\+Inf)'
)


FAMILIES = {
    "vllm:num_requests_running": "gauge",
    "vllm:num_requests_waiting": "gauge",
    "vllm:request_success_total": "counter",
    "vllm:prompt_tokens_total": "counter",
    "vllm:generation_tokens_total": "counter",
    "vllm:e2e_request_latency_seconds": "histogram",
    "ajet_requests_refused_total": "counter",
    "ajet_episodes_total": "counter",
    "ajet_groups_closed_total": "counter",
    "ajet_groups_dead_total": "counter",
    "ajet_rewards_sent_total": "counter",
    "ajet_keepalives_total": "counter",
    "ajet_groups_open": "gauge",
    "ajet_groups_queued": "gauge",
    "ajet_episodes_held": "gauge",
    "ajet_engine_state": "gauge",
    "ajet_global_step": "gauge",
}
"""What docs/guide/serving.md and the dashboard name."""


async def test_the_output_is_valid_prometheus_text(tmp_path: Path) -> None:
    async with fronted(tmp_path) as f:
        answer = await f.client.get("/metrics")
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert answer.text.endswith("\n")
        families, family = {}, ""
        for one in answer.text.splitlines():
            if one.startswith("# HELP "):
                family = one.split()[2]
            elif one.startswith("# TYPE "):
                assert one.split()[2] == family
                families[family] = one.split()[3]
            else:
                assert SAMPLE.fullmatch(one), one
                assert one.startswith(family)
    assert families == FAMILIES


@pytest.mark.slow
async def test_requests_are_counted_by_their_result(tmp_path: Path) -> None:
    async with fronted(tmp_path) as f:
        for path, body in BODIES.items():
            assert (await f.client.post(path, json=body)).is_success
        await f.client.post(CHAT, json={**BODIES[CHAT], "stream": True})
        await f.client.post(CHAT, json={})
        await f.world.closed()
        metrics = await f.metrics()
        model = f'model_name="{f.world.groups.models()[0]}"'
        name = f'engine="0",{model}'
        done = f'vllm:request_success_total{{engine="0",finished_reason="stop",{model}}}'
        assert metrics[done] == 5
        assert metrics[f"vllm:prompt_tokens_total{{{name}}}"] == 5 * 7
        assert metrics[f"vllm:generation_tokens_total{{{name}}}"] == 5 * 4  # of the winners alone
        latency = "vllm:e2e_request_latency_seconds"
        assert metrics[f"{latency}_count{{{name}}}"] == 5
        assert metrics[f'{latency}_bucket{{engine="0",le="+Inf",{model}}}'] == 5
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
        model = f'model_name="{f.world.groups.models()[0]}"'
        name = f'engine="0",{model}'
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
        assert (
            metrics[f'vllm:request_success_total{{engine="0",finished_reason="stop",{model}}}'] == 0
        )


async def test_dead_groups_are_counted(tmp_path: Path) -> None:
    async with fronted(tmp_path, configured=settings(rating={"window": 0.0})) as f:

        async def same(ctx: object) -> list[float]:
            return [1.0] * 4

        f.world.source.scorer = same
        await f.client.post(CHAT, json=BODIES[CHAT])
        await f.world.closed()
        assert (await f.metrics())['ajet_groups_dead_total{cause="equal rewards"}'] == 1


async def test_histogram_buckets_are_cumulative(tmp_path: Path) -> None:
    async with fronted(tmp_path) as f:
        for seconds in (0.1, 0.3, 0.4, 1e9):
            f.handler.metrics.count_answer([], seconds)
        metrics = await f.metrics()
        labels = f'model_name="{f.world.groups.models()[0]}"'
        bounds = ("0.3", "0.5", "960.0", "+Inf")
        assert [
            metrics[f'vllm:e2e_request_latency_seconds_bucket{{engine="0",le="{bound}",{labels}}}']
            for bound in bounds
        ] == [2, 3, 3, 4]


async def test_two_proxies_count_for_themselves(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    async with fronted(tmp_path / "a") as one, fronted(tmp_path / "b") as other:
        await one.client.post(CHAT, json={})
        refused = 'ajet_requests_refused_total{status="400"}'
        assert ((await one.metrics())[refused], (await other.metrics()).get(refused)) == (1, None)
