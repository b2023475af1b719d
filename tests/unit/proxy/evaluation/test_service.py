"""Looks at a scripted swarm server: baseline, verdict, cuts, changes of reward and probe set."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.commands.spec import NotNow
from core.events import (
    GroupOpened,
    LookEnded,
    LookStarted,
    ProbeSetLoaded,
    Rewound,
    TrainingPaused,
    TrainingResumed,
)
from proxy.alerts import dismiss_alert
from proxy.control.dispatch import CommandDispatcher
from proxy.evaluation.measurement import Measurement, SampleArchive
from proxy.evaluation.sampling import SnapshotSampler
from proxy.evaluation.service import Evaluation, MeasurementService
from proxy.rewards.model.file import parse
from proxy.rewards.model.source import ComposedSource
from tests.support.alerts import cause_of, todo_of
from tests.support.proxy.measured import (
    PROMPTS,
    SAMPLES,
    Measured,
    Policy,
    ended,
    measured,
    progress,
    write_probe_set,
)
from tests.support.scripted.ajetc_transport import AjetcTransport

pytestmark = pytest.mark.slow


@pytest.mark.world(0.3)
async def test_the_first_look_is_the_baseline_and_a_better_policy_is_found(m: Measured) -> None:
    baseline = await ended(m, 1)
    assert (baseline.role, baseline.outcome, baseline.cause) == ("baseline", "complete", "")
    assert baseline.mean == pytest.approx(0.3, abs=0.05)
    assert baseline.low < baseline.mean < baseline.high
    assert (baseline.verdict, baseline.step) == (None, 1)
    assert m.policy.calls == PROMPTS * SAMPLES
    look = await m.look(0.9)
    assert (look.role, look.outcome, look.baseline_id) == ("look", "complete", baseline.look_id)
    assert look.verdict.outcome == "better"
    assert look.verdict.effect == pytest.approx(0.6, abs=0.1)
    assert (look.verdict.prompts, look.verdict.look) == (PROMPTS, 1)
    third = await m.look()
    assert (third.verdict.look, third.baseline_id) == (2, baseline.look_id)
    assert third.verdict.alpha < look.verdict.alpha, "the shares of 5 % shrink"
    figures = {part.part: part for part in look.parts}
    assert figures["right"].outcome == "better"
    assert figures["right"].before == pytest.approx(0.3, abs=0.05)
    assert {"length", "repetition"} <= set(figures)
    assert progress(m).current is not None
    assert [prompt.id for prompt in progress(m).now] == [f"p{n}" for n in range(1, PROMPTS + 1)]
    assert not m.swarm.reward_log, "nothing is trained on"
    assert not m.kinds(GroupOpened), "samples are no requests of users"
    assert not m.swarm.claimed()
    assert {episode.type for episode in m.swarm.episodes.values() if episode.calls} <= {
        "eval",
        "train",
    }


async def test_all_samples_of_a_look_are_stored(m: Measured, tmp_path: Path) -> None:
    look = await ended(m, 1)
    stored = SampleArchive(tmp_path).read(look.file)
    assert (stored.look_id, stored.step, stored.server) == (look.look_id, 1, "s")
    assert [len(prompt.samples) for prompt in stored.prompts] == [SAMPLES] * PROMPTS
    sample = stored.prompts[0].samples[0]
    assert (sample.text, sample.reward, sample.parts) == ("2", 1.0, {"right": 1.0})
    assert (tmp_path / look.file).stat().st_mode & 0o777 == 0o600


async def test_a_look_is_cut_when_the_engine_leaves_rolling_and_gives_all_back(m: Measured) -> None:
    await ended(m, 1)
    m.swarm.fail_always("/v1/chat/completions", "late")
    m.service.demand("look")
    await m.until(lambda: m.swarm.claimed())
    m.swarm.state = "ROLLING_POST"
    look = await ended(m, 2)
    assert (look.outcome, look.verdict, look.prompts) == ("cut", None, ())
    assert "the engine left step 1 before the look was complete" in look.cause
    m.swarm.release()
    await m.until(lambda: not m.swarm.claimed())
    assert progress(m).current is None
    assert progress(m).running is None


async def test_no_probe_is_claimed_while_a_user_waits(m: Measured) -> None:
    await ended(m, 1)
    waits = True
    m.service._user_waits = lambda: waits
    claims = len(m.swarm.claims)
    m.service.demand("look")
    await m.until(lambda: len(m.kinds(LookStarted)) == 2)
    for _ in range(20):
        await asyncio.sleep(0.01)
    assert len(m.swarm.claims) == claims
    waits = False
    assert (await ended(m, 2)).outcome == "complete"


@pytest.mark.world(0.5)
async def test_a_changed_reward_begins_a_new_comparison_with_the_same_samples(m: Measured) -> None:
    first = await ended(m, 1)
    calls = m.policy.calls
    m.context.rewards = ComposedSource(model=parse("parts:\n  long: {kind: length}\n", None))
    m.service.demand("look")
    rescored, look = await ended(m, 2), await ended(m, 3)
    assert (rescored.role, rescored.restarted) == ("baseline", "the reward changed")
    assert rescored.reward != first.reward
    assert rescored.prompts[0].example == first.prompts[0].example
    assert m.policy.calls == 2 * calls, "the baseline was not sampled again"
    assert (look.baseline_id, look.reward) == (rescored.look_id, rescored.reward)
    assert look.verdict.look == 1


@pytest.mark.world(0.5)
async def test_another_probe_set_begins_with_a_new_baseline(m: Measured, tmp_path: Path) -> None:
    first = await ended(m, 1)
    write_probe_set(tmp_path / "set.jsonl", first=100)
    await m.service.load()
    second = await m.look()
    assert (second.role, second.restarted) == ("baseline", "the probe set changed")
    assert second.probe_set != first.probe_set


async def test_the_number_of_samples_is_the_samplers_unless_it_is_set(tmp_path: Path) -> None:
    async with measured(tmp_path, Policy(0.5), samples=0) as (w, _):
        baseline = await ended(w, 1)
        assert {len(prompt.rewards) for prompt in baseline.prompts} == {8}, "eval episodes"
        assert w.kinds(LookStarted)[0].samples == PROMPTS * 8
    assert SnapshotSampler.usual == 16


async def test_parts_that_a_look_leaves_out_give_their_weight_to_the_others(tmp_path: Path) -> None:
    rewards = "parts:\n  exact: {weight: 0.3}\n  diversity: {weight: %s}\n"
    async with measured(tmp_path, Policy(1.0), rewards=rewards % 0.7) as (w, _):
        baseline = await ended(w, 1)
        assert baseline.mean == pytest.approx(1.0)
        assert [reason.split(":")[0] for reason in baseline.left_out] == ["diversity"]
    (tmp_path / "more").mkdir()
    async with measured(tmp_path / "more", Policy(1.0), rewards=rewards % 5) as (w, _):
        assert (await ended(w, 1)).mean == pytest.approx(1.0), "a sum of 1 at most"


@pytest.mark.world(0.5)
async def test_a_restarted_proxy_continues_the_comparison(m: Measured, tmp_path: Path) -> None:
    baseline = await ended(m, 1)
    await m.look()
    restarted = MeasurementService(
        m.context, m.server, m.service._facts, tmp_path, shipped=False, user_waits=lambda: False
    )
    evaluation = Evaluation({"s": restarted})
    await evaluation.start()
    look = await ended(m, 3)
    await evaluation.close()
    assert look.baseline_id == baseline.look_id
    assert look.verdict.look == 2
    (tmp_path / baseline.file).unlink()
    m.service._samples = None
    assert (await m.look()).restarted == "the samples of the baseline cannot be read"


@pytest.mark.world(0.5)
async def test_an_engine_that_restarts_before_the_baseline_is_not_comparable(m: Measured) -> None:
    await ended(m, 1)
    m.swarm.step = 40
    await m.until(lambda: m.state.servers["s"].step == 40)
    assert (await m.look(demand="baseline")).restarted == "requested by the operator"
    m.swarm.state = "OFFLINE"
    await m.until(lambda: m.state.servers["s"].state == "OFFLINE")
    m.swarm.step, m.swarm.state = 1, "ROLLING"
    third = await ended(m, 3)
    assert third.role == "baseline"
    assert "started again at step 1, before step 40" in third.restarted


@pytest.mark.world(0.0, rewards="")
async def test_a_reward_that_only_compares_is_scored_head_to_head(m: Measured) -> None:

    async def shorter(ctx: Any) -> list[float]:
        texts = [answer.message["content"] for answer in ctx.answers]
        return [float(len(text) == min(map(len, texts))) for text in texts]

    m.source.scorer = shorter
    baseline = await ended(m, 1)
    assert (baseline.mode, baseline.mean) == ("wins", 0.5)
    look = await m.look(1.0)  # `30` is shorter than `no idea`
    assert (look.mode, look.mean) == ("wins", 1.0)
    assert (look.verdict.outcome, look.verdict.reference) == ("better", 0.5)


@pytest.mark.world(rewards="")
async def test_a_reward_that_abstains_in_the_middle_gives_no_verdict(m: Measured) -> None:
    await ended(m, 1)
    m.source.abstains = "the judge is out of budget"
    look = await m.look()
    assert (look.outcome, look.verdict) == ("failed", None)
    assert "the judge is out of budget" in look.cause
    assert "prompt p1" in look.cause


@pytest.mark.world(score_high=0.5)
async def test_a_reward_outside_the_range_names_the_settings(m: Measured) -> None:
    look = await ended(m, 1)
    assert look.outcome == "failed"
    assert "is outside 0 to 0.5" in look.cause
    assert "rating.score_high" in look.cause


async def test_a_server_that_fails_prompts_gives_no_verdict(m: Measured) -> None:
    await ended(m, 1)
    m.swarm.fail_always("/v1/chat/completions", 500)
    look = await m.look()
    assert (look.outcome, look.verdict) == ("failed", None)
    assert "500" in look.cause
    await m.until(lambda: not m.swarm.claimed())


async def test_a_probe_prompt_of_a_user_is_answered_and_not_trained_on(m: Measured) -> None:
    await ended(m, 1)
    ticket = await m.ask("what is 3+3 ?!")
    reply = await m.reply(ticket)
    assert reply.answer is not None
    await m.closed()
    group = m.group(ticket)
    assert (group.n, group.episode_type) == (1, "eval")
    assert "held-out prompt" in group.cause
    assert not m.swarm.reward_log
    other = await m.ask("What is 3 + 4?")
    await m.reply(other)
    await m.closed()
    assert m.group(other).episode_type == "train"


@pytest.mark.world(0.5, every=2)
async def test_looks_follow_the_weight_syncs_by_themselves(m: Measured) -> None:
    await ended(m, 1)
    for step in (2, 3):
        m.swarm.step = step
        await m.until(lambda step=step: m.state.servers["s"].step == step)
    assert (await ended(m, 2)).step == 3
    assert len(m.kinds(LookEnded)) == 2, "none at step 2"


async def test_without_a_probe_set_nothing_is_claimed_and_the_command_says_why(
    tmp_path: Path,
) -> None:
    (tmp_path / "set.jsonl").write_text("")
    async with measured(tmp_path, Policy(1.0)) as (w, service):
        (loaded,) = w.kinds(ProbeSetLoaded)
        assert "the probe set is empty" in loaded.error
        with pytest.raises(NotNow, match="there is no probe set"):
            await CommandDispatcher(
                w.context, w.groups, evaluation=Evaluation({"s": service})
            ).execute("progress.look", {})
        assert not w.swarm.claims


@pytest.mark.world(share=0.0)
async def test_looks_that_are_off_are_in_the_state_and_prompts_stay_held_out(m: Measured) -> None:
    (loaded,) = m.kinds(ProbeSetLoaded)
    assert (loaded.enabled, loaded.error, len(loaded.prompts)) == (False, "", PROMPTS)
    known = progress(m).probe_set
    assert not known.enabled
    with pytest.raises(NotNow, match="looks are disabled"):
        await m.command("progress.look")
    group, _ = await m.complete("What is 3 + 3?")
    assert group.episode_type == "eval"


@pytest.mark.world(0.5)
async def test_the_commands_take_a_look_and_a_new_baseline(
    m: Measured, caplog: pytest.LogCaptureFixture
) -> None:
    await ended(m, 1)
    caplog.set_level("INFO")
    message = await m.command("progress.look")
    assert message == "a look at s begins"
    assert (await ended(m, 2)).role == "look"
    message = await m.command("progress.trust", server="s")
    assert message == "a new baseline at s begins"
    assert (await ended(m, 3)).role == "baseline"
    result = "s: verdicts compare with step 1 from now on: requested by the operator"
    assert [record.message for record in caplog.records if "verdicts" in record.message] == [result]


@pytest.mark.world(0.9, on_worse="pause")
async def test_a_worse_policy_pauses_training_and_users_are_still_answered(m: Measured) -> None:
    await ended(m, 1)
    look = await m.look(0.1)
    assert look.verdict.outcome == "worse"
    (paused,) = m.kinds(TrainingPaused)
    assert "step 1 is worse than the baseline by 0." in paused.cause
    group, reply = await m.complete("What is 3 + 4?")
    assert reply.answer is not None
    assert group.episode_type == "eval"
    assert "training is paused, step 1 is worse" in group.cause
    alert = m.state.alerts["paused:s"]
    assert cause_of(alert) == f"training on s is paused: {paused.cause}"
    await m.command("progress.resume")
    assert progress(m).paused == ""
    assert "paused:s" not in m.state.alerts
    trained = await m.ask("What is 3 + 5?")
    await m.reply(trained)
    await m.closed()
    assert m.group(trained).episode_type == "train"
    message = await m.command("progress.resume")
    assert "training is not paused" in message


@pytest.mark.world(0.5)
async def test_a_pause_outlasts_the_proxy(m: Measured) -> None:
    m.service.reaction.pause("paused by the operator")
    alert = m.state.alerts["paused:s"]
    assert alert.level == "warning"
    assert cause_of(alert) == "training on s is paused by the operator"
    assert "8 opens Progress: `r` resumes" in todo_of(alert)
    m.server.paused = ""  # as in a new process
    m.state.alerts.clear()
    await m.service.load()
    assert m.server.paused == "paused by the operator"
    assert cause_of(m.state.alerts["paused:s"]) == "training on s is paused by the operator"
    dismiss_alert(m.context.bus, "paused:s")
    m.service.reaction.resume()
    assert "paused:s" not in m.state.dismissed
    await m.service.load()
    assert not m.state.alerts


@pytest.mark.world(0.9, on_worse="rewind")
async def test_a_worse_policy_is_rewound_to_the_best_step(
    m: Measured, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await ended(m, 1)
    m.server.client.transport = AjetcTransport(m.line, m.swarm)  # type: ignore[attr-defined]
    m.server.client._features = None  # type: ignore[attr-defined]
    best = msgspec.structs.replace(m.kinds(LookEnded)[0], checkpoint="progress-1", seq=0)
    m.context.bus.publish(best)
    executed: list[tuple[str, dict[str, Any]]] = []

    async def execute(name: str, args: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        executed.append((name, args))
        return "s is back", {}

    m.service.reaction.execute = execute
    m.policy.share = 0.1
    m.service.demand("look")
    await m.until(lambda: m.kinds(TrainingResumed))
    assert executed == [("engine.restore", {"server": "s", "name": "progress-1"})]
    assert not m.server.paused
    assert "worse:s" not in m.state.alerts
    (rewound,) = m.kinds(Rewound)
    assert (rewound.look_id, rewound.restored, rewound.model) == (best.look_id, "progress-1", "")
    messages = [record.message for record in caplog.records if "evaluation" in record.name]
    assert messages[-3].startswith("s: training is paused: step 1 is worse than the baseline")
    assert messages[-2:] == [
        "s: rewound to the weights of step 1: restored from progress-1",
        "s: training is resumed",
    ]


@pytest.mark.parametrize("on_worse", ["alert", "pause", "rewind"])
async def test_a_worse_policy_raises_an_alert_until_a_look_is_not_worse(
    tmp_path: Path, on_worse: str
) -> None:
    policy = Policy(0.9)
    async with measured(tmp_path, policy, on_worse=on_worse) as (w, service):
        await ended(w, 1)
        assert not w.state.alerts
        policy.share = 0.1
        service.demand("look")
        worse = await ended(w, 2)
        alert = await w.until(lambda: w.state.alerts.get("worse:s"))
        assert (alert.alert_kind, alert.params["server"]) == ("worse", "s")
        assert alert.params["below"] == pytest.approx(-worse.verdict.effect)
        assert (alert.params["step"], alert.params["best"]) == (1, 1)
        assert bool(w.server.paused) == alert.params.get("paused", False) == (on_worse != "alert")
        assert not w.kinds(Rewound), "a server given by URL is never rewound alone"
        assert w.swarm.stops == 0
        w.swarm.fail_always("/v1/chat/completions", 500)
        service.demand("look")
        assert (await ended(w, 3)).outcome == "failed"
        assert "worse:s" in w.state.alerts, "a look without a verdict clears nothing"
        w.swarm.fail_always("/v1/chat/completions", None)
        policy.share = 0.9
        service.demand("look")
        await ended(w, 4)
        await w.until(lambda: "worse:s" not in w.state.alerts)


async def test_a_pinned_group_is_held_out_and_measured(m: Measured, tmp_path: Path) -> None:
    m.service._settings = msgspec.structs.replace(m.service._settings, file="")
    m.service._own_file = tmp_path / "own.jsonl"
    await ended(m, 1)
    messages = [
        {"role": "system", "content": "Be exact."},
        {"role": "user", "content": "What is 70 + 70?"},
    ]
    group, _ = await m.complete(messages=messages)
    message = await m.command("group.pin", group_id=group.group_id[:6])
    assert f"1 prompt added to the probe set, {PROMPTS + 1} now" in message
    loaded = m.kinds(ProbeSetLoaded)[-1]
    assert loaded.prompts[-1].before == (messages[0],)
    look = await m.look()
    assert (look.role, look.restarted) == ("baseline", "the probe set changed")
    bodies = [body["messages"] for _, body, _ in m.swarm.chats]
    assert look.left_out == ("1 prompt: no part of the reward applies",)
    assert len(look.prompts) == PROMPTS
    assert messages in bodies[-PROMPTS * SAMPLES - 4 :]
    message = await m.command("group.pin", group_id=group.group_id)
    assert message == "the prompt is in the probe set already"
    again = await m.ask(messages=messages)
    await m.reply(again)
    await m.closed()
    assert m.group(again).episode_type == "eval"


@pytest.mark.world(rewards="", file="")
async def test_the_first_pinned_prompt_without_a_probe_set_is_measured(m: Measured) -> None:
    assert "no probe set" in m.kinds(ProbeSetLoaded)[-1].error
    group, _ = await m.complete("What is 70 + 70?")
    await m.command("group.pin", group_id=group.group_id)
    look = await ended(m, 1)
    assert look.role == "baseline"
    assert m.kinds(LookStarted)[-1].samples == SAMPLES


async def test_a_baseline_on_demand_that_is_cut_stays_demanded(m: Measured) -> None:
    await ended(m, 1)
    m.swarm.fail_always("/v1/chat/completions", "late")
    m.service.demand("baseline")
    await m.until(lambda: m.swarm.claimed())
    assert m.service._demand is None
    m.swarm.state = "ROLLING_POST"
    assert (await ended(m, 2)).outcome == "cut"
    assert m.service._demand == "baseline"
    m.swarm.release()


@pytest.mark.world(rewards="")
async def test_a_reward_that_changes_during_a_comparison_gives_no_verdict(m: Measured) -> None:
    await ended(m, 1)

    async def edited(ctx: Any) -> list[float]:
        m.source.version = "edited"
        return [float(index) for index in range(len(ctx.answers))]

    m.source.scorer = edited
    look = await m.look()
    assert (look.outcome, look.verdict) == ("failed", None)
    assert "the reward changed during the look" in look.cause


async def test_a_file_of_the_settings_is_not_changed_by_a_pin(m: Measured, tmp_path: Path) -> None:
    before = (tmp_path / "set.jsonl").read_text()
    group, _ = await m.complete("What is 71 + 71?")
    with pytest.raises(NotNow, match="a file of yours"):
        await m.command("group.pin", group_id=group.group_id)
    assert (tmp_path / "set.jsonl").read_text() == before


async def test_a_fault_of_one_look_does_not_end_the_later_ones(
    m: Measured, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await ended(m, 1)
    archive = m.service._archive

    class Broken(SampleArchive):
        def write(self, look: Measurement, baseline: str = "") -> str:
            raise RuntimeError("a fault")

    m.service._archive = Broken(tmp_path)
    look = await m.look()
    assert (look.outcome, look.cause) == ("failed", "internal error: RuntimeError: a fault")
    assert "the look at s failed" in caplog.text
    m.service._archive = archive
    assert (await m.look()).outcome == "complete"
