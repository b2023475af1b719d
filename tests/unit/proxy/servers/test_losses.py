"""What keeps a batch from ending, who took an episode, and why a server is off."""

import time
from typing import Any

import msgspec
import pytest

import ajet_swarm.api.watcher
import proxy.servers.losses
import proxy.servers.watch
from console.models.advice import advice_context
from console.text.alerts import alert_text
from core.events import AlertRaised
from proxy.servers.losses import AbortWatch, client_name
from tests.support.alerts import cause_of
from tests.support.proxy.world import World, let, settings
from tests.support.scripted.swarm import ScriptedSwarm

pytestmark = pytest.mark.slow


DEAD = "5f0c4d1e-9a3b-4c57-8e2f-0123456789ab"


KEY = "held:s"


OFF = {"straggler_after": 0, "straggler_limit": 0}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy.servers.losses, "HELD_AFTER", 0.3)
    monkeypatch.setattr(proxy.servers.losses, "SILENT_AFTER", 0.6)
    monkeypatch.setattr(proxy.servers.watch, "CHECK_EVERY", 0.05)
    monkeypatch.setattr(ajet_swarm.api.watcher, "POOL", 0.05)


def take(swarm: ScriptedSwarm, count: int, client: str = DEAD, timeout: float = 60.0) -> list[str]:
    """Episodes another client claims and never calls."""
    body = {"client_uuid": client, "episode_type": "train", "discard_episode_timeout": timeout}
    return [swarm.claim(body)["episode_uuid"] for _ in range(count)]


async def silent(w: World, place: int = 0) -> Any:
    """A group of which one candidate never answers, in ROLLING_POST."""
    w.hold(place)
    ticket = await w.ask()
    await w.answered(ticket, 3)
    w.swarm.set_state("ROLLING_POST")
    return ticket


@pytest.mark.world(watched=True)
async def test_a_dead_client_is_named_until_its_episodes_are_gone(w: World) -> None:
    uuids = take(w.swarm, 3)
    w.swarm.set_state("ROLLING_POST")
    waiting = await w.ask()
    alert = await w.until(lambda: w.state.alerts.get(KEY))
    assert alert.level == "error"
    cause = cause_of(alert)
    assert "3 episodes held by client 5f0c4d1e, last seen " in cause
    assert all(uuid[:8] in cause for uuid in uuids)
    assert DEAD not in cause
    left = int(cause.partition("taken back in ")[2].partition(" s")[0])
    assert 50 <= left < 60
    assert cause.endswith("; 1 user waits")
    for uuid in uuids:
        w.swarm.expire(uuid)
    await w.until(lambda: KEY not in w.state.alerts)
    assert (await w.reply(waiting)).answer is not None


@pytest.mark.world(settings(proxy=OFF), watched=True)
async def test_a_silent_runner_of_ours_is_named_with_its_group(w: World) -> None:
    ticket = await silent(w)
    alert = await w.until(lambda: w.state.alerts.get(KEY))
    name = w.swarm.claims[0][:8]
    assert f"1 episode of our group {ticket.group_id} ({name}): no answer for " in cause_of(alert)
    await w.commands.abort(ticket.group_id)
    await w.until(lambda: KEY not in w.state.alerts)


@pytest.mark.world(settings(proxy=OFF), watched=True)
async def test_a_group_without_answers_is_named(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy.servers.losses, "UNANSWERED_AFTER", 0.5)
    w.swarm.delay = 600.0
    ticket = await w.ask()
    await w.until(lambda: len(w.swarm.chats) == 4)
    w.swarm.set_state("ROLLING_POST")
    alert = await w.until(lambda: w.state.alerts.get(KEY))
    assert f"4 episodes of our group {ticket.group_id} (" in cause_of(alert)
    assert " and 1 more): no answer for " in cause_of(alert)


@pytest.mark.world(watched=True)
async def test_a_batch_that_ends_raises_nothing(w: World) -> None:
    take(w.swarm, 1, "alice")
    w.swarm.set_state("ROLLING_POST")
    await w.until(lambda: w.state.servers["s"].state == "ROLLING_POST")
    w.swarm.expire(w.swarm.claims[0])
    await w.until(lambda: w.state.servers["s"].state == "ROLLING")
    await let(1.2, w)
    assert not [kind for kind in w.kinds(AlertRaised) if kind.key == KEY]


