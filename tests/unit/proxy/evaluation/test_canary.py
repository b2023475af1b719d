"""Canary of weight syncs: comparison of readings, when they are taken, episodes given back."""

import asyncio
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ajet_swarm.api.outcomes import answer_of
from core.events import AlertCleared, AlertRaised, TrainingRunIdentified, WeightSyncChecked
from proxy.evaluation.canary import (
    CHECK_EVERY,
    HIDDEN,
    Canary,
    CanaryWatch,
    EpisodeReader,
    Interrupted,
    Reading,
    SyncResult,
    compare,
    first_logprobs,
)
from tests.support.alerts import cause_of
from tests.support.proxy.world import World, world
from tests.support.scripted.swarm import ScriptedSwarm

pytestmark = pytest.mark.slow

BASE: Reading = {(number, "a"): -0.3 - 0.1 * number for number in range(8)}


def moved(by: float, reading: Reading = BASE) -> Reading:
    return {key: value - by for key, value in reading.items()}


def noisy(dice: random.Random, size: float) -> Reading:
    return {key: value + dice.gauss(0.0, size) for key, value in BASE.items()}


# --- comparison ---------------------------------------------------------------------------------


def test_exact_log_probs_show_whether_anything_changed() -> None:
    assert compare(BASE, BASE, BASE) == SyncResult("unchanged")
    assert compare(BASE, BASE, moved(1e-7)).outcome == "unchanged"  # sums in another order
    assert compare(BASE, BASE, moved(1e-3)).outcome == "changed"


def test_a_change_and_the_noise_are_in_nats() -> None:
    result = compare(BASE, moved(0.001), moved(0.5))
    assert result.noise == pytest.approx(0.001 / math.sqrt(2.0))
    assert result.change == pytest.approx(0.4995 / math.sqrt(1.5))


@pytest.mark.parametrize(("size", "expected"), [(1e-5, "unchanged"), (0.01, "unknown")])
def test_noise_alone_is_no_change(size: float, expected: str) -> None:
    """Wrong in at most three of a thousand syncs; above the limit nothing is called unchanged."""
    dice = random.Random(size)
    outcomes = [compare(*(noisy(dice, size) for _ in range(3))).outcome for _ in range(2000)]
    assert outcomes.count("changed") <= 6
    assert outcomes.count(expected) == len(outcomes) - outcomes.count("changed")  # type: ignore[arg-type]


def test_a_change_beyond_the_noise_is_seen() -> None:
    dice = random.Random(3)
    triples = [(noisy(dice, 0.01), noisy(dice, 0.01), noisy(dice, 0.01)) for _ in range(200)]
    outcomes = [compare(one, two, moved(0.2, three)).outcome for one, two, three in triples]
    assert set(outcomes) == {"changed"}


def test_readings_of_random_tokens_say_nothing() -> None:
    one, two, three = (
        {(number, f"{sample}{number}"): -1.0 for number in range(8)} for sample in "abc"
    )
    assert compare(one, two, three).outcome == "unknown"


def test_other_greatest_tokens_after_equal_ones_are_a_change() -> None:
    after = {(number, "b"): value for (number, _), value in BASE.items()}
    assert compare(BASE, BASE, after).outcome == "changed"
    one_other: dict[tuple[int, str], float] = {**BASE, (0, "b"): -0.3}
    del one_other[0, "a"]
    assert compare(BASE, BASE, one_other).outcome == "changed"
    few = dict(list(BASE.items())[:3])
    assert compare(few, few, few).outcome == "unknown"


def answer(logprobs: Any) -> Any:
    message = {"role": "assistant", "content": "a"}
    choice = {"message": message, "finish_reason": "length", "logprobs": logprobs}
    return answer_of(200, b"", {"choices": [choice]})


@pytest.mark.parametrize(
    "logprobs",
    [None, [], {}, {"content": None}, {"content": []}, {"content": [None]}, {"content": [{}]}],
)
def test_an_answer_without_log_probs_has_none(logprobs: Any) -> None:
    assert first_logprobs(answer(logprobs)) == {}


