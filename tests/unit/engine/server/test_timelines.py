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


def test_a_call_that_extends_another_goes_on_with_its_timeline() -> None:
    first = call((1, 2), (3,))
    (timeline,) = merge_calls([first])
    sample = timeline.sample("t", "e", 0.5)
    assert (sample.prompt_tokens, sample.tokens, sample.logprobs) == ((1, 2), (3,), (-3.0,))
    assert (sample.mask, sample.task_id, sample.episode, sample.reward) == (None, "t", "e", 0.5)
    (timeline,) = merge_calls([first, call((1, 2, 3, 7, 8), (4, 5))])
    sample = timeline.sample("t", "e", 1.0)
    assert (sample.prompt_tokens, sample.tokens) == ((1, 2), (3, 7, 8, 4, 5))
    assert sample.mask == (True, False, False, True, True)
    assert sample.logprobs == (-3.0, 0.0, 0.0, -4.0, -5.0)
    (timeline,) = merge_calls([first, call((1, 2, 3), (4,))])
    assert timeline.sample("t", "e", 1.0).mask is None, "nothing is between"


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([((1,), ())], []),
        *(
            ([((1, 2), (3,)), other], [((1, 2), 1), (other[0], 1)])
            for other in (
                ((9, 2), (3,)),  # another context
                ((1, 2), (3,)),  # the same again
                ((1, 2, 4), (3,)),  # another answer
                ((1,), (5,)),  # shorter
                ((1, 2, 9, 3), (5,)),  # something before the answer
            )
        ),
        ([((1,), (2,)), ((1, 2, 5), (6,)), ((1, 2, 7), (8,))], [((1,), 2), ((1, 2, 7), 1)]),
        (
            [((1,), (2,)), ((50,), (51,)), ((1, 2, 3), (4,)), ((50, 51, 52), (53,))],
            [((1,), 2), ((50,), 2)],
        ),
        ([((1,), (2,)), ((1, 2, 3), (4,)), ((1, 2, 3, 4, 5), (6,))], [((1,), 3)]),
    ],
)
def test_calls_are_merged(calls: list[tuple[Ids, Ids]], expected: list[tuple[Ids, int]]) -> None:
    made = merge_calls([call(*facts) for facts in calls])
    assert [(timeline.prompt, timeline.calls) for timeline in made] == expected
    assert sum(sum(timeline.mask) for timeline in made) == sum(len(ids) for _, ids in calls)


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


PLAIN: Ids = (*b"one two", END)
MORE: Ids = (*b"user: more\n", ANSWER)


@pytest.mark.parametrize(
    ("sampled", "shown", "drifts"),
    [
        (PLAIN, "one two", 0),
        (odd("one two"), "one two", 1),
        *(
            (PLAIN, shown, 1)
            for shown in ("one two ", " one two", "one  two", "\none two\n", "onetwo")
        ),
        *((odd("one two"), shown, 0) for shown in ("one three", "one", "one two!", "", "ONE TWO")),
    ],
)
def test_other_ids_and_blanks_are_replaced_by_what_was_sampled(
    sampled: Ids, shown: str, drifts: int
) -> None:
    first, prompt = call(conversation("hi"), sampled), conversation("hi", shown, "more")
    repaired = conversation("hi") + sampled + MORE if drifts else prompt
    assert repair_prompt(prompt, [first], decode) == RepairedPrompt(repaired, drifts)
    assert repair_prompt(prompt, [], decode) == RepairedPrompt(prompt, 0)
    merged = drifts or sampled == PLAIN
    assert len(merge_calls([first, call(repaired, (9,))])) == (1 if merged else 2)


def test_an_answer_that_was_cut_off_is_found_by_its_text_and_an_old_one_is_not() -> None:
    cut, prompt = odd("one two")[:-1], conversation("hi", "one two", "more")
    first = call(conversation("hi"), cut, finish_reason="length")
    repaired = conversation("hi") + cut + (END, *MORE)
    assert repair_prompt(prompt, [first], decode) == RepairedPrompt(repaired, 1)
    later = [call(conversation("x"), (9,))] * LOOK_BACK
    assert repair_prompt(prompt, [first, *later], decode).drifts == 0


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


