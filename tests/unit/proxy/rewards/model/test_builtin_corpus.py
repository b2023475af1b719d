"""The built-in rewards on real prompts, compared with the order that people agree on."""

import pytest

from tests.support.proxy.builtin_rewards import score_group
from tests.support.proxy.reward_corpus import NAMES, measured, prompts

pytestmark = pytest.mark.slow

BARS = {"assistant": 0.85, "agent": 0.90, "sums": 0.98}
"""Least share of pairs in the right order, of the prompts tuned on and of those held out."""


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("source", NAMES)
def test_the_built_in_rewards_keep_the_order(source: str, held: bool) -> None:
    outcome = measured(prompts(source, held), score_group)
    assert outcome.pairs >= 80
    assert outcome.share >= BARS[source], outcome.kinds()


def test_twenty_prompts_of_each_kind() -> None:
    assert [len(list(prompts(source))) for source in NAMES] == [20, 20, 20]
    assert all(prompt.pairs for source in NAMES for prompt in prompts(source))


@pytest.mark.parametrize("source", NAMES)
def test_a_plain_refusal_is_never_above_a_good_answer(source: str) -> None:
    for prompt in prompts(source):
        rewards = dict(zip(prompt.names, score_group(prompt.context), strict=True))
        good = {"good", "call", "explained", "done", "terse", "sentence", "worked"}
        best = [reward.reward for name, reward in rewards.items() if name in good]
        if "refusal" in rewards:
            assert rewards["refusal"].reward < min(best), prompt.query


def test_a_part_that_lowers_a_reward_gives_a_reason() -> None:
    for source in NAMES:
        for prompt in prompts(source):
            for score in score_group(prompt.context):
                assert all(part.reason for part in score.parts)