@pytest.mark.world(watched=True)
async def test_an_active_client_is_named_only_after_a_while(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy.servers.losses, "SILENT_AFTER", 30.0)
    take(w.swarm, 1, "alice")
    w.swarm.set_state("ROLLING_POST")
    await let(2.2, w)
    assert KEY not in w.state.alerts
    monkeypatch.setattr(proxy.servers.losses, "NAME_ALL_AFTER", 1.0)
    alert = await w.until(lambda: w.state.alerts.get(KEY))
    assert "1 episode held by client alice, last seen " in cause_of(alert)


@pytest.mark.world(watched=True)
async def test_figures_are_updated_every_few_seconds_and_owners_at_once(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    uuids = [*take(w.swarm, 2), *take(w.swarm, 1, "bob")]
    w.swarm.set_state("ROLLING_POST")
    await w.until(lambda: KEY in w.state.alerts and "client bob" in cause_of(w.state.alerts[KEY]))

    def raised() -> int:
        return sum(kind.key == KEY for kind in w.kinds(AlertRaised))

    before = raised()
    await let(2.2, w)
    assert raised() == before
    w.swarm.expire(uuids[-1])
    await w.until(lambda: raised() > before, 2.5)
    assert "bob" not in cause_of(w.state.alerts[KEY])
    monkeypatch.setattr(proxy.servers.losses, "UPDATE_EVERY", 0.5)
    await let(2.0, w)
    await w.until(lambda: raised() > before + 2, 5.0)


@pytest.mark.world(watched=True)
async def test_a_server_without_details_raises_nothing(w: World) -> None:
    take(w.swarm, 1)
    w.swarm.pool_default = True
    w.swarm.set_state("ROLLING_POST")
    await let(1.8, w)
    assert KEY not in w.state.alerts


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (DEAD, "5f0c4d1e"),
        (DEAD.replace("-", ""), "5f0c4d1e"),
        ("alice", "alice"),
        ("", ""),
        ("a\x1b[2Jb", "a\u241b[2Jb"),
    ],
)
def test_a_generated_client_name_is_shortened(name: str, shown: str) -> None:
    assert "\x1b" not in client_name(name)
    assert client_name(name) == shown


@pytest.mark.world(settings(proxy={"answer_budget": 1.5, "stream_budget": 30.0}), watched=True)
async def test_a_batch_held_by_another_client_does_not_spend_the_answer_budget(w: World) -> None:
    uuids = take(w.swarm, 3)
    w.swarm.set_state("ROLLING_POST")
    waiting = await w.ask()
    await w.until(lambda: KEY in w.state.alerts)
    await let(3.0, w)
    for uuid in uuids:
        w.swarm.expire(uuid)
    assert (await w.reply(waiting)).answer is not None


@pytest.mark.world(
    settings(proxy={"answer_budget": 1.5, "stream_budget": 30.0, "max_groups": 1}), watched=True
)
async def test_a_request_at_the_gate_gets_more_time_too(w: World) -> None:
    uuids = take(w.swarm, 3)
    w.swarm.delay = 600.0
    first = await w.ask()
    await w.until(lambda: len(w.swarm.chats) == 4)
    second = await w.ask("another")
    w.swarm.set_state("ROLLING_POST")
    await w.until(lambda: KEY in w.state.alerts)
    await let(3.0, w)
    w.swarm.delay = 0.0
    await w.commands.abort(first.group_id)
    for uuid in uuids:
        w.swarm.expire(uuid)
    assert (await w.reply(second)).answer is not None


@pytest.mark.world(settings(proxy={"answer_budget": 1.0, "answer_limit": 2.0}), watched=True)
async def test_no_request_waits_longer_than_its_limit(w: World) -> None:
    take(w.swarm, 3)
    w.swarm.set_state("ROLLING_POST")
    waiting = await w.ask()
    await let(2.0, w)
    reply = await w.reply(waiting)
    assert reply.error is not None
    assert 2.0 <= waiting.age < 10.0


@pytest.mark.world(settings(proxy={"abort_dead_clients": 2.0}), watched=True)
async def test_episodes_of_a_dead_client_are_aborted_where_the_settings_say_so(w: World) -> None:
    dead, alive = take(w.swarm, 2), take(w.swarm, 1, "alice")
    w.swarm.set_state("ROLLING_POST")
    waiting = await w.ask()

    def alive_alone() -> bool:
        w.swarm.episodes[alive[0]].active = time.time()  # it calls
        return [one.uuid for one in w.swarm.claimed()] == alive

    await w.until(alive_alone)
    assert not set(dead) & set(w.swarm.episodes)
    w.swarm.expire(alive[0])
    assert (await w.reply(waiting)).answer is not None