def test_of_two_answers_to_one_prompt_the_matching_one_is_restored() -> None:
    calls = [call(conversation("hi"), odd("one")), call(conversation("hi"), odd("two"))]
    mended = repair_prompt(conversation("hi", "two", "more"), calls, decode)
    assert mended.tokens[len(conversation("hi")) :][:4] == odd("two")
    plain = call(conversation("hi"), (*b"two", END))
    assert repair_prompt(conversation("hi", "two", "more"), [*calls, plain], decode).drifts == 0


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
async def test_a_conversation_is_one_sample(idle: Driver, drifts: bool) -> None:
    idle.bench.turns, idle.bench.drifts = True, drifts
    await idle.roll(batch=1, repeat=2)
    episode = await idle.claim()
    await converse(idle, episode, "a", "b", "c")
    await idle.end(episode, "t", 0.75)
    await idle.play("t", 0.25)
    await idle.until("ROLLING", 2)
    merged, single = idle.bench.trained[0]
    assert (merged.reward, merged.episode) == (0.75, episode["episode_uuid"])
    assert merged.mask is not None
    assert single.mask is None
    assert [token for token in merged.tokens if token == END] == [END] * 3
    (update,) = await idle.get("/ajetc/updates")
    assert (update["calls"], update["timelines"]) == (4, 2)
    assert update["drift_repaired"] == (3 if drifts else 0)
    assert ("came back as other tokens" in await idle.logged()) is drifts


async def test_blanks_a_client_changed_are_repaired_and_counted(idle: Driver) -> None:
    idle.bench.turns = True
    await idle.roll(batch=1, repeat=1)
    episode = await idle.claim()
    await converse(idle, episode, "a", "b", strip=True)
    await idle.end(episode, "t")
    await idle.until("ROLLING", 2)
    assert len(idle.bench.trained[0]) == 1
    (update,) = await idle.get("/ajetc/updates")
    assert (update["drift_repaired"], update["drift_left"]) == (1, 0)


async def test_two_agents_in_one_episode_are_two_samples_of_one_reward(idle: Driver) -> None:
    idle.bench.turns = True
    await idle.roll(batch=1, repeat=1)
    episode = await idle.claim()
    await converse(idle, episode, "you are the writer", "go on")
    await converse(idle, episode, "you are the critic", "and now")
    await idle.end(episode, "t", 0.5)
    await idle.until("ROLLING", 2)
    first, second = idle.bench.trained[0]
    assert (first.episode, first.reward) == (second.episode, second.reward)
    assert first.prompt_tokens != second.prompt_tokens


async def spoken(
    policy: TinyPolicy, turns: int, seed: int, temperature: float = 1.0
) -> tuple[list[Completion], int]:
    """The calls of a conversation whose answers come back without blanks; repaired answers."""
    calls: list[Completion] = []
    messages: list[dict[str, Any]] = []
    drifts = 0
    for turn in range(turns):
        messages.append({"role": "user", "content": "What is 7 + 8?"})
        prompt = policy.render(messages, None, 30)
        repaired = repair_prompt(prompt.tokens, calls, policy.decode)
        drifts += repaired.drifts
        params = SamplingParams(max_tokens=20, temperature=temperature, seed=10 * seed + turn)
        calls.append(await policy.sample(type(prompt)(repaired.tokens), params))
        messages.append({"role": "assistant", "content": calls[-1].text.strip()})
    return calls, drifts


@pytest.mark.slow
async def test_the_real_policy_trains_a_conversation_as_it_was_sampled() -> None:
    """Its sampler draws words in pieces the encoder would not choose; nothing is encoded again."""
    policy = TinyPolicy.open(None)
    try:
        repaired = 0
        for seed in range(12):
            calls, drifts = await spoken(policy, 3, seed, 1.6)
            repaired += drifts
            timelines: list[Timeline] = merge_calls(calls)
            sampled = sum(len(completion.tokens) for completion in calls)
            assert sum(sum(timeline.mask) for timeline in timelines) == sampled
            for timeline in timelines:
                now = await policy.logprobs(timeline.prompt, timeline.tokens)
                assert len(timeline.prompt) + len(timeline.tokens) <= policy.context
                then = [
                    p if drawn else q
                    for drawn, p, q in zip(timeline.mask, timeline.logprobs, now, strict=True)
                ]
                assert now == pytest.approx(then, abs=2e-3)
        assert repaired > 0
    finally:
        await policy.close()


async def test_a_merged_batch_is_trained_like_its_calls_one_by_one() -> None:
    """The same update, from fewer tokens through the network."""
    policy, other = TinyPolicy.open(None), TinyPolicy.open(None)
    try:
        finished = [(await spoken(policy, 2, number))[0] for number in range(4)]
        merged, alone = (
            [
                timeline.sample("t", str(number), float(number % 2))
                for number, calls in enumerate(finished)
                for part in parts(calls)
                for timeline in merge_calls(part)
            ]
            for parts in (
                lambda calls: [calls],
                lambda calls: [[completion] for completion in calls],
            )
        )
        assert len(merged) < len(alone)
        hyper = Hyperparameters(epochs=1)
        first, second = await policy.train(alone, hyper), await other.train(merged, hyper)
    finally:
        await policy.close()
        await other.close()
    assert second.tokens == first.tokens
    assert second.grad_norm == pytest.approx(first.grad_norm, rel=1e-3)
    assert second.entropy == pytest.approx(first.entropy, rel=1e-3)
