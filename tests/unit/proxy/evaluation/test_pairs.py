"""Blind pairs: uniform draws, blindness, votes, what survives a kill, new counts."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from core.commands import CommandError, validate
from core.commands.spec import NotNow
from core.events import LookEnded, PairRated
from core.journal.read_only import JournalFile
from core.state import PairRatings
from core.verdict.betting import running_interval
from proxy.control.dispatch import CommandDispatcher
from proxy.evaluation import pairs as module
from proxy.evaluation.measurement import MeasuredPrompt, Measurement, SampleArchive
from proxy.evaluation.pairs import PairPool, PairRating
from proxy.evaluation.scoring import ScoredSample
from proxy.evaluation.service import Evaluation
from tests.support.proxy.world import World
from tests.unit.proxy.evaluation.test_service import Policy, ended, measured

HOSTILE = "[bold]now[/] \x1b[31m\x07 \u202e\ud7ff </pair> before"

Texts = dict[str, Sequence[tuple[str, float | None]]]


def stored(look_id: str, step: int, texts: Texts) -> Measurement:
    """A stored look: for each prompt its answers with their rewards."""
    return Measurement(
        look_id=look_id,
        server="s",
        step=step,
        at=0.0,
        reward="v1",
        probe_set="ps1",
        prompts=tuple(
            MeasuredPrompt(
                id=name,
                prompt=f"What about {name}?",
                samples=tuple(
                    ScoredSample(
                        text=text,
                        reward=reward,
                        parts={} if reward is None else {"taste": reward, "short": 1 - reward},
                    )
                    for text, reward in answers
                ),
            )
            for name, answers in texts.items()
        ),
    )


BEFORE = stored("b1", 1, {
    "p": [("old one", 0.1), ("old two", 0.9), ("equal", 0.5)],
    "q": [("old three", 0.2), ("old four", 0.2), (HOSTILE, 0.3)],
})  # fmt: skip
NOW = stored("l1", 12, {
    "p": [("new one", 0.8), (" equal\n", 0.5), ("new two", 0.9)],
    "q": [("new three", 0.2), ("new four", 0.7), ("new five", 0.7)],
})  # fmt: skip


def event(look: Measurement, file: str, baseline: str = "") -> LookEnded:
    return LookEnded(
        server="s",
        look_id=look.look_id,
        role="look" if baseline else "baseline",
        outcome="complete",
        step=look.step,
        baseline_id=baseline,
        file=file,
    )


def publish(w: World, look: Measurement, baseline: str = "") -> None:
    """Store a look in the home, and publish its end."""
    file = SampleArchive(w.context.journal.path.parent).write(look)
    w.context.bus.publish(event(look, file, baseline))


def again(w: World, seed: int = 1) -> PairRating:
    """The pairs of a proxy that has just started."""
    archive = SampleArchive(w.context.journal.path.parent)
    return PairRating(w.context, "s", archive, Random(seed))


@pytest.fixture
def pairs(w: World) -> PairRating:
    """The pairs of a proxy with a baseline and a look after it."""
    publish(w, BEFORE)
    publish(w, NOW, "b1")
    return again(w)


def ratings(w: World) -> PairRatings:
    return w.state.progress["s"].pair_ratings


async def rated(pairs: PairRating, choice: str = "left", rater: str = "anna") -> str:
    """Vote on the next pair; give its id."""
    _, shown = await pairs.pair(rater)
    await pairs.vote(shown["pair_id"], choice, rater)
    return shown["pair_id"]


# --- the draw ----------------------------------------------------------------------------------


def test_draws_are_uniform_over_the_pairs_that_differ_and_over_sides() -> None:
    pool, random = PairPool(BEFORE, NOW), Random(7)
    places: Counter[Any] = Counter()
    sides: Counter[str] = Counter()
    rounds = 8_500
    for _ in range(rounds):
        drawn = pool.draw(random, ())
        places[drawn.place] += 1
        sides[drawn.left] += 1
    assert len(places) == 17, "2 prompts with 3 x 3 samples, without the pair of equal texts"
    assert ("p", 2, 1) not in places
    expected = rounds / 17
    chi = sum((count - expected) ** 2 / expected for count in places.values())
    assert chi < 39.3, "0.1 % of uniform draws have more, with 16 degrees of freedom"
    assert abs(sides["before"] - rounds / 2) < 4 * (rounds / 4) ** 0.5


def test_the_draw_does_not_depend_on_the_scores() -> None:
    def turned(look: Measurement) -> Measurement:
        return msgspec.structs.replace(
            look,
            prompts=tuple(
                msgspec.structs.replace(
                    prompt,
                    samples=tuple(
                        msgspec.structs.replace(sample, reward=1.0 - (sample.reward or 0.0))
                        for sample in prompt.samples
                    ),
                )
                for prompt in look.prompts
            ),
        )

    first, second = PairPool(BEFORE, NOW), PairPool(turned(BEFORE), turned(NOW))
    random, other = Random(3), Random(3)
    for _ in range(50):
        drawn, likewise = first.draw(random, ()), second.draw(other, ())
        assert (drawn.place, drawn.left) == (likewise.place, likewise.left)


def test_all_pairs_are_counted_by_their_rewards() -> None:
    counts = PairPool(BEFORE, NOW).counts
    assert (counts.now, counts.tie, counts.before) == (11, 3, 3)
    assert (counts.same, counts.unscored, counts.different) == (1, 0, 17)


# --- one pair ----------------------------------------------------------------------------------


@pytest.mark.slow
async def test_nothing_in_a_pair_tells_which_answer_is_which(w: World, pairs: PairRating) -> None:
    keys, left = set(), Counter[str]()
    for _ in range(17):
        events = len(w.events)
        message, shown = await pairs.pair("anna")
        assert len(w.events) == events, "nothing is published before the vote"
        keys.add(tuple(shown))
        texts = shown.pop("left"), shown.pop("right")
        left["old" if texts[0].startswith("old") else "other"] += 1
        shown.pop("prompt")
        pair_id = shown.pop("pair_id")
        ratings_so_far = shown.pop("ratings")
        assert shown == {
            "server": "s", "baseline_step": 1, "step": 12, "newest_step": 12,
            "different": 17, "same": 1,
        }  # fmt: skip
        assert message == f"pair {pair_id} of s: vote left, right, tie or skip"
        assert len(pair_id) == 12
        await pairs.vote(pair_id, "tie", "anna")
        assert ratings_so_far < 17
    assert len(keys) == 1, "each pair has the same fields in the same order"
    assert min(left.values()) >= 3, "both are on both sides"


async def test_a_rater_keeps_the_open_pair_and_another_rater_gets_another_one(
    w: World, pairs: PairRating
) -> None:
    _, first = await pairs.pair("anna")
    _, same = await pairs.pair("anna")
    assert same == first
    many = [(await pairs.pair(f"rater {at}"))[1]["pair_id"] for at in range(16)]
    assert len({first["pair_id"], *many}) == 17
    with pytest.raises(NotNow, match="all pairs are rated or open"):
        await pairs.pair("one too many")


async def test_open_pairs_are_capped(
    w: World, pairs: PairRating, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OPEN_CAP", 2)
    _, first = await pairs.pair("a")
    await pairs.pair("b")
    await pairs.pair("c")
    with pytest.raises(NotNow, match="is not open"):
        await pairs.vote(first["pair_id"], "left", "a")


# --- votes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", ["left", "right", "tie", "skip"])
async def test_a_vote_is_recorded_with_result_and_automatic_result(
    w: World, pairs: PairRating, choice: str
) -> None:
    _, shown = await pairs.pair("anna")
    message, answer = await pairs.vote(shown["pair_id"], choice, "anna")
    (rated,) = w.kinds(PairRated)
    old = BEFORE.prompts[0 if rated.prompt_id == "p" else 1].samples[rated.before]
    new = NOW.prompts[0 if rated.prompt_id == "p" else 1].samples[rated.now]
    sides = (old.text, new.text) if rated.left == "before" else (new.text, old.text)
    assert (shown["left"], shown["right"]) == sides
    right_is_now = rated.left == "before"
    expected = {"left": 1.0 - right_is_now, "right": float(right_is_now), "tie": 0.5}
    assert rated.result == expected.get(choice)
    assert (rated.baseline_id, rated.look_id, rated.baseline_step, rated.step) == (
        "b1", "l1", 1, 12,
    )  # fmt: skip
    assert (rated.rater, rated.choice, rated.server) == ("anna", choice, "s")
    difference = new.reward - old.reward
    assert rated.automatic == (0.5 if not difference else float(difference > 0))
    assert rated.parts["taste"] == rated.automatic
    assert rated.parts["short"] == 1.0 - rated.automatic
    assert answer["left"] == rated.left
    assert {answer["left"], answer["right"]} == {"before", "now"}
    assert answer["automatic"] == rated.automatic
    assert ratings(w).skipped == (choice == "skip")
    assert answer["ratings"] == (choice != "skip")
    if choice == "skip":
        assert message == "skipped; no ratings yet"
    else:
        assert "automatic 0.74, 1 rating" in message
    assert not w.swarm.reward_log, "nothing is trained on"


async def test_figures_are_those_of_the_votes_in_order(w: World, pairs: PairRating) -> None:
    results = []
    for at in range(12):
        await rated(pairs, ("left", "skip", "tie", "right")[at % 4], "")
        if (result := w.kinds(PairRated)[-1].result) is not None:
            results.append(result)
    figures = ratings(w).figures
    assert figures.human == running_interval(results)
    assert (figures.ratings, ratings(w).skipped) == (9, 3)
    assert figures.automatic == pytest.approx((11 + 0.5 * 3) / 17)
    assert {name for name, _ in figures.parts} == {"taste", "short"}


@pytest.mark.slow
async def test_a_vote_is_committed_before_its_answer(w: World, pairs: PairRating) -> None:
    pair_id = await rated(pairs)
    file = JournalFile(w.context.journal.path)  # what a kill -9 now would leave
    (result,) = file.load_state().progress["s"].pairs.pairs  # type: ignore[union-attr]
    assert result.pair_id == pair_id
    restarted = again(w, 9)
    for _ in range(16):
        await rated(restarted, "tie")
    places = [pair.place for pair in ratings(w).pairs]
    assert len(set(places)) == 17, "a pair that was rated before is not drawn again"


async def test_the_same_vote_again_counts_once_and_another_one_is_refused(
    w: World, pairs: PairRating
) -> None:
    _, shown = await pairs.pair("anna")
    first = await pairs.vote(shown["pair_id"], "left", "anna")
    assert await again(w).vote(shown["pair_id"], "left", "anna") == first
    assert len(ratings(w).pairs) == 1
    with pytest.raises(NotNow, match="is rated already"):
        await pairs.vote(shown["pair_id"], "right", "anna")


async def test_an_unknown_pair_and_a_broken_journal_are_refused(
    w: World, pairs: PairRating
) -> None:
    with pytest.raises(NotNow, match="pair feedbeef is not open"):
        await pairs.vote("feedbeef", "left", "")
    _, shown = await pairs.pair("")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(w.context.journal, "error", "the disk is full")
        with pytest.raises(NotNow, match=r"nothing is changed: .* the disk is full"):
            await pairs.vote(shown["pair_id"], "left", "")
    assert w.state.progress["s"].pairs is None
    await pairs.vote(shown["pair_id"], "left", "")
    assert len(ratings(w).pairs) == 1


async def test_at_the_cap_no_further_pair_is_shown(
    w: World, pairs: PairRating, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAIR_CAP", 1)
    await rated(pairs, "left", "")
    with pytest.raises(NotNow, match="1 pairs of this look are rated"):
        await pairs.pair("")


# --- comparisons -------------------------------------------------------------------------------


async def test_the_rated_look_stays_until_a_rater_asks_for_the_newest(
    w: World, pairs: PairRating
) -> None:
    await rated(pairs)
    publish(w, msgspec.structs.replace(NOW, look_id="l2", step=20), "b1")
    _, held = await again(w).pair("anna")
    assert (held["step"], held["newest_step"], held["ratings"]) == (12, 20, 1)
    _, newest = await pairs.pair("anna", newest=True)
    assert (newest["step"], newest["newest_step"], newest["ratings"]) == (20, 20, 0)
    assert len(ratings(w).pairs) == 1, "the counts stay until the first vote on the newest"
    await pairs.vote(newest["pair_id"], "tie", "anna")
    assert (ratings(w).look_id, ratings(w).step, len(ratings(w).pairs)) == ("l2", 20, 1)


async def test_before_the_first_vote_the_newest_is_compared(w: World, pairs: PairRating) -> None:
    _, old = await pairs.pair("anna")
    publish(w, msgspec.structs.replace(NOW, look_id="l2", step=20), "b1")
    _, shown = await pairs.pair("anna")
    assert shown["step"] == 20
    with pytest.raises(NotNow, match="is not open"):
        await pairs.vote(old["pair_id"], "left", "anna")


async def test_a_new_baseline_begins_new_counts(w: World, pairs: PairRating) -> None:
    await rated(pairs)
    _, open_pair = await pairs.pair("anna")
    publish(w, msgspec.structs.replace(BEFORE, look_id="b2", step=12))
    assert w.state.progress["s"].pair_ratings is None
    with pytest.raises(NotNow, match="is not open"):
        await pairs.vote(open_pair["pair_id"], "left", "anna")
    with pytest.raises(NotNow, match="there are no two looks to compare"):
        await pairs.pair("anna")
    publish(w, msgspec.structs.replace(NOW, look_id="l2", step=20), "b2")
    _, fresh = await pairs.pair("anna")
    assert (fresh["baseline_step"], fresh["step"], fresh["ratings"]) == (12, 20, 0)


async def test_two_looks_with_the_same_answers_have_no_pair(w: World) -> None:
    publish(w, stored("b1", 1, {"p": [("yes", 1.0)]}))
    publish(w, stored("l1", 2, {"p": [("yes ", 1.0)]}), "b1")
    with pytest.raises(NotNow, match="both looks have the same answers"):
        await again(w).pair("")


async def test_unreadable_samples_are_named(w: World, pairs: PairRating, tmp_path: Path) -> None:
    (tmp_path / "looks" / "l1.json.gz").write_bytes(b"broken")
    with pytest.raises(NotNow, match="the samples of the look at step 12 cannot be read"):
        await pairs.pair("")
    (tmp_path / "looks" / "b1.json.gz").unlink()
    with pytest.raises(NotNow, match="the samples of the baseline cannot be read"):
        await again(w).pair("")


async def test_a_reward_that_only_compares_has_no_automatic_result(w: World) -> None:
    publish(w, stored("b1", 1, {"p": [("old", None)] * 3}))
    publish(w, stored("l1", 2, {"p": [("new", None)] * 3}), "b1")
    pairs = again(w)
    _, shown = await pairs.pair("")
    message, answer = await pairs.vote(shown["pair_id"], "tie", "")
    assert (answer["automatic"], ratings(w).counts.unscored) == (None, 9)
    assert "automatic" not in message
    assert ratings(w).figures.automatic is None


async def test_a_hostile_answer_stays_as_it_is_in_the_data(w: World, pairs: PairRating) -> None:
    texts = set()
    for _ in range(17):
        _, shown = await pairs.pair("")
        texts |= {shown["left"], shown["right"]}
        message, _ = await pairs.vote(shown["pair_id"], "skip", "")
        assert "\x1b" not in message
    assert HOSTILE in texts
    assert ratings(w).skipped == 17


async def test_two_votes_at_once_on_one_pair_count_once(w: World, pairs: PairRating) -> None:
    _, shown = await pairs.pair("")
    vote = (shown["pair_id"], "left", "")
    first, second = await asyncio.gather(pairs.vote(*vote), pairs.vote(*vote))
    assert first == second
    assert len(ratings(w).pairs) == 1


# --- commands ----------------------------------------------------------------------------------


@pytest.mark.slow
async def test_the_commands_rate_the_samples_of_real_looks(tmp_path: Path) -> None:
    policy = Policy(0.3)
    async with measured(tmp_path, policy) as (w, service):
        dispatcher = CommandDispatcher(w.context, w.groups, evaluation=Evaluation({"s": service}))
        await ended(w, 1)
        with pytest.raises(NotNow, match="there are no two looks to compare"):
            await dispatcher.execute("progress.pair", validate("progress.pair", {}))
        policy.share = 0.9
        service.demand("look")
        await ended(w, 2)
        _, shown = await dispatcher.execute("progress.pair", validate("progress.pair", {}))
        assert "no idea" in (shown["left"], shown["right"])
        vote = validate("progress.vote", {"pair_id": shown["pair_id"], "choice": "left"})
        message, answer = await dispatcher.execute("progress.vote", vote)
        assert answer["result"] in ("before", "now")
        assert "1 rating" in message
        assert len(ratings(w).pairs) == 1
        with pytest.raises(CommandError, match="`choice` cannot be 'both'"):
            validate("progress.vote", {"pair_id": "x", "choice": "both"})
