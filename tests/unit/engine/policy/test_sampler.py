"""Continuous batching: independence of batch mates, limits, stops, cancelling."""

from typing import Any

import numpy as np
import pytest

from engine.interface import Completion, Prompt, SamplingParams
from engine.policy import weights
from engine.policy.answer import Request, held_length
from engine.policy.chat_template import render
from engine.policy.sampler import Sampler, choose
from engine.tokenizer import CALL, END, TAGS, Tokenizer
from engine.training.model import Params

pytestmark = pytest.mark.slow

TOKENIZER = Tokenizer.shipped()


def _prompt(text: str) -> Prompt:
    return render(TOKENIZER, 512, [{"role": "user", "content": text}], None, 60)


def _request(text: str, **params: object) -> Request:
    return Request(_prompt(text), SamplingParams(**params))  # type: ignore[arg-type]


def _sampler(slots: int = 32, params: Params | None = None) -> Sampler:
    return Sampler(params or weights.shipped().params, TOKENIZER, slots)


def _drain(sampler: Sampler) -> dict[Request, Completion]:
    result = {}
    while sampler.live or sampler.waiting:
        for done in sampler.step(3):
            result[done.request] = done.completion
    return result


def _alone(request: Request) -> Completion:
    sampler = _sampler(1)
    sampler.add(request)
    return _drain(sampler)[request]


QUESTIONS = ["How do I boil an egg?", "What is 7 + 8?", "Tell me about cats.", "Hi", "Is it?"]


def test_an_answer_does_not_depend_on_the_other_rows_of_its_batch() -> None:
    requests = [_request(QUESTIONS[i % 5], seed=i, max_tokens=20 + i) for i in range(24)]
    sampler = _sampler(7)
    for request in requests:
        sampler.add(request)
    together = _drain(sampler)
    for request in requests:
        alone = _alone(request)
        assert alone.text == together[request].text
        np.testing.assert_allclose(alone.logprobs, together[request].logprobs, atol=1e-4)


def test_equal_seeds_give_equal_answers_and_others_differ() -> None:
    texts = [_alone(_request("How do I sleep better?", seed=s)).text for s in (1, 1, 2, 3, 4, 5)]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 2
    assert _alone(_request("Hi", seed=-(2**70))).tokens


def test_rows_join_between_token_steps() -> None:
    sampler = _sampler(4)
    first = _request("Write a story about cats.", seed=1)
    sampler.add(first)
    for _ in range(3):
        assert sampler.step(0) == []
    late = _request("Write a story about cats.", seed=2)
    sampler.add(late)
    sampler.step(0)
    assert sampler.live == 2
    drain = _drain(sampler)
    assert drain[late].text == _alone(late).text
    assert drain[first].text == _alone(first).text


def test_equal_prompts_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = _sampler()
    reads: list[int] = []
    prefill = sampler._cache.prefill

    def counted(prompt: np.ndarray, row: int) -> np.ndarray:
        reads.append(row)
        return prefill(prompt, row)

    monkeypatch.setattr(sampler._cache, "prefill", counted)
    for seed in range(8):
        sampler.add(_request("Why is the sky blue?", seed=seed))
    sampler.add(_request("Hello"))
    _drain(sampler)
    assert reads == [0, 8]


def test_greedy_is_always_the_same() -> None:
    texts = {_alone(_request("What is 3 + 4?", temperature=0.0)).text for _ in range(3)}
    assert len(texts) == 1


def test_an_answer_ends_at_its_limit() -> None:
    done = _alone(_request("Tell me a joke.", max_tokens=3, seed=1))
    assert done.finish_reason == "length"
    assert len(done.tokens) == len(done.logprobs) == 3
    assert done.step == 3


def test_an_answer_ends_at_the_window() -> None:
    prompt = Prompt(tuple(_prompt("x" * 5).tokens[:1] * 509))
    done = _alone(Request(prompt, SamplingParams(max_tokens=50, seed=1)))
    assert len(done.tokens) <= 3


def test_an_answer_that_stops_keeps_its_end_token() -> None:
    done = _alone(_request("What is the capital of Japan?", seed=1))
    assert done.finish_reason == "stop"
    assert done.tokens[-1] == END
    assert done.text == TOKENIZER.decode(done.tokens)


def test_stop_texts_cut_the_answer() -> None:
    whole = _alone(_request("What is the capital of Japan?", seed=4))
    word = whole.text.split()[-1]
    done = _alone(_request("What is the capital of Japan?", seed=4, stop=("", word)))
    assert done.text == whole.text[: whole.text.index(word)]
    assert done.finish_reason == "stop"
    assert done.tokens == whole.tokens[: len(done.tokens)]
    assert (whole.stop_reason, done.stop_reason) == (None, word)


