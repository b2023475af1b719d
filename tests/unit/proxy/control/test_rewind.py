"""Rewind of a scripted AgentJet server: the plan, the job that is sent, what is refused."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ajet_swarm.api import watcher
from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.job.schema import EXPERIMENT, MODEL
from ajet_swarm.job.tree import dump_job, get, load_job, put
from core.commands.spec import NotNow
from core.events import LookEnded, Rewound
from proxy.control.client import ControlClient, ControlError
from proxy.control.dispatch import CommandDispatcher
from proxy.control.progress_commands import rewind_plan
from proxy.evaluation.saved_weights import SAVE_FREQ
from proxy.evaluation.service import Evaluation
from tests.support.engine.model_folder import write_model, write_shards
from tests.support.proxy.measured import Policy, ended, measured, progress
from tests.support.proxy.trained import Trained, job_of, trained

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "QUIET", 0.1)


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Trained]:
    async with trained(tmp_path) as value:
        yield value


HOSTILE = ("/a/../b", "/a\nb", "tiny", "/a/${oc.env:HOME}", "/" + "a" * 2_000)


def job_sent(made: Trained) -> dict[str, Any]:
    return load_job(str(made.w.swarm.config))


async def test_a_rewind_starts_the_verified_weights_in_a_new_experiment(tmp_path: Path) -> None:
    async with trained(tmp_path, on_worse="pause") as made:
        w = made.w
        best = await made.look(41, 0.9)
        assert best.verdict.outcome == "better"
        assert best.saved_as == str(made.folder(40))
        model = write_model(made.folder(40) / "actor" / "huggingface")
        worse = await made.look(45, 0.0)
        assert (worse.verdict and worse.verdict.outcome) == "worse"
        await w.until(lambda: w.server.paused)
        assert "worse:s" in w.state.alerts
        w.swarm.saves["chat"] = 45  # what the trainer would resume under the same name

        plan = await made.plan()
        assert (plan.problem, plan.step, plan.weights) == ("", 41, str(model))
        assert plan.effect == pytest.approx(best.verdict.effect)
        assert "secret-1234" not in plan.job + plan.before
        before, after = load_job(plan.before), load_job(plan.job)
        assert get(before, MODEL) == "/models/base"
        changed = dict(after["ajet"])
        changed["model"], changed["experiment_name"] = before["ajet"]["model"], "chat"
        assert changed == before["ajet"], "model and experiment alone differ"
        lost = "\n".join(plan.loss)
        assert (
            "The optimizer state and the position in the learning-rate schedule are lost." in lost
        )
        assert "4 updates since step 41 are given up." in lost
        assert f"begins at 1 again, in the new experiment {get(after, EXPERIMENT)}" in lost
        assert w.swarm.stops == 0, "a plan changes nothing"

        message = await made.command("progress.rewind", plan_id=plan.plan_id)
        assert message.startswith("s is starting with this job")
        assert message.endswith(f"step 41: better by {best.verdict.effect:.2f}")
        assert (w.swarm.stops, w.swarm.model) == (1, str(model))
        sent = job_sent(made)
        assert get(sent, MODEL) == str(model)
        assert get(sent, EXPERIMENT) == f"chat-rewind-1-{best.look_id[:8]}"
        assert get(sent, "ajet.teacher_model.api_key") == "secret-1234"
        assert get(sent, SAVE_FREQ) == 5
        (rewound,) = w.kinds(Rewound)
        assert (rewound.look_id, rewound.step) == (best.look_id, 41)
        assert (rewound.restored, rewound.model) == (str(model), str(model))
        assert "worse:s" not in w.state.alerts
        assert not w.server.paused
        await w.until(lambda: w.state.servers["s"].state == "ROLLING")
        assert w.state.servers["s"].step == 1, "the trainer resumes nothing under the new name"
        await ended(w, 4)


async def test_after_a_rewind_the_comparison_continues_with_the_same_baseline(
    made: Trained,
) -> None:
    w = made.w
    baseline = w.kinds(LookEnded)[0]
    best = await made.look(6, 0.9)
    write_model(made.folder(5) / "actor" / "huggingface")
    await made.look(8, 0.2)
    await made.command("progress.rewind")
    made.policy.share = 0.9
    look = await ended(w, 4)  # by itself: the step is an earlier one
    assert (look.step, look.role, look.restarted) == (1, "look", "")
    assert look.baseline_id == baseline.look_id
    assert (look.verdict.outcome, look.verdict.look) == ("better", 4 - 1)
    assert look.saved_as == str(made.folder(5) / "actor" / "huggingface")
    # A second one from the new run: to the folder of the first run, in a third experiment.
    await made.look(7, 0.1)
    assert progress(w).best_step in (1, 6)
    await made.command("progress.rewind")
    assert get(job_sent(made), EXPERIMENT).startswith("chat-rewind-2-")
    assert progress(w).rewinds == 2
    assert best.look_id in {one.look_id for one in progress(w).verified}


async def test_a_restart_from_other_weights_is_still_not_comparable(made: Trained) -> None:
    await made.look(6, 0.9)
    write_model(made.folder(5) / "actor" / "huggingface")
    await made.command("progress.rewind")
    await ended(made.w, 3)
    other = job_of(made.ckpt)
    put(other, MODEL, "/models/other")
    await made.command("engine.apply", job=dump_job(other))
    made.service.demand("look")
    fourth = await ended(made.w, 4)
    assert (fourth.role, fourth.restarted) == (
        "baseline",
        "the engine trains another model: not comparable",
    )


async def test_the_baseline_of_the_first_step_is_the_model_that_the_run_began_with(
    made: Trained,
) -> None:
    await made.look(6, 0.0)
    plan = await made.plan()
    assert (plan.step, plan.weights, plan.effect) == (1, "/models/base", None)
    message = await made.command("progress.rewind")
    assert message.endswith("step 1: the baseline")
    assert get(job_sent(made), MODEL) == "/models/base"
    assert get(job_sent(made), EXPERIMENT) != "chat"


async def test_shards_alone_show_the_merge_command_and_change_nothing(made: Trained) -> None:
    await made.look(6, 0.9)
    actor = write_shards(made.folder(5))
    plan = await made.plan()
    assert plan.problem == f"{actor} holds shards only, no config.json with safetensors"
    assert plan.command == (
        f"python -m verl.model_merger merge --backend fsdp --local_dir {actor}"
        f" --target_dir {actor}/huggingface"
    )
    assert (plan.job, plan.plan_id) == ("", "")
    with pytest.raises(NotNow, match="holds shards only") as caught:
        await made.command("progress.rewind")
    assert plan.command in caught.value.todo
    assert made.w.swarm.stops == 0
    write_model(actor / "huggingface", files=2)  # as the command does
    assert (await made.plan()).weights == str(actor / "huggingface")


async def test_a_damaged_folder_and_an_adapter_are_named(made: Trained) -> None:
    await made.look(6, 0.9)
    model = write_model(made.folder(5) / "actor" / "huggingface")
    (model / "config.json").unlink()
    assert "is damaged: config.json is missing" in (await made.plan()).problem
    write_model(model)
    (model / "lora_adapter").mkdir()
    assert "holds a LoRA adapter apart from the weights" in (await made.plan()).problem


async def test_a_folder_on_another_machine_is_named_and_a_path_is_accepted(made: Trained) -> None:
    best = await made.look(6, 0.9)
    plan = await made.plan()
    assert f"step 6 is saved as {made.folder(5)}, which this machine cannot see" in plan.problem
    assert f"{made.folder(5)}/actor --target_dir" in plan.command
    there = "/data/on the server/global_step_5/actor/huggingface"
    plan = await made.plan(there)
    assert (plan.problem, plan.weights, plan.look_id) == ("", there, best.look_id)
    assert any("whether it holds a model is not checked" in one for one in plan.loss)
    await made.command("progress.rewind", path=there, plan_id=plan.plan_id)
    assert get(job_sent(made), MODEL) == there
    assert made.w.kinds(Rewound)[0].step == 6


async def test_a_path_without_a_step_is_taken_as_the_best_step_and_says_so(
    made: Trained, tmp_path: Path
) -> None:
    await made.look(4, 0.9)  # not a saved step
    assert progress(made.w).best_step == 4
    model = write_model(tmp_path / "merged")
    plan = await made.plan(str(model))
    assert (plan.problem, plan.step, plan.weights) == ("", 4, str(model))
    assert any("does not name a step: it is taken as the weights of step 4" in one
               for one in plan.loss)  # fmt: skip
    saved = await made.plan()
    assert (saved.step, saved.weights) == (1, "/models/base"), "the best that was saved"


async def test_a_path_of_a_step_that_no_look_verified_is_refused(made: Trained) -> None:
    await made.look(6, 0.9)
    plan = await made.plan("/data/global_step_6/actor/huggingface")
    assert plan.problem == "global_step_6 has the weights of step 7, which no look verified"
    assert "Verified: step 6, 1." in plan.todo
    with pytest.raises(NotNow, match="which no look verified"):
        await made.command("progress.rewind", path="/data/global_step_6")
    assert made.w.swarm.stops == 0


@pytest.mark.parametrize("path", HOSTILE)
async def test_a_hostile_path_is_refused_before_anything_is_sent(made: Trained, path: str) -> None:
    with pytest.raises(UsageError):
        await made.command("progress.rewind", path=path)
    assert (made.w.swarm.stops, get(job_sent(made), MODEL)) == (0, "/models/base")


async def test_a_plan_that_no_longer_holds_is_refused(made: Trained) -> None:
    await made.look(6, 0.7)
    write_model(made.folder(5) / "actor" / "huggingface")
    plan = await made.plan()
    await made.look(11, 1.0)
    write_model(made.folder(10) / "actor" / "huggingface")
    with pytest.raises(NotNow, match="no longer holds") as caught:
        await made.command("progress.rewind", plan_id=plan.plan_id)
    assert "Nothing was changed" in caught.value.todo
    assert made.w.swarm.stops == 0
    assert (await made.plan()).step == 11


async def test_without_a_look_there_is_nothing_to_rewind_to(tmp_path: Path) -> None:
    (tmp_path / "set.jsonl").write_text("")
    async with measured(tmp_path, Policy(1.0)) as (w, _):
        plan = await rewind_plan(w.context, w.server)
        assert (plan.problem, plan.step) == ("there is no verified step", None)


async def test_a_job_of_another_client_is_not_replaced(tmp_path: Path) -> None:
    async with measured(tmp_path, Policy(0.9)) as (w, service):  # rolls without a job from here
        baseline = await ended(w, 1)
        assert baseline.saved_as == "scripted", "the model that the server reports"
        plan = await rewind_plan(w.context, w.server)
        assert "another client sent it" in plan.problem
        dispatcher = CommandDispatcher(w.context, w.groups, evaluation=Evaluation({"s": service}))
        with pytest.raises(NotNow, match="another client sent it"):
            await dispatcher.execute("progress.rewind", {"path": "/models/base"})
        assert w.swarm.stops == 0


async def test_a_failed_start_is_no_rewind(tmp_path: Path) -> None:
    async with trained(tmp_path, on_worse="pause") as made:
        await made.look(6, 0.0)
        await made.w.until(lambda: made.w.server.paused)
        made.w.swarm.start_error = "no GPU is free"
        with pytest.raises(AjetError, match="no GPU is free"):
            await made.command("progress.rewind")
        assert not made.w.kinds(Rewound)
        assert made.w.server.paused
        await asyncio.sleep(0)
        assert "worse:s" in made.w.state.alerts


async def test_a_pause_of_the_operator_outlasts_a_rewind(made: Trained) -> None:
    await made.command("progress.pause")
    await made.command("progress.rewind")
    assert made.w.server.paused == "paused by the operator"


# --- the route ----------------------------------------------------------------------------------


async def test_the_route_gives_the_plan_and_changes_nothing(made: Trained, tmp_path: Path) -> None:
    await made.look(6, 0.9)
    merged = write_model(tmp_path / "merged ä&path=b?#%2F")
    write_model(made.folder(5) / "actor" / "huggingface")
    async with made.served("secret") as url, ControlClient(url, "secret") as client:
        plan = await client.rewind_plan("s")
        assert plan == await made.plan()
        assert (plan.problem, plan.step) == ("", 6)
        named = await client.rewind_plan("s", str(merged))
        assert (named.problem, named.weights) == ("", str(merged))
        assert named.plan_id != plan.plan_id
        elsewhere = await client.rewind_plan("s", "/data/global_step_9/actor")
        assert "which no look verified" in elsewhere.problem
    assert made.w.swarm.stops == 0
    assert not made.w.kinds(Rewound)


async def test_the_route_refuses_what_is_wrong(tmp_path: Path) -> None:
    async with trained(tmp_path) as made, made.served("secret") as url:
        async with ControlClient(url, "secret") as client:
            for path in HOSTILE:
                with pytest.raises(ControlError):
                    await client.rewind_plan("s", path)
            with pytest.raises(ControlError, match="Known: s"):
                await client.rewind_plan("t")
            assert (await client.rewind_plan("s")).problem == "", "the baseline's model"
        async with ControlClient(url, "wrong") as stranger:
            with pytest.raises(ControlError):
                await stranger.rewind_plan("s")