@pytest.mark.world(settings(proxy={"abort_dead_clients": 0.5}), watched=True)
async def test_an_abort_that_a_server_may_still_process_is_not_repeated(w: World) -> None:
    dead = take(w.swarm, 1)
    w.swarm.fail_always("/abort_episode", "front")
    w.swarm.set_state("ROLLING_POST")
    await w.until(lambda: w.swarm.requests["/abort_episode"])
    seen = w.swarm.requests["/get_engine_status"]
    await w.until(lambda: w.swarm.requests["/get_engine_status"] > seen + 10)
    assert [one.uuid for one in w.swarm.claimed()] == dead
    assert w.swarm.requests["/abort_episode"] == 1
    w.swarm.fail_always("/abort_episode", None)
    w.swarm.release()


CLAIM = {"client_uuid": "other", "episode_type": "train", "discard_episode_timeout": 60}


def abort_causes(made: World) -> list[str]:
    return [cause_of(kind) for kind in made.kinds(AlertRaised) if kind.key == "taken:s"]


@pytest.mark.world(settings(rating={"mode": "hold"}), batch=2, repeat=2, watched=True)
async def test_an_abort_by_another_client_raises_an_alert_with_its_group(w: World) -> None:
    """While a group waits for its rating nothing else detects them."""
    w.console()
    _, group = await w.held("hello")
    await w.until(lambda: len(w.swarm.claimed()) == 2)
    await w.server.watcher.poll_pool()
    victim = w.swarm.claimed()[0].uuid
    w.swarm.abort({"client_uuid": "other", "episode_uuid": victim})
    await w.until(lambda: abort_causes(w), 8)
    (cause,) = abort_causes(w)
    assert f"an episode of group {group.group_id[:12]} on s: aborted after 0 s" in cause


@pytest.mark.world(settings(rating={"mode": "hold"}))
async def test_one_reading_without_an_episode_raises_no_alert(w: World) -> None:
    """An end or an abort of the proxy in progress may be absent from one reading of the pool."""
    w.console()
    await w.ask("hello")
    await w.open("AWAITING_RATING")
    held = await w.server.watcher.poll_pool()
    taken = msgspec.structs.replace(held, running_episode_details={})
    watch = AbortWatch(w.context, w.server)
    for pool in (held, taken, held, taken):
        watch.on_pool(pool)
    assert not abort_causes(w)
    watch.on_pool(taken)
    assert abort_causes(w)


@pytest.mark.world(watched=True)
async def test_the_alert_of_a_stopped_server_names_the_other_clients(w: World) -> None:
    w.swarm.claim(CLAIM)
    await w.server.watcher.poll_pool()
    await w.until(lambda: w.state.servers["s"].pool.other_clients == ("other",))
    w.swarm.set_state("OFFLINE")
    await w.until(lambda: "off:s" in w.state.alerts)
    cause = cause_of(w.state.alerts["off:s"])
    assert cause.startswith("s is off: stopped by someone else")
    assert cause.endswith("; on it then: other")


TAG = "find_max_ppo_token_len"


HEAD = "[FIND_MAX_PPO_TOKEN_LEN][rank0]"


MEASURED = [
    (TAG, f"{HEAD} start=4096 cap=65536 ceil=73.6GB margin=0.9"),
    (TAG, f"{HEAD} L=4096 tok/gpu (synth_total=4096) -> OK  peak=30.12GB"),
    (TAG, f"{HEAD} L=8192 tok/gpu (synth_total=8192) -> OK  peak=55.40GB"),
    (TAG, f"{HEAD} L=16384 tok/gpu (synth_total=16384) -> OOM peak=79.00GB"),
]


RESULT = (TAG, "  Recommended (x0.9 head-room): ajet.rollout.ppo_max_token_len_per_gpu = 10800")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([("server", "hello")], "is off: stopped by someone else, or its trainer ended"),
        (
            MEASURED,
            "memory probe has ended: 8192 tokens per GPU fit (55.40 GB); the server's log has the",
        ),
        (MEASURED[:1], "memory probe has ended: no size that fits"),
        ([*MEASURED, RESULT], "ajet.rollout.ppo_max_token_len_per_gpu = 10800 is recommended"),
    ],
)
@pytest.mark.world(watched=True)
async def test_a_memory_probe_is_a_result(
    w: World, lines: list[tuple[str, str]], words: str
) -> None:
    w.swarm.log_lines = lines
    await w.until(lambda: w.state.servers["s"].state == "ROLLING")
    w.swarm.set_state("OFFLINE", 0)

    def shown() -> str:
        alert = w.state.alerts.get("off:s")
        return alert_text(alert, advice_context()).cause if alert is not None else ""

    await w.until(lambda: words in shown())
