"""The token log: its data of an episode's tokens, and its limits."""

import pytest

from engine.interface import Completion, TrainSample
from engine.policy.tiny import TinyTextCodec
from engine.server.token_log import TokenLog, live_episode
from engine.tokenizer import ANSWER, END, USER
from tests.support.engine.fake_policy import Bench, FakePolicy


def _completion(tokens: tuple[int, ...] = (7, 8), prompt: tuple[int, ...] = (1, 2)) -> Completion:
    return Completion("x", prompt, tokens, tuple(-0.5 * t for t in tokens), "stop", step=3)


async def test_each_token_has_its_id_mask_and_log_probs() -> None:
    log = TokenLog()
    log.record("e", [_completion()], "task", 0.25)
    result = await log.show("e", FakePolicy(Bench(step=4)))
    assert result is not None
    call = result.pop("calls")[0]
    assert result == {
        "episode_uuid": "e", "state": "finished", "task_id": "task", "reward": 0.25, "step": 4,
    }  # fmt: skip
    assert (call["step"], call["prompt_tokens"]) == (3, 2)
    assert call["tokens"][1:3] == [
        {"id": 2, "text": "<2>", "mask": 0, "logprob": None, "logprob_now": None},
        {"id": 7, "text": "<7>", "mask": 1, "logprob": -3.5, "logprob_now": -2.0},
    ]


async def test_masked_tokens_of_a_timeline_have_no_log_prob() -> None:
    log = TokenLog()
    sample = TrainSample("t", (1,), (5, 6, 7), (-1.0, float("nan"), -2.0), 1.0, (True, False, True))
    log.record("e", [sample], "t", 1.0)
    result = await log.show("e", FakePolicy(Bench()))
    assert result is not None
    rows = result["calls"][0]["tokens"]
    assert [row["mask"] for row in rows] == [0, 1, 0, 1]
    assert [row["logprob"] for row in rows] == [None, -1.0, None, -2.0]
    assert [row["logprob_now"] for row in rows] == [None, -2.0, None, -2.0]


async def test_without_a_policy_ids_and_old_log_probs_are_there() -> None:
    log = TokenLog()
    log.record("e", [_completion()], "t", 1.0)
    result = await log.show("e", None)
    assert result is not None
    assert result["step"] is None
    assert result["calls"][0]["tokens"][3] == {
        "id": 8, "text": None, "mask": 1, "logprob": -4.0, "logprob_now": None,
    }  # fmt: skip
    assert await log.show("other", None) is None


async def test_a_running_episode_is_shown_in_the_same_form() -> None:
    result = await live_episode("e", [_completion(), _completion()], "t", None)
    assert (result["state"], result["reward"], len(result["calls"])) == ("live", None, 2)


async def test_only_the_newest_are_kept() -> None:
    log = TokenLog(episodes=3)
    for number in range(5):
        log.record(str(number), [_completion()], "t", 1.0)
    assert len(log) == 3
    assert await log.show("1", None) is None
    assert await log.show("2", None) is not None


@pytest.mark.slow
async def test_memory_is_bounded_whatever_the_lengths() -> None:
    log = TokenLog(size=100_000)
    for number in range(300):
        log.record(str(number), [_completion((1,) * 400, (2,) * 100)] * (number % 7), "t", 1.0)
        log.record(str(number), [_completion((1,) * 400, (2,) * 100)] * (number % 7), "t", 1.0)
        assert log._used <= 100_000
    assert log._used == sum(entry.size for entry in log._episodes.values())
    log.record("big", [_completion((1,) * 100_000)], "t", 1.0)
    assert len(log) == 1, "the newest is kept even alone over the bound"


def test_tokens_read_as_text_tags_by_name_and_broken_bytes_as_such() -> None:
    tokenizer = TinyTextCodec.shipped()
    ids = tokenizer.encode("Hello é")
    assert "".join(tokenizer.token_texts(ids[:1])) == tokenizer.decode(ids[:1])
    assert tokenizer.token_texts((USER, ANSWER, END, 0xE2)) == [
        "<user>",
        "<answer>",
        "<end>",
        "\\xe2",
    ]
