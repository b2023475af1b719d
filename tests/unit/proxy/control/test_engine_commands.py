"""Commands about checkpoints, episodes, the jobs that are offered, and prompts that are tried."""

import asyncio

import pytest

from ajet_swarm.common.errors import AjetError
from ajet_swarm.job.schema import LEARNING_RATE, MODEL
from ajet_swarm.job.tree import get
from core.commands import COMMANDS, CommandError
from core.events import (
    AlertRaised,
    CheckpointsListed,
    GroupOpened,
    ProxyStarted,
    TrainingRunIdentified,
    TryAnswered,
    TryAsked,
)
from core.settings import EngineSettings
from core.state import State, reduce
from proxy.control.job_commands import engine_of, presets
from proxy.servers.extensions import LISTED, refresh_checkpoints, tokens
from tests.support.proxy.world import World, texts
from tests.support.scripted.ajetc_transport import AjetcTransport


@pytest.fixture
async def engine(w: World) -> AjetcTransport:
    """The server keeps checkpoints."""
    return await w.embedded()


def listed(made: World) -> list[str] | None:
    checkpoints = made.state.servers["s"].checkpoints
    return None if checkpoints is None else [one.name for one in checkpoints]


async def test_a_saved_checkpoint_reports_its_step_and_is_in_the_state(
    w: World, engine: AjetcTransport
) -> None:
    assert await w.order("engine.save", name=" mine ") == ("s: checkpoint mine saved, step 7")
    assert listed(w) == ["mine", "latest", "step-000005", "previous"]
    assert w.swarm.stops == 0


async def test_a_rolling_engine_is_stopped_for_a_restore_and_resumed(
    w: World, engine: AjetcTransport
) -> None:
    w.swarm.config = "the job it has"
    result = await w.order("engine.restore", name="step-000005")
    assert result == "s is back at step-000005, step 5; it continues from there"
    assert w.swarm.stops == 1
    assert w.swarm.config == "the job it has"
    assert engine.saved["latest"] == 5
    await w.swarm.until(lambda: w.swarm.state == "ROLLING")


async def test_an_offline_engine_stays_offline_after_a_restore(
    w: World, engine: AjetcTransport
) -> None:
    await w.order("engine.stop")
    assert w.server.watcher.current.state == "OFFLINE"  # without a wait for the next poll
    result = await w.order("engine.restore", name="base")
    assert result == "s is back at base, step 0; resume it to continue from there"
    assert "resume it" in await w.order("engine.reset")
    assert (w.swarm.stops, w.swarm.state) == (1, "OFFLINE")


@pytest.mark.parametrize(
    ("name", "words"), [("nothing", "there is no checkpoint"), ("previous", "is damaged")]
)
async def test_a_refused_restore_does_not_stop_the_engine(
    w: World, engine: AjetcTransport, name: str, words: str
) -> None:
    engine.damaged.add("previous")
    with pytest.raises(AjetError, match=words):
        await w.order("engine.restore", name=name)
    assert (w.swarm.stops, engine.orders) == (0, [])


async def test_an_engine_is_resumed_when_a_restore_fails_after_the_stop(
    w: World, engine: AjetcTransport
) -> None:
    w.swarm.config = "the job it has"
    engine.refuses = (409, "The checkpoint is damaged: its checksum differs")
    with pytest.raises(AjetError, match="its checksum differs"):
        await w.order("engine.restore", name="step-000005")
    assert w.swarm.stops == 1
    await w.swarm.until(lambda: w.swarm.state == "ROLLING")


async def test_resume_uses_the_job_of_the_server_else_the_default(
    w: World, engine: AjetcTransport
) -> None:
    w.swarm.config = "the job it has"
    for verb in ("resume", "start"):
        assert "ROLLING already" in await w.order(f"engine.{verb}")
    with pytest.raises(AjetError, match="ROLLING, not OFFLINE"):
        await w.order("engine.start", preset="hand")
    assert w.swarm.config == "the job it has"
    await w.order("engine.stop")
    assert await w.order("engine.resume") == "s continues"
    assert w.swarm.config == "the job it has"
    await w.order("engine.stop")
    engine.job = None
    assert "it had none" in await w.order("engine.resume")
    assert "ajet" in str(w.swarm.config)


async def test_a_failed_start_shows_no_secret_of_the_job(w: World, engine: AjetcTransport) -> None:
    await w.order("engine.stop")
    job = "ajet: {model: {path: m}, teacher_model: {api_key: hunter2hunter2}}"
    await w.order("engine.job", job=job)
    engine.job, w.swarm.start_error = None, "refused: api_key=hunter2hunter2"
    with pytest.raises(AjetError, match=r"api_key=\*\*\*") as caught:
        await w.order("engine.resume")
    assert "hunter2" not in f"{caught.value}{w.kinds(AlertRaised)}"