def test_unusable_log_probs_are_left_out() -> None:
    bad = [
        {"token": "b", "logprob": -9999.0},
        {"token": "c", "logprob": None},
        {"token": "d", "logprob": True},
        {"token": 5, "logprob": -1.0},
        {"token": "e", "logprob": 0.5},
        "text",
    ]
    content = [{"token": "a", "logprob": -0.25, "top_logprobs": bad}, {"token": "z"}]
    assert first_logprobs(answer({"content": content})) == {"a": -0.25}


# --- readings -----------------------------------------------------------------------------------


class Scripted:
    """Readings in order; an exception is raised."""

    def __init__(self, *readings: Reading | Exception | None) -> None:
        self.left = list(readings)
        self.readings = 0

    async def __call__(self) -> Reading | None:
        self.readings += 1
        reading = self.left.pop(0)
        if isinstance(reading, Exception):
            raise reading
        return reading


async def results(canary: Canary, steps: Sequence[tuple[int, int]]) -> list[tuple[int, SyncResult]]:
    """Take all due readings of each training run and step, in order."""
    actual = []
    for run, step in steps:
        canary.begin(run, step)
        for _ in range(5):
            if not canary.due:
                break
            try:
                result = await canary.step()
            except Interrupted:
                continue
            actual += [result] if result is not None else []
    return actual


async def test_each_step_has_two_readings_and_each_sync_one_result() -> None:
    measure = Scripted(BASE, BASE, BASE, BASE, moved(0.1), moved(0.1))
    result = await results(Canary(measure), [(1, 1), (1, 2), (1, 2), (1, 3)])
    assert [(step, one.outcome) for step, one in result] == [(1, "unchanged"), (2, "changed")]
    assert measure.readings == 6


async def test_a_server_that_hides_log_probs_is_asked_once_in_a_training_run() -> None:
    measure = Scripted(None, None)
    result = await results(Canary(measure), [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2)])
    assert result == [(step, SyncResult("unknown", HIDDEN)) for step in (1, 2, 1)]
    assert measure.readings == 2


async def test_a_reading_that_was_interrupted_is_taken_again() -> None:
    measure = Scripted(Interrupted(), BASE, BASE, Interrupted(), BASE, BASE)
    result = await results(Canary(measure), [(1, 1), (1, 2)])
    assert [(step, one.outcome) for step, one in result] == [(1, "unchanged")]


async def test_too_few_readings_before_a_sync_give_no_result() -> None:
    measure = Scripted(BASE, *[Interrupted()] * 4, BASE, BASE)
    result = await results(Canary(measure), [(1, 1), (1, 2)])
    assert [(step, one.outcome) for step, one in result] == [(1, "unknown")]
    assert "fewer than two" in result[0][1].cause


@pytest.mark.parametrize("after", [(2, 2), (1, 1), (2, 9)], ids=["run", "back", "both"])
async def test_other_weights_than_those_of_a_sync_are_not_compared(after: tuple[int, int]) -> None:
    measure = Scripted(BASE, BASE, BASE, BASE)
    assert await results(Canary(measure), [(1, 2), after]) == []


async def test_a_reading_of_weights_that_were_replaced_meanwhile_is_dropped() -> None:
    canary: Canary

    async def replaced() -> Reading | None:
        canary.begin(1, 2)
        return BASE

    canary = Canary(replaced)
    canary.begin(1, 1)
    with pytest.raises(Interrupted):
        await canary.step()


# --- events, alert ------------------------------------------------------------------------------


def watch(w: World, measure: Any = None, waits: bool = False) -> CanaryWatch:
    w.context.bus.publish(TrainingRunIdentified(server="s", number=1, name="a"))
    return CanaryWatch(w.context, w.server, w.groups.server_facts["s"], lambda: waits, measure)


async def at_step(w: World, step: int) -> None:
    w.swarm.set_state("ROLLING", step)
    await w.until(lambda: w.server.watcher.current.step == step)


async def test_only_an_unchanged_sync_raises_an_alert_until_one_changes(tmp_path: Path) -> None:
    other = moved(0.1)
    async with world(tmp_path) as w:
        one = watch(w, Scripted(BASE, BASE, BASE, BASE, other, other))
        for step in (1, 2, 3):
            await at_step(w, step)
            await one.check()
            await one.check()
            if step == 2:
                raised = w.state.alerts["sync:s"]
                assert cause_of(raised) == "the weight sync of step 1 changed nothing on s"
        result = [(event.step, event.outcome) for event in w.kinds(WeightSyncChecked)]
        assert result == [(1, "unchanged"), (2, "changed")]
        assert "sync:s" not in w.state.alerts
        assert (len(w.kinds(AlertRaised)), len(w.kinds(AlertCleared))) == (1, 1)
        check = w.state.servers["s"].sync_check
        assert (check.step, check.outcome, check.change > check.noise) == (2, "changed", True)