def test_a_cancelled_request_frees_its_slot_at_the_next_step() -> None:
    sampler = _sampler(1)
    first, second, third = (_request("Tell me a story.", seed=s) for s in range(3))
    for request in (first, second, third):
        sampler.add(request)
    sampler.step(0)
    first.cancelled = second.cancelled = True
    sampler.step(0)
    assert sampler.live == 1
    assert sampler.waiting == 0
    assert list(_drain(sampler)) == [third]


def test_no_request_is_admitted_while_an_update_waits_for_the_weights() -> None:
    sampler = _sampler()
    sampler.add(_request("Hi"))
    assert sampler.step(0, admit=False) == []
    assert sampler.waiting == 1


def test_clear_gives_back_everything() -> None:
    sampler = _sampler(1)
    requests = [_request("Hi"), _request("Hello")]
    for request in requests:
        sampler.add(request)
    sampler.step(0)
    assert sampler.clear() == requests
    assert sampler.step(0) == []


def test_log_probs_are_those_at_temperature_one() -> None:
    hot = _alone(_request("Hi", temperature=3.0, seed=2, max_tokens=1))
    cold = _alone(_request("Hi", temperature=0.0, max_tokens=1))
    logits = _sampler()._cache.prefill(np.array(_prompt("Hi").tokens), 0)
    logits[CALL] = -1e9
    logp = logits - np.log(np.exp(logits).sum())
    for done in (hot, cold):
        assert done.logprobs[0] == pytest.approx(logp[done.tokens[0]], abs=1e-4)
    assert cold.tokens[0] == int(logits.argmax())


def test_characters_split_over_tokens_are_never_broken() -> None:
    """Weights that answer bytes at random: broken UTF-8 is left out, never shown as U+FFFD."""
    params = weights.shipped().params.copy()
    params["embed"][...] = 0
    sampler = _sampler(4, params)
    requests = [_request("Hi", seed=s, max_tokens=100) for s in range(4)]
    for request in requests:
        sampler.add(request)
    for done in _drain(sampler).values():
        assert "\ufffd" not in done.text
        assert not (TAGS - {END}).intersection(done.tokens)


def _streamed(request: Request, params: Params | None = None) -> tuple[list[str], Completion]:
    sampler = _sampler(4, params)
    request.on_text = print
    sampler.add(request)
    pieces: list[str] = []
    while sampler.live or sampler.waiting:
        step = sampler.step(0)
        pieces += [piece for _, piece in sampler.take_pieces()]
    assert sampler.take_pieces() == []
    return pieces, step[0].completion


def test_pieces_are_the_text() -> None:
    pieces, done = _streamed(_request("How do I sleep better?", seed=1))
    assert len(pieces) > 3
    assert "".join(pieces) == done.text
    assert all(pieces)
    sampler = _sampler()
    sampler.add(_request("Hi"))
    _drain(sampler)
    assert sampler.take_pieces() == [], "nobody asked for pieces"


def test_pieces_hold_whole_characters() -> None:
    params = weights.shipped().params.copy()
    params["embed"][...] = 0
    for seed in range(4):
        pieces, done = _streamed(_request("Hi", seed=seed, max_tokens=100), params)
        assert "".join(pieces) == done.text
        assert "\ufffd" not in done.text


def test_pieces_never_contain_text_that_a_stop_text_removes() -> None:
    whole = _alone(_request("What is the capital of Japan?", seed=4)).text
    for at in range(1, len(whole) - 3):
        stop = whole[at : at + 4]
        pieces, done = _streamed(
            _request("What is the capital of Japan?", seed=4, stop=(stop, "zzz"))
        )
        assert "".join(pieces) == done.text == whole[: whole.index(stop)]
    pieces, done = _streamed(_request("What is the capital of Japan?", seed=4, stop=(". Never",)))
    assert "".join(pieces) == done.text == whole


def test_a_tool_call_is_never_streamed_as_text() -> None:
    tools = [{"function": {"name": "calculator", "parameters": {"properties": {"expression": {}}}}}]
    prompt = render(TOKENIZER, 512, [{"role": "user", "content": "What is 3 + 4?"}], tools, 60)
    pieces, done = _streamed(Request(prompt, SamplingParams(temperature=0.0)))
    assert done.tool_calls
    assert pieces == []
    pieces, done = _streamed(Request(prompt, SamplingParams(temperature=0.0, max_tokens=4)))
    assert not done.tool_calls, "cut in the middle, it is text after all"
    assert "".join(pieces) == done.text != ""


@pytest.mark.parametrize(
    ("text", "stops", "held"),
    [
        ("abc", (), 0),
        ("abc", ("x",), 0),
        ("abc", ("cd",), 1),
        ("abc", ("cd", "bcd"), 2),
        ("abc", ("abc",), 0),
        ("aa", ("aaa",), 2),
        ("", ("a",), 0),
    ],
)
def test_what_may_begin_a_stop_text_is_held_back(
    text: str, stops: tuple[str, ...], held: int
) -> None:
    assert held_length(text, sorted(stops)) == held


