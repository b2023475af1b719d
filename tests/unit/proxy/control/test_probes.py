"""Probe prompts: one eval episode, an answer that is stored, nothing trained."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ajet_swarm.common.errors import AjetError
from core.commands import validate
from core.events import GroupOpened, ProxyStarted, TrainingRunIdentified, TryAnswered, TryAsked
from core.state import State, reduce
from proxy.control.dispatch import CommandDispatcher
from tests.support.proxy.world import World, texts, world
from tests.support.scripted.swarm import ScriptedSwarm


async def order(dispatcher: CommandDispatcher, name: str, **args: Any) -> str:
    message, _ = await dispatcher.execute(name, validate(name, args))
    return message


async def answered(w: World, count: int = 1) -> TryAnswered:
    await w.until(lambda: len(w.kinds(TryAnswered)) >= count)
    result: TryAnswered = w.kinds(TryAnswered)[-1]
    return result


async def test_a_try_is_one_eval_episode_and_trains_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.swarm.answer = texts("Paris.", "Paris, of course.")
        dispatcher = CommandDispatcher(w.context, w.groups)
        result = await order(dispatcher, "engine.try", prompt="Capital of France?", try_id="t1")
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
        await order(dispatcher, "engine.try", prompt="Capital of France?")
        await answered(w, 2)
        await w.closed()
        first, second = w.state.tries
        assert (first.text, second.text) == ("Paris.", "Paris, of course.")
        assert (first.step, first.over, first.group_id) == (1, True, opened.group_id)
        await w.context.journal.durable(w.state.seq)
        stored = [type(one) for one in w.context.journal.events(0, 500)]
        assert stored.count(TryAsked) == stored.count(TryAnswered) == 2


async def test_a_try_carries_the_training_run_of_its_step(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.context.bus.publish(TrainingRunIdentified(server="s", number=3, name="chat.3"))
        w.swarm.answer = texts("Paris.")
        dispatcher = CommandDispatcher(w.context, w.groups)
        await order(dispatcher, "engine.try", prompt="Capital of France?", try_id="t1")
        await answered(w)
        (one,) = w.state.tries
        assert [(each.step, each.run) for each in (*w.kinds(TryAsked), one)] == [(1, 3)] * 2
        await w.closed()


async def test_a_cancelled_try_returns_its_episode(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.swarm.delay = 30.0
        dispatcher = CommandDispatcher(w.context, w.groups)
        await order(dispatcher, "engine.try", prompt="slow", try_id="t1")
        await w.swarm.until(lambda: w.swarm.chats)
        assert "cancelled" in await order(dispatcher, "engine.try_stop")
        result = await answered(w)
        await w.closed()
        assert result.error == "cancelled"
        assert not result.text
        assert not w.swarm.claimed()
        assert await order(dispatcher, "engine.try_stop", try_id="t1") == "try t1 has ended"
        assert await order(dispatcher, "engine.try_stop") == "no try runs"
        with pytest.raises(AjetError, match="no such try"):
            await order(dispatcher, "engine.try_stop", try_id="t2")


async def test_an_answer_that_fails_is_an_error_not_an_empty_answer(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.swarm.answer = texts(RuntimeError("no"))
        await order(CommandDispatcher(w.context, w.groups), "engine.try", prompt="x", try_id="t1")
        result = await answered(w)
        await w.closed()
        assert result.error
        assert not result.text
        assert w.state.tries[0].error == result.error


async def test_an_engine_that_is_off_cannot_be_tried(tmp_path: Path) -> None:
    async with ScriptedSwarm(state="OFFLINE") as swarm, world(tmp_path, swarm) as w:
        dispatcher = CommandDispatcher(w.context, w.groups)
        with pytest.raises(AjetError, match="OFFLINE"):
            await order(dispatcher, "engine.try", prompt="x")
        assert not w.kinds(TryAsked)
        assert not swarm.claims
        for wrong in ({"prompt": "  "}, {"prompt": "x", "server": "nowhere"}):
            with pytest.raises(AjetError):
                await order(dispatcher, "engine.try", **wrong)


async def test_a_second_try_with_the_same_id_is_refused(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        dispatcher = CommandDispatcher(w.context, w.groups)
        await order(dispatcher, "engine.try", prompt="x", try_id="t1")
        with pytest.raises(AjetError, match="already"):
            await order(dispatcher, "engine.try", prompt="y", try_id="t1")
        await answered(w)
        await w.closed()


async def test_a_proxy_that_stops_leaves_no_try_open(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.swarm.delay = 30.0
        await order(
            CommandDispatcher(w.context, w.groups), "engine.try", prompt="slow", try_id="t1"
        )
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