async def test_an_unknown_result_raises_no_alert(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        one = watch(w, Scripted(None))
        for step in (1, 2):
            await at_step(w, step)
            await one.check()
        assert [event.outcome for event in w.kinds(WeightSyncChecked)] == ["unknown"]
        assert not w.kinds(AlertRaised)


async def test_nothing_is_read_while_a_user_waits_or_the_engine_does_not_roll(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as w:
        measure = Scripted(BASE)
        await watch(w, measure, waits=True).check()
        w.swarm.set_state("WEIGHT_SYNCING", 1)
        await w.until(lambda: w.server.watcher.current.state.value == "WEIGHT_SYNCING")
        await watch(w, measure).check()
        assert measure.readings == 0
        assert CHECK_EVERY >= 0.1


# --- eval episodes ------------------------------------------------------------------------------


def reader(w: World, waits: Any = lambda: False) -> EpisodeReader:
    return EpisodeReader(w.server, w.groups.server_facts["s"], waits)


def scored(value: float = -0.5) -> Any:
    async def reply(name: str, body: dict[str, Any], index: int) -> dict[str, Any]:
        assert (body["logprobs"], body["max_tokens"]) == (True, 1)
        message = {"role": "assistant", "content": "red"}
        logprobs = {"content": [{"token": "red", "logprob": value, "top_logprobs": []}]}
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": "length",
            "logprobs": logprobs,
        }
        return {"id": "x", "object": "chat.completion", "choices": [choice]}

    return reply


async def until_released(w: World) -> None:
    await w.until(lambda: not w.swarm.claimed())
    assert not w.server.claimer.ends.held


async def test_one_eval_episode_reads_all_prompts_and_is_given_back(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.swarm.answer = scored()
        reading = await reader(w)()
        assert reading == {(number, "red"): -0.5 for number in range(8)}
        assert len(w.swarm.claims) == 1
        await until_released(w)


async def test_a_server_that_hides_log_probs_gives_none_after_one_call(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        assert await reader(w)() is None
        await until_released(w)


async def test_an_engine_that_stops_in_the_middle_interrupts_the_reading(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        begun = asyncio.Event()

        async def never(name: str, body: dict[str, Any], index: int) -> str:
            begun.set()
            await asyncio.Event().wait()
            return ""

        w.swarm.answer = never

        async def stop() -> None:
            await begun.wait()
            w.swarm.set_state("OFFLINE", 0)

        w.context.tasks.spawn(stop(), "stop")
        async with asyncio.timeout(20):
            with pytest.raises(Interrupted):
                await reader(w)()
        assert not w.server.claimer.ends.held


async def test_a_user_who_arrives_in_the_middle_gets_the_episode(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        waits = False

        async def slow(name: str, body: dict[str, Any], index: int) -> Any:
            nonlocal waits
            waits = True
            return await scored()(name, body, index)

        w.swarm.answer = slow
        with pytest.raises(Interrupted, match="user waits"):
            await reader(w, lambda: waits)()
        await until_released(w)


async def test_no_free_episode_is_no_reading_and_never_queues(tmp_path: Path) -> None:
    async with ScriptedSwarm(slots=4) as swarm, world(tmp_path, swarm) as w:
        for _ in range(4):
            await w.server.client.claim("eval", 60.0)
        with pytest.raises(Interrupted, match="no episode is free"):
            await reader(w)()
        assert not w.server.claimer.queue.starved


async def test_a_cancelled_reading_gives_its_episode_back(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        begun = asyncio.Event()

        async def never(name: str, body: dict[str, Any], index: int) -> str:
            begun.set()
            await asyncio.Event().wait()
            return ""

        w.swarm.answer = never
        running = w.context.tasks.spawn(reader(w)(), "reading")  # type: ignore[arg-type]
        await begun.wait()
        running.cancel()
        await asyncio.wait({running})
        await until_released(w)
