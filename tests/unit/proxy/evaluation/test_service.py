"""Looks at a scripted swarm server: baseline, verdict, cuts, changes of reward and probe set."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.commands import validate
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
    Policy,
    ended,
    measured,
    progress,
    write_probe_set,
)
from tests.support.scripted.ajetc_transport import AjetcTransport


@pytest.mark.slow
async def test_the_first_look_is_the_baseline_and_a_better_policy_is_found(tmp_path: Path) -> None:
    policy = Policy(0.3)
    async with measured(tmp_path, policy) as (w, service):
        baseline = await ended(w, 1)
        assert (baseline.role, baseline.outcome, baseline.cause) == ("baseline", "complete", "")
        assert baseline.mean == pytest.approx(0.3, abs=0.05)
        assert baseline.low < baseline.mean < baseline.high
        assert (baseline.verdict, baseline.step) == (None, 1)
        assert policy.calls == PROMPTS * SAMPLES
        policy.share = 0.9
        service.demand("look")
        look = await ended(w, 2)
        assert (look.role, look.outcome, look.baseline_id) == ("look", "complete", baseline.look_id)
        assert look.verdict is not None
        assert look.verdict.outcome == "better"
        assert look.verdict.effect == pytest.approx(0.6, abs=0.1)
        assert (look.verdict.prompts, look.verdict.look) == (PROMPTS, 1)
        service.demand("look")
        third = await ended(w, 3)
        assert third.verdict is not None
        assert (third.verdict.look, third.baseline_id) == (2, baseline.look_id)
        assert third.verdict.alpha < look.verdict.alpha, "the shares of 5 % shrink"
        figures = {one.part: one for one in look.parts}
        assert figures["right"].outcome == "better"
        assert figures["right"].before == pytest.approx(0.3, abs=0.05)
        assert {"length", "repetition"} <= set(figures)
        assert progress(w).current is not None
        assert [one.id for one in progress(w).now] == [f"p{n}" for n in range(1, PROMPTS + 1)]
        assert not w.swarm.reward_log, "nothing is trained on"
        assert not w.kinds(GroupOpened), "samples are no requests of users"
        assert not w.swarm.claimed()
        assert {one.type for one in w.swarm.episodes.values() if one.calls} <= {"eval", "train"}


@pytest.mark.slow
async def test_all_samples_of_a_look_are_stored(tmp_path: Path) -> None:
    async with measured(tmp_path, Policy(1.0)) as (w, _):
        look = await ended(w, 1)
        stored = SampleArchive(tmp_path).read(look.file)
        assert stored is not None
        assert (stored.look_id, stored.step, stored.server) == (look.look_id, 1, "s")
        assert [len(one.samples) for one in stored.prompts] == [SAMPLES] * PROMPTS
        sample = stored.prompts[0].samples[0]
        assert (sample.text, sample.reward, sample.parts) == ("2", 1.0, {"right": 1.0})
        assert (tmp_path / look.file).stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
async def test_a_look_is_cut_when_the_engine_leaves_rolling_and_gives_everything_back(
    tmp_path: Path,
) -> None:
    policy = Policy(1.0)
    async with measured(tmp_path, policy) as (w, service):
        await ended(w, 1)
        w.swarm.fail_always("/v1/chat/completions", "late")
        service.demand("look")
        await w.until(lambda: w.swarm.claimed())
        w.swarm.state = "ROLLING_POST"
        look = await ended(w, 2)
        assert (look.outcome, look.verdict, look.prompts) == ("cut", None, ())
        assert "the engine left step 1 before the look was complete" in look.cause
        w.swarm.release()
        await w.until(lambda: not w.swarm.claimed())
        assert progress(w).current is None
        assert progress(w).running is None


@pytest.mark.slow
async def test_no_probe_is_claimed_while_a_user_waits(tmp_path: Path) -> None:
    policy = Policy(1.0)
    async with measured(tmp_path, policy) as (w, service):
        await ended(w, 1)
        waits = True
        service._user_waits = lambda: waits
        claims = len(w.swarm.claims)
        service.demand("look")
        await w.until(lambda: len(w.kinds(LookStarted)) == 2)
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert len(w.swarm.claims) == claims
        waits = False
        assert (await ended(w, 2)).outcome == "complete"


@pytest.mark.slow
async def test_a_changed_reward_begins_a_new_comparison_with_the_same_samples(
    tmp_path: Path,
) -> None:
    policy = Policy(0.5)
    async with measured(tmp_path, policy) as (w, service):
        first = await ended(w, 1)
        calls = policy.calls
        w.context.rewards = ComposedSource(model=parse("parts:\n  long: {kind: length}\n", None))
        service.demand("look")
        rescored, look = await ended(w, 2), await ended(w, 3)
        assert (rescored.role, rescored.restarted) == ("baseline", "the reward changed")
        assert rescored.reward != first.reward
        assert rescored.prompts[0].example == first.prompts[0].example
        assert policy.calls == 2 * calls, "the baseline was not sampled again"
        assert (look.baseline_id, look.reward) == (rescored.look_id, rescored.reward)
        assert look.verdict is not None
        assert look.verdict.look == 1


@pytest.mark.slow
async def test_another_probe_set_begins_with_a_new_baseline(tmp_path: Path) -> None:
    async with measured(tmp_path, Policy(0.5)) as (w, service):
        first = await ended(w, 1)
        write_probe_set(tmp_path / "set.jsonl", first=100)
        await service.load()
        service.demand("look")
        second = await ended(w, 2)
        assert (second.role, second.restarted) == ("baseline", "the probe set changed")
        assert second.probe_set != first.probe_set


async def test_the_number_of_samples_is_that_of_the_sampler_unless_it_is_set(
    tmp_path: Path,
) -> None:
    async with measured(tmp_path, Policy(0.5), samples=0) as (w, _):
        baseline = await ended(w, 1)
        assert {len(one.rewards) for one in baseline.prompts} == {8}, "eval episodes"
        assert w.kinds(LookStarted)[0].samples == PROMPTS * 8
    assert SnapshotSampler.usual == 16


async def test_parts_that_a_look_leaves_out_give_their_weight_to_the_others(
    tmp_path: Path,
) -> None:
    rewards = "parts:\n  exact: {weight: 0.3}\n  diversity: {weight: %s}\n"
    async with measured(tmp_path, Policy(1.0), rewards=rewards % 0.7) as (w, _):
        baseline = await ended(w, 1)
        assert baseline.mean == pytest.approx(1.0)
        assert [one.split(":")[0] for one in baseline.left_out] == ["diversity"]
    (tmp_path / "more").mkdir()
    async with measured(tmp_path / "more", Policy(1.0), rewards=rewards % 5) as (w, _):
        assert (await ended(w, 1)).mean == pytest.approx(1.0), "a sum of 1 at most"


@pytest.mark.slow
async def test_a_restarted_proxy_continues_the_comparison(tmp_path: Path) -> None:
    async with measured(tmp_path, Policy(0.5)) as (w, service):
        baseline = await ended(w, 1)
        service.demand("look")
        await ended(w, 2)
        restarted = MeasurementService(
            w.context, w.server, service._facts, tmp_path, shipped=False, user_waits=lambda: False
        )
        evaluation = Evaluation({"s": restarted})
        await evaluation.start()
        look = await ended(w, 3)
        await evaluation.close()
        assert look.baseline_id == baseline.look_id
        assert look.verdict is not None
        assert look.verdict.look == 2
        (tmp_path / baseline.file).unlink()
        service._samples = None
        service.demand("look")
        assert (await ended(w, 4)).restarted == "the samples of the baseline cannot be read"


@pytest.mark.slow
async def test_an_engine_that_restarts_before_the_baselines_step_is_not_comparable(
    tmp_path: Path,
) -> None:
    async with measured(tmp_path, Policy(0.5)) as (w, service):
        await ended(w, 1)
        w.swarm.step = 40
        await w.until(lambda: w.state.servers["s"].step == 40)
        service.demand("baseline")
        assert (await ended(w, 2)).restarted == "requested by the operator"
        w.swarm.state = "OFFLINE"
        await w.until(lambda: w.state.servers["s"].state == "OFFLINE")
        w.swarm.step, w.swarm.state = 1, "ROLLING"
        third = await ended(w, 3)
        assert third.role == "baseline"
        assert "started again at step 1, before step 40" in third.restarted


@pytest.mark.slow
async def test_a_reward_that_only_compares_is_scored_head_to_head(tmp_path: Path) -> None:
    policy = Policy(0.0)
    async with measured(tmp_path, policy, rewards="") as (w, service):

        async def shorter(ctx: Any) -> list[float]:
            texts = [one.message["content"] for one in ctx.answers]
            return [float(len(text) == min(map(len, texts))) for text in texts]

        w.source.scorer = shorter
        baseline = await ended(w, 1)
        assert (baseline.mode, baseline.mean) == ("wins", 0.5)
        policy.share = 1.0  # `30` is shorter than `no idea`
        service.demand("look")
        look = await ended(w, 2)
        assert (look.mode, look.mean) == ("wins", 1.0)
        assert look.verdict is not None
        assert (look.verdict.outcome, look.verdict.reference) == ("better", 0.5)


@pytest.mark.slow
async def test_a_reward_that_abstains_in_the_middle_gives_no_verdict(tmp_path: Path) -> None:
    async with measured(tmp_path, Policy(1.0), rewards="") as (w, service):
        await ended(w, 1)
        w.source.abstains = "the judge is out of budget"
        service.demand("look")
        look = await ended(w, 2)
        assert (look.outcome, look.verdict) == ("failed", None)
        assert "the judge is out of budget" in look.cause
        assert "prompt p1" in look.cause


@pytest.mark.slow
async def test_a_reward_outside_the_range_names_the_settings(tmp_path: Path) -> None:
    async with measured(tmp_path, Policy(1.0), score_high=0.5) as (w, _):
        look = await ended(w, 1)
        assert look.outcome == "failed"
        assert "is outside 0 to 0.5" in look.cause
        assert "rating.score_high" in look.cause


@pytest.mark.slow
async def test_a_server_that_fails_prompts_gives_no_verdict_and_keeps_no_episode(
    tmp_path: Path,
) -> None:
    async with measured(tmp_path, Policy(1.0)) as (w, service):
        await ended(w, 1)
        w.swarm.fail_always("/v1/chat/completions", 500)
        service.demand("look")
        look = await ended(w, 2)
        assert (look.outcome, look.verdict) == ("failed", None)
        assert "500" in look.cause
        await w.until(lambda: not w.swarm.claimed())


@pytest.mark.slow
async def test_a_probe_prompt_of_a_user_is_answered_and_not_trained_on(tmp_path: Path) -> None:
    async with measured(tmp_path, Policy(1.0)) as (w, _):
        await ended(w, 1)
        ticket = await w.ask("what is 3+3 ?!")
        reply = await w.reply(ticket)
        assert reply.answer is not None
        await w.closed()
        group = w.group(ticket)
        assert (group.n, group.episode_type) == (1, "eval")
        assert "held-out prompt" in group.cause
        assert not w.swarm.reward_log
        other = await w.ask("What is 3 + 4?")
        await w.reply(other)
        await w.closed()
        assert w.group(other).episode_type == "train"


@pytest.mark.slow
async def test_looks_follow_the_weight_syncs_by_themselves(tmp_path: Path) -> None:
    async with measured(tmp_path, Policy(0.5), every=2) as (w, _):
        await ended(w, 1)
        for step in (2, 3):
            w.swarm.step = step
            await w.until(lambda step=step: w.state.servers["s"].step == step)
        assert (await ended(w, 2)).step == 3
        assert len(w.kinds(LookEnded)) == 2, "none at step 2"


async def test_without_a_probe_set_nothing_is_claimed_and_the_command_says_why(
    tmp_path: Path,
) -> None:
    (tmp_path / "set.jsonl").write_text("")
    async with measured(tmp_path, Policy(1.0)) as (w, service):
        (loaded,) = w.kinds(ProbeSetLoaded)
        assert "the probe set is empty" in loaded.error
        dispatcher = CommandDispatcher(w.context, w.groups, evaluation=Evaluation({"s": service}))
        with pytest.raises(NotNow, match="there is no probe set"):
            await dispatcher.execute("progress.look", validate("progress.look", {}))
        assert not w.swarm.claims


async def test_looks_that_are_off_are_in_the_state_and_the_prompts_stay_held_out(
    tmp_path: Path,
) -> None:
    async with measured(tmp_path, Policy(1.0), share=0.0) as (w, service):
        (loaded,) = w.kinds(ProbeSetLoaded)
        assert (loaded.enabled, loaded.error, len(loaded.prompts)) == (False, "", PROMPTS)
        known = progress(w).probe_set
        assert known is not None
        assert not known.enabled
        dispatcher = CommandDispatcher(w.context, w.groups, evaluation=Evaluation({"s": service}))
        with pytest.raises(NotNow, match="looks are disabled"):
            await dispatcher.execute("progress.look", {})
        ticket = await w.ask("What is 3 + 3?")
        await w.reply(ticket)
        await w.closed()
        assert w.group(ticket).episode_type == "eval"


@pytest.mark.slow
async def test_the_commands_take_a_look_and_a_new_baseline(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with measured(tmp_path, Policy(0.5)) as (w, service):
        dispatcher = CommandDispatcher(w.context, w.groups, evaluation=Evaluation({"s": service}))
        await ended(w, 1)
        caplog.set_level("INFO")
        message, _ = await dispatcher.execute("progress.look", {})
        assert message == "a look at s begins"
        assert (await ended(w, 2)).role == "look"
        message, _ = await dispatcher.execute("progress.trust", {"server": "s"})
        assert message == "a new baseline at s begins"
        assert (await ended(w, 3)).role == "baseline"
        result = "s: verdicts compare with step 1 from now on: requested by the operator"
        assert [one.message for one in caplog.records if "verdicts" in one.message] == [result]


@pytest.mark.slow
async def test_a_worse_policy_pauses_training_and_users_are_still_answered(tmp_path: Path) -> None:
    policy = Policy(0.9)
    async with measured(tmp_path, policy, on_worse="pause") as (w, service):
        await ended(w, 1)
        policy.share = 0.1
        service.demand("look")
        look = await ended(w, 2)
        assert look.verdict is not None
        assert look.verdict.outcome == "worse"
        (paused,) = w.kinds(TrainingPaused)
        assert "step 1 is worse than the baseline by 0." in paused.cause
        ticket = await w.ask("What is 3 + 4?")
        assert (await w.reply(ticket)).answer is not None
        await w.closed()
        assert w.group(ticket).episode_type == "eval"
        assert "training is paused, step 1 is worse" in w.group(ticket).cause
        dispatcher = CommandDispatcher(w.context, w.groups, evaluation=Evaluation({"s": service}))
        alert = w.state.alerts["paused:s"]
        assert cause_of(alert) == f"training on s is paused: {paused.cause}"
        await dispatcher.execute("progress.resume", {})
        assert progress(w).paused == ""
        assert "paused:s" not in w.state.alerts
        trained = await w.ask("What is 3 + 5?")
        await w.reply(trained)
        await w.closed()
        assert w.group(trained).episode_type == "train"
        message, _ = await dispatcher.execute("progress.resume", {})
        assert "training is not paused" in message


async def test_a_pause_outlasts_the_proxy(tmp_path: Path) -> None:
    async with measured(tmp_path, Policy(0.5)) as (w, service):
        service.reaction.pause("paused by the operator")
        alert = w.state.alerts["paused:s"]
        assert alert.level == "warning"
        assert cause_of(alert) == "training on s is paused by the operator"
        assert "8 opens Progress: `r` resumes" in todo_of(alert)
        w.server.paused = ""  # as in a new process
        w.state.alerts.clear()
        await service.load()
        assert w.server.paused == "paused by the operator"
        assert cause_of(w.state.alerts["paused:s"]) == "training on s is paused by the operator"
        dismiss_alert(w.context.bus, "paused:s")
        service.reaction.resume()
        assert "paused:s" not in w.state.dismissed
        await service.load()
        assert not w.state.alerts


@pytest.mark.slow
async def test_a_worse_policy_is_rewound_to_the_best_step(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    policy = Policy(0.9)
    async with measured(tmp_path, policy, on_worse="rewind") as (w, service):
        await ended(w, 1)
        w.server.client.transport = AjetcTransport(w.line, w.swarm)  # type: ignore[attr-defined]
        w.server.client._features = None  # type: ignore[attr-defined]
        best = msgspec.structs.replace(w.kinds(LookEnded)[0], checkpoint="progress-1", seq=0)
        w.context.bus.publish(best)
        executed: list[tuple[str, dict[str, Any]]] = []

        async def execute(name: str, args: dict[str, Any]) -> tuple[str, dict[str, Any]]:
            executed.append((name, args))
            return "s is back", {}

        service.reaction.execute = execute
        policy.share = 0.1
        service.demand("look")
        await w.until(lambda: w.kinds(TrainingResumed))
        assert executed == [("engine.restore", {"server": "s", "name": "progress-1"})]
        assert not w.server.paused
        assert "worse:s" not in w.state.alerts
        (rewound,) = w.kinds(Rewound)
        assert (rewound.look_id, rewound.restored, rewound.model) == (
            best.look_id,
            "progress-1",
            "",
        )
        messages = [one.message for one in caplog.records if "evaluation" in one.name]
        assert messages[-3].startswith("s: training is paused: step 1 is worse than the baseline")
        assert messages[-2:] == [
            "s: rewound to the weights of step 1: restored from progress-1",
            "s: training is resumed",
        ]


@pytest.mark.slow
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
        assert worse.verdict is not None
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


@pytest.mark.slow
async def test_a_pinned_group_is_held_out_and_measured(tmp_path: Path) -> None:
    async with measured(tmp_path, Policy(1.0)) as (w, service):
        service._settings = msgspec.structs.replace(service._settings, file="")
        service._own_file = tmp_path / "own.jsonl"
        await ended(w, 1)
        messages = [
            {"role": "system", "content": "Be exact."},
            {"role": "user", "content": "What is 70 + 70?"},
        ]
        ticket = await w.ask(messages=messages)
        await w.reply(ticket)
        await w.closed()
        dispatcher = CommandDispatcher(w.context, w.groups, evaluation=Evaluation({"s": service}))
        message, _ = await dispatcher.execute("group.pin", {"group_id": ticket.group_id[:6]})
        assert f"1 prompt added to the probe set, {PROMPTS + 1} now" in message
        loaded = w.kinds(ProbeSetLoaded)[-1]
        assert loaded.prompts[-1].before == (messages[0],)
        service.demand("look")
        look = await ended(w, 2)
        assert (look.role, look.restarted) == ("baseline", "the probe set changed")
        bodies = [body["messages"] for _, body, _ in w.swarm.chats]
        assert look.left_out == ("1 prompt: no part of the reward applies",)
        assert len(look.prompts) == PROMPTS
        assert messages in bodies[-PROMPTS * SAMPLES - 4 :]
        message, _ = await dispatcher.execute("group.pin", {"group_id": ticket.group_id})
        assert message == "the prompt is in the probe set already"
        again = await w.ask(messages=messages)
        await w.reply(again)
        await w.closed()
        assert w.group(again).episode_type == "eval"


@pytest.mark.slow
async def test_the_first_pinned_prompt_of_a_server_without_a_probe_set_is_measured(
    tmp_path: Path,
) -> None:
    async with measured(tmp_path, Policy(1.0), rewards="", file="") as (w, service):
        assert "no probe set" in w.kinds(ProbeSetLoaded)[-1].error
        ticket = await w.ask("What is 70 + 70?")
        await w.reply(ticket)
        await w.closed()
        dispatcher = CommandDispatcher(w.context, w.groups, evaluation=Evaluation({"s": service}))
        await dispatcher.execute("group.pin", {"group_id": ticket.group_id})
        look = await ended(w, 1)
        assert look.role == "baseline"
        assert w.kinds(LookStarted)[-1].samples == SAMPLES


@pytest.mark.slow
async def test_a_baseline_on_demand_that_is_cut_stays_demanded(tmp_path: Path) -> None:
    async with measured(tmp_path, Policy(1.0)) as (w, service):
        await ended(w, 1)
        w.swarm.fail_always("/v1/chat/completions", "late")
        service.demand("baseline")
        await w.until(lambda: w.swarm.claimed())
        assert service._demand is None
        w.swarm.state = "ROLLING_POST"
        assert (await ended(w, 2)).outcome == "cut"
        assert service._demand == "baseline"
        w.swarm.release()


async def test_a_reward_that_changes_while_answers_are_compared_gives_no_verdict(
    tmp_path: Path,
) -> None:
    policy = Policy(1.0)
    async with measured(tmp_path, policy, rewards="") as (w, service):
        await ended(w, 1)

        async def edited(ctx: Any) -> list[float]:
            w.source.version = "edited"
            return [float(index) for index in range(len(ctx.answers))]

        w.source.scorer = edited
        service.demand("look")
        look = await ended(w, 2)
        assert (look.outcome, look.verdict) == ("failed", None)
        assert "the reward changed during the look" in look.cause


async def test_a_file_of_the_settings_is_not_changed_by_a_pin(tmp_path: Path) -> None:
    async with measured(tmp_path, Policy(1.0)) as (w, service):
        before = (tmp_path / "set.jsonl").read_text()
        ticket = await w.ask("What is 71 + 71?")
        await w.reply(ticket)
        await w.closed()
        dispatcher = CommandDispatcher(w.context, w.groups, evaluation=Evaluation({"s": service}))
        with pytest.raises(NotNow, match="a file of yours"):
            await dispatcher.execute("group.pin", {"group_id": ticket.group_id})
        assert (tmp_path / "set.jsonl").read_text() == before


@pytest.mark.slow
async def test_a_fault_of_one_look_does_not_end_the_later_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with measured(tmp_path, Policy(1.0)) as (w, service):
        await ended(w, 1)
        archive = service._archive

        class Broken(SampleArchive):
            def write(self, look: Measurement, baseline: str = "") -> str:
                raise RuntimeError("a fault")

        service._archive = Broken(tmp_path)
        service.demand("look")
        look = await ended(w, 2)
        assert (look.outcome, look.cause) == ("failed", "internal error: RuntimeError: a fault")
        assert "the look at s failed" in caplog.text
        service._archive = archive
        service.demand("look")
        assert (await ended(w, 3)).outcome == "complete"
