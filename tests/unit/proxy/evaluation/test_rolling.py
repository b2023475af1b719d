"""The size of looks that must fit between two weight syncs."""

from pathlib import Path

import pytest

from proxy.evaluation.sampling import SampleSize
from tests.support.proxy.measured import PROMPTS, Policy, ended, measured


def cut(phases: SampleSize, done: int, samples: int = 8, prompts: int = 64) -> str:
    phases.begin(prompts, phases.samples or samples)
    phases.done = done
    return phases.cut()


def test_two_cut_looks_in_a_row_make_the_next_one_as_large_as_fits() -> None:
    phases = SampleSize(0)
    assert cut(phases, 200) == "200 of 512 answers were sampled"
    assert phases.samples == 0
    text = cut(phases, 250)
    assert text == "250 of 512 answers were sampled; the next look takes 3 answers for each prompt"
    assert phases.samples == 3


def test_a_complete_look_between_two_cuts_keeps_the_size() -> None:
    phases = SampleSize(0)
    cut(phases, 200)
    phases.complete()
    cut(phases, 200)
    assert phases.samples == 0


def test_the_size_shrinks_further_down_to_one_answer() -> None:
    phases = SampleSize(0)
    for done in (400, 400, 300, 300):
        cut(phases, done)
    assert phases.samples == 3
    cut(phases, 90)
    assert cut(phases, 100).endswith("the next look takes 1 answer for each prompt")
    assert phases.samples == 1


def test_a_phase_too_short_for_one_answer_each_names_the_number_of_prompts_that_fit() -> None:
    phases = SampleSize(0)
    cut(phases, 16)
    text = cut(phases, 40)
    assert text.endswith("use fewer prompts in `probe.file`: about 32 fit between syncs")
    assert phases.samples == 0


def test_looks_without_an_answer_need_a_pause_of_the_users() -> None:
    phases = SampleSize(4)
    cut(phases, 0)
    assert cut(phases, 0).endswith(": none fits between syncs. Take a look while no user waits")


def test_a_number_that_is_set_is_never_changed() -> None:
    phases = SampleSize(8)
    cut(phases, 200)
    assert cut(phases, 200).endswith("`probe.samples: 2` fits between syncs")
    assert phases.samples == 8


@pytest.mark.slow
async def test_looks_that_syncs_cut_are_followed_by_a_smaller_complete_one(tmp_path: Path) -> None:
    policy = Policy(1.0)
    async with measured(tmp_path, policy, samples=0) as (w, service):
        for number in (1, 2):
            policy.calls = 0
            await w.until(lambda: policy.calls >= PROMPTS * 4, 30.0)
            w.swarm.set_state("WEIGHT_SYNCING")
            look = await ended(w, number)
            assert (look.outcome, look.verdict) == ("cut", None)
            assert f"of {PROMPTS * 8} answers were sampled" in look.cause
            service.demand("look")
            w.swarm.set_state("ROLLING", number + 1)
        assert "the next look takes" in look.cause
        third = await ended(w, 3)
        assert (third.outcome, third.role) == ("complete", "baseline"), third.cause
        (samples,) = {len(one.rewards) for one in third.prompts}
        assert f"the next look takes {samples} answer" in look.cause
        assert 1 <= samples <= 4