async def test_a_failed_start_raises_an_alert(w: World, engine: AjetcTransport) -> None:
    await w.order("engine.stop")
    w.swarm.config, w.swarm.start_error = "x", "no GPU is free"
    with pytest.raises(AjetError, match="no GPU is free"):
        await w.order("engine.resume")
    assert [one.key for one in w.kinds(AlertRaised)] == ["start:s"]


async def test_prune_lists_the_deleted_checkpoints(w: World, engine: AjetcTransport) -> None:
    with pytest.raises(CommandError, match="`keep` cannot be -1"):
        await w.order("engine.prune", keep=-1)
    assert await w.order("engine.prune", keep="1") == "s: there is nothing to delete"
    assert await w.order("engine.prune", keep="0") == "s: deleted step-000005"
    assert listed(w) == ["latest", "previous"]


async def test_a_server_without_checkpoints_refuses_the_commands(w: World) -> None:
    for name, args in (
        ("engine.save", {"name": "x"}),
        ("engine.restore", {"name": "x"}),
        ("engine.reset", {}),
        ("engine.prune", {"keep": 1}),
        ("engine.resume", {}),
    ):
        with pytest.raises(AjetError, match="this server has no checkpoints"):
            await w.order(name, **args)
    with pytest.raises(AjetError, match="this server has no token log"):
        await tokens(w.context, "e1", "s")
    assert w.swarm.stops == 0
    assert listed(w) is None
    await refresh_checkpoints(w.context, w.server)
    assert not w.kinds(CheckpointsListed)


async def test_only_a_changed_list_of_checkpoints_is_published_and_it_is_bounded(
    w: World, engine: AjetcTransport
) -> None:
    engine.saved = {f"step-{number:06}": number for number in range(LISTED + 4)}
    engine._facts = lambda name: {"name": name, "step": engine.saved[name], "at": 5.0}  # type: ignore[method-assign] # the same at each look
    for _ in range(3):
        assert len(await refresh_checkpoints(w.context, w.server)) == LISTED + 4
    (event,) = w.kinds(CheckpointsListed)
    assert (len(event.checkpoints), event.more) == (LISTED, 4)
    engine.paths = ()
    await w.server.client.features(again=True)
    await refresh_checkpoints(w.context, w.server)
    assert listed(w) is None


def test_destructive_commands_are_marked_as_dangerous() -> None:
    danger = {name for name, command in COMMANDS.items() if command.danger}
    assert {"engine.restore", "engine.reset", "engine.prune"} <= danger
    assert not {"engine.save", "engine.resume"} & danger


TINY = EngineSettings()


LARGE = EngineSettings(backend="torch", model="org/name")


@pytest.mark.parametrize(
    ("reported", "settings", "expected"),
    [
        ({"backend": "torch", "model": "org/other"}, TINY, ("torch", "org/other")),
        ({"backend": "torch", "model": ""}, LARGE, ("torch", "tiny")),
        ({"backend": "numpy", "model": ""}, LARGE, ("numpy", "tiny")),
        ({}, LARGE, ("torch", "org/name")),
        ({"backend": "later"}, TINY, ("numpy", "tiny")),
    ],
    ids=["other model", "of the job", "tiny", "not reported", "unknown"],
)
async def test_the_engine_that_runs_wins_over_the_settings(
    w: World, reported: dict[str, str], settings: EngineSettings, expected: tuple[str, str]
) -> None:
    swarm = await w.embedded()
    swarm.backend = reported
    engine = await engine_of(w.server.client, settings)
    assert (engine.backend, engine.model) == expected


async def test_a_server_without_the_route_or_without_an_answer_changes_nothing(w: World) -> None:
    assert await engine_of(w.server.client, LARGE) == LARGE
    swarm = await w.embedded()
    swarm.backend = {"backend": ["odd"]}  # type: ignore[dict-item]  # of a faulty server
    assert await engine_of(w.server.client, LARGE) == LARGE


async def test_a_large_model_never_gets_the_learning_rate_of_the_tiny_policy(w: World) -> None:
    swarm = await w.embedded()
    swarm.backend = {"backend": "torch", "model": "org/name"}
    jobs = await presets(w.context, w.server, embedded=True)
    for job in jobs.values():
        assert get(job, MODEL) == "org/name"
        assert get(job, LEARNING_RATE) is None


