"""Calls of an episode merged into timelines; answers that come back in other tokens."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.interface import Completion, Hyperparameters, SamplingParams
from engine.policy.tiny import TinyPolicy
from engine.server.timelines import LOOK_BACK, RepairedPrompt, Timeline, merge_calls, repair_prompt
from tests.support.engine.client import Driver
from tests.support.engine.fake_policy import ANSWER, END, decode, rendered_turns

Ids = tuple[int, ...]


def call(prompt: Ids, tokens: Ids, **facts: Any) -> Completion:
    return Completion(
        **{
            "text": decode(tokens),
            "prompt_tokens": prompt,
            "tokens": tokens,
            "logprobs": tuple(-float(token) for token in tokens),
            "finish_reason": "stop",
            **facts,
        }
    )


def test_one_call_is_a_timeline_without_a_mask() -> None:
    (timeline,) = merge_calls([call((1, 2), (3, 4))])
    sample = timeline.sample("t", "e", 0.5)
    assert (sample.prompt_tokens, sample.tokens, sample.logprobs) == ((1, 2), (3, 4), (-3.0, -4.0))
    assert (sample.mask, sample.task_id, sample.episode, sample.reward) == (None, "t", "e", 0.5)


def test_a_call_that_extends_another_goes_on_with_its_timeline() -> None:
    (timeline,) = merge_calls([call((1, 2), (3,)), call((1, 2, 3, 7, 8), (4, 5))])
    sample = timeline.sample("t", "e", 1.0)
    assert sample.prompt_tokens == (1, 2)
    assert sample.tokens == (3, 7, 8, 4, 5)
    assert sample.mask == (True, False, False, True, True)
    assert sample.logprobs == (-3.0, 0.0, 0.0, -4.0, -5.0)
    assert timeline.calls == 2


def test_an_answer_goes_on_without_anything_between() -> None:
    (timeline,) = merge_calls([call((1,), (2,)), call((1, 2), (3,))])
    assert timeline.sample("t", "e", 1.0).mask is None


@pytest.mark.parametrize(
    "other",
    [
        call((9, 2), (3,)),
        call((1, 2), (3,)),
        call((1, 2, 4), (3,)),
        call((1,), (5,)),
        call((1, 2, 9, 3), (5,)),
    ],
    ids=["another context", "the same again", "other answer", "shorter", "something before it"],
)
def test_a_call_that_does_not_is_a_timeline_of_its_own(other: Completion) -> None:
    made = merge_calls([call((1, 2), (3,)), other])
    assert [timeline.calls for timeline in made] == [1, 1]
    assert made[1].prompt == other.prompt_tokens


def test_two_branches_of_one_answer_train_it_once() -> None:
    root = call((1,), (2,))
    left, right = call((1, 2, 5), (6,)), call((1, 2, 7), (8,))
    made = merge_calls([root, left, right])
    assert [timeline.calls for timeline in made] == [2, 1]
    assert made[1].prompt == (1, 2, 7)
    assert sum(sum(timeline.mask) for timeline in made) == 3


def test_two_agents_take_turns() -> None:
    a1, b1 = call((1,), (2,)), call((50,), (51,))
    a2, b2 = call((1, 2, 3), (4,)), call((50, 51, 52), (53,))
    made = merge_calls([a1, b1, a2, b2])
    assert [(timeline.prompt, timeline.calls) for timeline in made] == [((1,), 2), ((50,), 2)]


def test_calls_without_an_answer_are_left_out() -> None:
    assert merge_calls([call((1,), ())]) == []


def test_the_longest_timeline_is_taken() -> None:
    made = merge_calls([call((1,), (2,)), call((1, 2, 3), (4,)), call((1, 2, 3, 4, 5), (6,))])
    assert [timeline.calls for timeline in made] == [3]


@pytest.mark.slow
@given(st.data())
def test_each_sampled_token_is_trained_once_in_its_own_context(data: st.DataObject) -> None:
    """Whatever the shape of an episode: books and contexts agree."""
    token = st.integers(1, 3)
    calls: list[Completion] = []
    for _ in range(data.draw(st.integers(0, 8))):
        extends = bool(calls) and data.draw(st.booleans())
        earlier = data.draw(st.sampled_from(calls)) if extends else None
        start = () if earlier is None else earlier.prompt_tokens + earlier.tokens
        more = tuple(data.draw(st.lists(token, min_size=earlier is None, max_size=3)))
        calls.append(call(start + more, tuple(data.draw(st.lists(token, max_size=3)))))
    trained = []
    for timeline in merge_calls(calls):
        sample = timeline.sample("t", "e", 1.0)
        assert len(sample.tokens) == len(sample.logprobs)
        whole = sample.prompt_tokens + sample.tokens
        mask = sample.mask or (True,) * len(sample.tokens)
        for place, (sampled, logprob) in enumerate(zip(mask, sample.logprobs, strict=True)):
            if sampled:
                at = len(sample.prompt_tokens) + place
                assert logprob == -float(whole[at])
                trained.append(whole[: at + 1])
    drawn = [
        (*completion.prompt_tokens, *completion.tokens[: place + 1])
        for completion in calls
        for place in range(len(completion.tokens))
    ]
    assert sorted(trained) == sorted(drawn)


# -- drift -------------------------------------------------------------------------------------


def odd(text: str) -> Ids:
    """An answer drawn in ids that no prompt is rendered with."""
    return (*(letter + 256 for letter in text.encode()), END)


def conversation(*texts: str) -> Ids:
    roles = ("user", "assistant")
    return rendered_turns(
        [{"role": roles[place % 2], "content": text} for place, text in enumerate(texts)]
    )


def test_an_unchanged_prompt_needs_no_repair() -> None:
    first = call(conversation("hi"), (*b"one two", END))
    prompt = conversation("hi", "one two", "more")
    assert repair_prompt(prompt, [first], decode) == RepairedPrompt(prompt, 0)
    assert repair_prompt(prompt, [], decode) == RepairedPrompt(prompt, 0)
    assert merge_calls([first, call(prompt, (9,))])[0].calls == 2


def test_other_ids_for_the_same_text_are_replaced_by_the_sampled_ones() -> None:
    first = call(conversation("hi"), odd("one two"))
    mended = repair_prompt(conversation("hi", "one two", "more"), [first], decode)
    assert mended.drifts == 1
    assert mended.tokens == conversation("hi") + odd("one two") + (*b"user: more\n", ANSWER)
    assert [merge_call.calls for merge_call in merge_calls([first, call(mended.tokens, (9,))])] == [
        2
    ]


@pytest.mark.parametrize("result", ["one two ", " one two", "one  two", "\none two\n", "onetwo"])
def test_blanks_that_changed_are_drift(result: str) -> None:
    first = call(conversation("hi"), (*b"one two", END))
    mended = repair_prompt(conversation("hi", result, "more"), [first], decode)
    assert mended.drifts == 1
    assert mended.tokens == conversation("hi", "one two", "more")


@pytest.mark.parametrize("result", ["one three", "one", "one two!", "", "ONE TWO"])
def test_a_changed_text_is_not_repaired(result: str) -> None:
    first = call(conversation("hi"), odd("one two"))
    prompt = conversation("hi", result, "more")
    assert repair_prompt(prompt, [first], decode) == RepairedPrompt(prompt, 0)


def test_the_ids_of_every_turn_are_restored() -> None:
    calls: list[Completion] = []
    lines: list[str] = ["start"]
    for turn in range(4):
        mended = repair_prompt(conversation(*lines), calls, decode)
        assert mended.drifts == turn
        answer = f"answer {turn}"
        calls.append(call(mended.tokens, odd(answer)))
        lines += [answer, "next"]
    (timeline,) = merge_calls(calls)
    assert timeline.calls == 4
    assert sum(timeline.mask) == sum(len(completion.tokens) for completion in calls)


def test_an_answer_that_was_cut_off_is_found_by_its_text() -> None:
    cut = odd("one two")[:-1]
    mended = repair_prompt(
        conversation("hi", "one two", "more"),
        [call(conversation("hi"), cut, finish_reason="length")],
        decode,
    )
    assert mended.drifts == 1
    assert mended.tokens == conversation("hi") + cut + (END, *b"user: more\n", ANSWER)


def test_of_two_answers_to_one_prompt_the_matching_one_is_restored() -> None:
    calls = [call(conversation("hi"), odd("one")), call(conversation("hi"), odd("two"))]
    mended = repair_prompt(conversation("hi", "two", "more"), calls, decode)
    assert mended.tokens[len(conversation("hi")) :][:4] == odd("two")
    plain = call(conversation("hi"), (*b"two", END))
    assert repair_prompt(conversation("hi", "two", "more"), [*calls, plain], decode).drifts == 0


def test_old_calls_are_not_searched() -> None:
    calls = [call(conversation("hi"), odd("one")), *[call(conversation("x"), (9,))] * LOOK_BACK]
    assert repair_prompt(conversation("hi", "one", "more"), calls, decode).drifts == 0


# -- over HTTP ---------------------------------------------------------------------------------


async def converse(d: Driver, episode: dict[str, Any], *users: str, strip: bool = False) -> None:
    messages: list[dict[str, str]] = []
    for user in users:
        messages.append({"role": "user", "content": user})
        answer = await d.chat(episode, messages=messages)
        assert answer.status_code == 200, answer.text
        body = answer.json()["choices"][0]["message"]["content"]
        messages.append({"role": "assistant", "content": f" {body}\n" if strip else body})


@pytest.mark.slow
@pytest.mark.parametrize("drifts", [False, True])
async def test_a_conversation_is_one_sample(d: Driver, drifts: bool) -> None:
    d.bench.turns, d.bench.drifts = True, drifts
    await d.roll(batch=1, repeat=2)
    episode = await d.claim()
    await converse(d, episode, "a", "b", "c")
    await d.end(episode, "t", 0.75)
    await d.play("t", 0.25)
    await d.until("ROLLING", 2)
    merged, single = d.bench.trained[0]
    assert (merged.reward, merged.episode) == (0.75, episode["episode_uuid"])
    assert merged.mask is not None
    assert single.mask is None
    assert [token for token in merged.tokens if token == END] == [END] * 3
    (update,) = await d.get("/ajetc/updates")
    assert (update["calls"], update["timelines"]) == (4, 2)
    assert update["drift_repaired"] == (3 if drifts else 0)
    assert ("came back as other tokens" in await d.logged()) is drifts


async def test_blanks_a_client_changed_are_repaired_and_counted(d: Driver) -> None:
    d.bench.turns = True
    await d.roll(batch=1, repeat=1)
    episode = await d.claim()
    await converse(d, episode, "a", "b", strip=True)
    await d.end(episode, "t")
    await d.until("ROLLING", 2)
    assert len(d.bench.trained[0]) == 1
    (update,) = await d.get("/ajetc/updates")
    assert (update["drift_repaired"], update["drift_left"]) == (1, 0)


async def test_two_agents_in_one_episode_are_two_samples_of_one_reward(d: Driver) -> None:
    d.bench.turns = True
    await d.roll(batch=1, repeat=1)
    episode = await d.claim()
    await converse(d, episode, "you are the writer", "go on")
    await converse(d, episode, "you are the critic", "and now")
    await d.end(episode, "t", 0.5)
    await d.until("ROLLING", 2)
    first, second = d.bench.trained[0]
    assert (first.episode, first.reward) == (second.episode, second.reward)
    assert first.prompt_tokens != second.prompt_tokens


@pytest.mark.slow
async def test_the_real_policy_trains_a_conversation_as_it_was_sampled() -> None:
    """Its sampler draws words in pieces the encoder would not choose; nothing is encoded again."""
    policy = TinyPolicy.open(None)
    try:
        repaired = 0
        for seed in range(12):
            calls: list[Completion] = []
            messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}]
            for turn in range(3):
                messages.append({"role": "user", "content": "What is 7 + 8?"})
                prompt = policy.render(messages, None, 30)
                mended = repair_prompt(prompt.tokens, calls, policy.decode)
                repaired += mended.drifts
                prompt = type(prompt)(mended.tokens)
                params = SamplingParams(max_tokens=20, temperature=1.6, seed=10 * seed + turn)
                drawn = await policy.sample(prompt, params)
                calls.append(drawn)
                messages.append({"role": "assistant", "content": drawn.text.strip()})
            timelines: list[Timeline] = merge_calls(calls)
            assert sum(sum(timeline.mask) for timeline in timelines) == sum(
                len(completion.tokens) for completion in calls
            )
            for timeline in timelines:
                ids = timeline.prompt + tuple(timeline.tokens)
                scored = await policy.logprobs(timeline.prompt, timeline.tokens)
                assert len(ids) <= policy.context
                for sampled, then, now in zip(
                    timeline.mask, timeline.logprobs, scored, strict=True
                ):
                    if sampled:
                        assert abs(then - now) < 2e-3
        assert repaired > 0
    finally:
        await policy.close()


@pytest.mark.slow
async def test_a_merged_batch_is_trained_like_its_calls_one_by_one() -> None:
    """The same update, from fewer tokens through the network."""
    policy = TinyPolicy.open(None)
    try:
        finished = []
        for number in range(4):
            calls: list[Completion] = []
            messages: list[dict[str, Any]] = []
            for turn in range(2):
                messages.append({"role": "user", "content": "What is 2 + 2?"})
                prompt = policy.render(messages, None, 30)
                mended = repair_prompt(prompt.tokens, calls, policy.decode)
                drawn = await policy.sample(
                    type(prompt)(mended.tokens), SamplingParams(max_tokens=20, seed=number + turn)
                )
                calls.append(drawn)
                messages.append({"role": "assistant", "content": drawn.text})
            finished.append(calls)
        merged = [
            timeline.sample("t", str(number), float(number % 2))
            for number, calls in enumerate(finished)
            for timeline in merge_calls(calls)
        ]
        alone = [
            timeline.sample("t", str(number), float(number % 2))
            for number, calls in enumerate(finished)
            for completion in calls
            for timeline in merge_calls([completion])
        ]
        assert len(merged) < len(alone)
        hyper = Hyperparameters(epochs=1)
        first = await policy.train(alone, hyper)
    finally:
        await policy.close()
    other = TinyPolicy.open(None)
    try:
        second = await other.train(merged, hyper)
    finally:
        await other.close()
    assert second.tokens == first.tokens
    assert second.grad_norm == pytest.approx(first.grad_norm, rel=1e-3)
    assert second.entropy == pytest.approx(first.entropy, rel=1e-3)