class Counted(list[str]):
    """Counts how often one of its texts was read."""

    looks = 0

    def __getitem__(self, at: Any) -> Any:
        self.looks += 1
        return super().__getitem__(at)


@pytest.mark.parametrize("text", ["ab" * 250, "a" * 500])
def test_a_thousand_stop_texts_cost_few_comparisons_per_token(text: str) -> None:
    stops = Counted(sorted("a" * length + "c" for length in range(1, 1_025)))
    result, held = 0, []
    for end in range(1, len(text) + 1):
        held.append(held_length(text[:end], stops, result))
        result = end - held[-1]
    assert held == [end if text[1] == "a" else end % 2 for end in range(1, len(text) + 1)]
    assert 0 < stops.looks < 30 * len(text)


def test_choose_by_inverse_transform() -> None:
    logits = np.log(np.array([[0.5, 0.3, 0.2]] * 6))
    one, uniform = np.ones(6), np.array([0.0, 0.49, 0.51, 0.79, 0.81, 0.9999999])
    ids, logp = choose(logits, one, one, uniform)
    assert ids.tolist() == [0, 0, 1, 1, 2, 2]
    np.testing.assert_allclose(np.exp(logp), [0.5, 0.5, 0.3, 0.3, 0.2, 0.2])
    ids, _ = choose(logits, one, np.full(6, 0.6), uniform)
    assert ids.tolist() == [0, 0, 0, 1, 1, 1]
    ids, _ = choose(logits, np.zeros(6), one, uniform)
    assert ids.tolist() == [0] * 6
    ids, _ = choose(logits, np.full(6, 0.01), one, uniform)
    assert ids.tolist() == [0] * 6


def test_choose_keeps_the_likeliest_ids() -> None:
    logits = np.log(np.array([[0.5, 0.3, 0.15, 0.05]] * 4))
    one, late = np.ones(4), np.full(4, 0.9999999)
    ids, logp = choose(logits, one, one, late, top_k=np.array([0, 1, 2, 9]))
    assert ids.tolist() == [3, 0, 1, 3]
    np.testing.assert_allclose(np.exp(logp), [0.05, 0.5, 0.3, 0.05])
    ids, _ = choose(logits, one, one, late, min_p=np.array([0.0, 0.2, 0.5, 1.0]))
    assert ids.tolist() == [3, 2, 1, 0]
    both = {"top_k": np.array([2] * 4), "min_p": np.zeros(4)}
    ids, _ = choose(logits, one, np.array([1.0, 0.7, 0.6, 0.1]), late, **both)
    assert ids.tolist() == [1, 1, 0, 0], "top_p is a share of what top_k keeps"


def test_choose_samples_changed_logits_and_reports_the_unchanged_ones() -> None:
    logits = np.log(np.array([[0.5, 0.3, 0.2]] * 3))
    changed = np.log(np.array([[0.1, 0.1, 0.8]] * 3))
    heat, uniform = np.array([1.0, 0.0, 2.0]), np.array([0.15, 0.0, 0.99])
    ids, logp = choose(logits, heat, np.ones(3), uniform, changed=changed)
    assert ids.tolist() == [1, 2, 2]
    np.testing.assert_allclose(np.exp(logp), [0.3, 0.2, 0.2])


def test_a_penalty_counts_the_ids_of_its_own_answer() -> None:
    """Weights to which all ids are equally likely: greedy takes the first one not yet used."""
    params = weights.shipped().params.copy()
    params["embed"][...] = 0
    sampler = _sampler(4, params)
    plain = _request("Hi", temperature=0.0, max_tokens=5)
    fresh = _request("Hi", temperature=0.0, max_tokens=5, presence_penalty=1.0)
    twice = _request("Hi", temperature=0.0, max_tokens=5, frequency_penalty=-1.0)
    for request in (plain, fresh, twice):
        sampler.add(request)
    done = _drain(sampler)
    assert done[plain].tokens == done[twice].tokens == (0,) * 5
    assert done[fresh].tokens == (0, 1, 2, 3, 4)
    assert done[fresh].logprobs == pytest.approx(done[plain].logprobs)


def test_tool_calls_need_tools() -> None:
    assert CALL not in _alone(_request("What is 3 + 4?", seed=1)).tokens
    tools = [{"function": {"name": "calculator", "parameters": {"properties": {"expression": {}}}}}]
    prompt = render(TOKENIZER, 512, [{"role": "user", "content": "What is 3 + 4?"}], tools, 60)
    done = _alone(Request(prompt, SamplingParams(temperature=0.0)))
    assert done.finish_reason == "tool_calls"
    assert done.text == ""
    assert [(call.name, call.arguments) for call in done.tool_calls] == [
        ("calculator", '{"expression": "3 + 4"}')
    ]