async def answered(w: World, count: int = 1) -> TryAnswered:
    await w.until(lambda: len(w.kinds(TryAnswered)) >= count)
    result: TryAnswered = w.kinds(TryAnswered)[-1]
    return result


async def test_a_try_is_one_eval_episode_and_trains_nothing(w: World) -> None:
    w.swarm.answer = texts("Paris.", "Paris, of course.")
    result = await w.order("engine.try", prompt="Capital of France?", try_id="t1")
    assert "t1" in result
    actual = await answered(w)
    await w.closed()
    assert (actual.text, actual.error, actual.finish_reason) == ("Paris.", "", "stop")
    assert actual.step == 1
    assert actual.seconds > 0
    (claimed,) = w.swarm.claims
    assert w.swarm.episodes[claimed].type == "eval"
    assert not w.swarm.reward_log
    assert not w.swarm.claimed()
    (opened,) = w.kinds(GroupOpened)
    assert (opened.episode_type, opened.n) == ("eval", 1)
    assert opened.body["messages"] == [{"role": "user", "content": "Capital of France?"}]
    await w.order("engine.try", prompt="Capital of France?")
    await answered(w, 2)
    await w.closed()
    first, second = w.state.tries
    assert (first.text, second.text) == ("Paris.", "Paris, of course.")
    assert (first.step, first.over, first.group_id) == (1, True, opened.group_id)
    await w.context.journal.durable(w.state.seq)
    stored = [type(one) for one in w.context.journal.events(0, 500)]
    assert stored.count(TryAsked) == stored.count(TryAnswered) == 2


async def test_a_try_carries_the_training_run_of_its_step(w: World) -> None:
    w.context.bus.publish(TrainingRunIdentified(server="s", number=3, name="chat.3"))
    w.swarm.answer = texts("Paris.")
    await w.order("engine.try", prompt="Capital of France?", try_id="t1")
    await answered(w)
    (one,) = w.state.tries
    assert [(each.step, each.run) for each in (*w.kinds(TryAsked), one)] == [(1, 3)] * 2
    await w.closed()


async def test_a_cancelled_try_returns_its_episode(w: World) -> None:
    w.swarm.delay = 30.0
    await w.order("engine.try", prompt="slow", try_id="t1")
    await w.swarm.until(lambda: w.swarm.chats)
    assert "cancelled" in await w.order("engine.try_stop")
    result = await answered(w)
    await w.closed()
    assert result.error == "cancelled"
    assert not result.text
    assert not w.swarm.claimed()
    assert await w.order("engine.try_stop", try_id="t1") == "try t1 has ended"
    assert await w.order("engine.try_stop") == "no try runs"
    with pytest.raises(AjetError, match="no such try"):
        await w.order("engine.try_stop", try_id="t2")


async def test_an_answer_that_fails_is_an_error_not_an_empty_answer(w: World) -> None:
    w.swarm.answer = texts(RuntimeError("no"))
    await w.order("engine.try", prompt="x", try_id="t1")
    result = await answered(w)
    await w.closed()
    assert result.error
    assert not result.text
    assert w.state.tries[0].error == result.error


@pytest.mark.world(state="OFFLINE")
async def test_an_engine_that_is_off_cannot_be_tried(w: World) -> None:
    with pytest.raises(AjetError, match="OFFLINE"):
        await w.order("engine.try", prompt="x")
    assert not w.kinds(TryAsked)
    assert not w.swarm.claims
    for wrong in ({"prompt": "  "}, {"prompt": "x", "server": "nowhere"}):
        with pytest.raises(AjetError):
            await w.order("engine.try", **wrong)


async def test_a_second_try_with_the_same_id_is_refused(w: World) -> None:
    await w.order("engine.try", prompt="x", try_id="t1")
    with pytest.raises(AjetError, match="already"):
        await w.order("engine.try", prompt="y", try_id="t1")
    await answered(w)
    await w.closed()


async def test_a_proxy_that_stops_leaves_no_try_open(w: World) -> None:
    w.swarm.delay = 30.0
    await w.order("engine.try", prompt="slow", try_id="t1")
    await w.swarm.until(lambda: w.swarm.chats)
    async with asyncio.timeout(20):
        await w.groups.close()
    assert (await answered(w)).error


def test_a_new_run_ends_the_tries_of_the_old_one() -> None:
    state = State()
    reduce(state, TryAsked(try_id="t1", group_id="g", prompt="x" * 5000, server="s", seq=1))
    assert len(state.tries[0].prompt) == 2000
    started = ProxyStarted(client_uuid="me", pid=1, url="", version="1", servers={}, rewards="")
    assert "tries" in reduce(state, started)
    assert state.tries[0].over
    assert "ended before" in state.tries[0].error
