"""Groups scored again, from a journal and from a file, compared with their earlier rewards."""

import asyncio
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ajet_swarm.common.errors import AjetError, UsageError
from console.cli.rewards.test import parts_table, summary_lines
from console.screens.rewards import text as words
from core.events import Event, GroupOpened, GroupRated, GroupSealed
from core.journal.writer import Journal
from core.runtime.home import Home
from core.settings import Settings
from proxy.dataset_rows import Row
from proxy.dataset_rows import journal_fields as kept_of
from proxy.rewards.model.file import default_model
from proxy.rewards.model.source import ComposedSource
from proxy.rewards.rescore.cases import (
    Case,
    Rescored,
    cases_in,
    group_case,
    newest_cases,
    summary_of,
)
from proxy.rewards.rescore.rescorer import Rescorer, RewardChoice, rescorer, reweighed
from proxy.rewards.source import GroupContext, RewardSource, ScoreSheet
from tests.support.proxy.world import Source
from tests.support.sample import NOW, group_events, stamp
from tests.unit.proxy.rewards.conftest import HookFolder, group


def write_journal(path: Path, *groups: list[Event]) -> Journal:
    journal = Journal(path)
    for number, event in enumerate(itertools.chain(*groups), 1):
        journal.append(stamp(event, number))
    journal.close()
    return journal


def rewards_of(**by_group: list[float]) -> Source:
    """A source with fixed rewards for each group."""
    source = Source()

    async def scorer(ctx: GroupContext) -> list[float]:
        return by_group[ctx.group_id]

    source.scorer = scorer
    return source


async def rescored(source: RewardSource, *cases: Case) -> list[Rescored]:
    return await Rescorer(source, limit=5.0).run(cases)


async def cause(source: RewardSource) -> str:
    """The cause for which a source gives one group no rewards."""
    (result,) = await rescored(source, case("g", [0.1, 0.2]))
    return result.abstention.cause


def case(group_id: str, before: list[float], hand: Sequence[float] = ()) -> Case:
    made = group(*["x"] * len(before or hand))
    context = GroupContext(group_id, "r", "t", f"query {group_id}", [], {}, None, made.answers)
    source = "human" if hand else "auto"
    return Case(context, dict(enumerate(before)), dict(enumerate(hand)), source=source)


def by_vote(number: int, scores: list[float], rewards: list[float]) -> list[Event]:
    """A group whose automatic scores were replaced by the rewards of a vote."""
    events: list[Event] = []
    for event in group_events(number, rewards=scores, at=NOW):
        if isinstance(event, GroupSealed):
            votes = zip(event.rewards, rewards, strict=True)
            sent = tuple(msgspec.structs.replace(one, reward=value) for one, value in votes)
            event = msgspec.structs.replace(event, source="human", rewards=sent)
        events.append(event)
    return events


# --- comparing ----------------------------------------------------------------------------------


async def test_flips_and_dead_groups_gained_and_lost_are_distinguished() -> None:
    cases = [
        case("same", [0.1, 0.9]),
        case("flip", [0.1, 0.9]),
        case("died", [0.1, 0.9]),
        case("lives", [0.5, 0.5]),
        case("hand", [0.9, 0.2], hand=[1.0, 0.0]),
        case("tie", [0.5, 0.5, 0.1]),
    ]
    source = rewards_of(
        same=[0.2, 0.8],
        flip=[0.9, 0.1],
        died=[0.3, 0.3],
        lives=[0.2, 0.4],
        hand=[0.9, 0.2],
        tie=[0.1, 0.5, 0.1],
    )
    results = await rescored(source, *cases)
    result = summary_of(results, "v2")
    assert [result.group_id for result in results] == [one.context.group_id for one in cases]
    assert (result.groups, result.compared, result.flips) == (6, 6, 1)
    assert (result.died, result.revived) == (1, 1)
    assert (result.dead_before, result.dead_after) == (1, 1)
    assert (result.by_hand, result.by_hand_kept) == (1, 1)
    assert result.most[0].group_id == "flip"
    assert (result.most[0].winner_before, result.most[0].winner_after) == (1, 0)
    assert result.most[0].change == pytest.approx(2.0)
    assert "same" not in [one.group_id for one in result.most]
    assert result.mean_before == pytest.approx((1 + 1 + 1 + 1 + 1.1 + 1.1) / 13)


async def test_a_vote_against_unchanged_rewards_is_no_flip() -> None:
    cases = [case("against", [0.1, 0.9], hand=[1.0, 0.0]), case("alone", [], hand=[1.0, 0.0])]
    source = rewards_of(against=[0.1, 0.9], alone=[0.9, 0.1])
    results = await rescored(source, *cases)
    assert "answer 1: 0.1  (by hand 1, automatic 0.1)" in "\n".join(parts_table(results[0]))
    assert "answer 1: 0.9  (by hand 1)" in "\n".join(parts_table(results[1]))
    result = summary_of(results, "v1")
    assert (result.compared, result.flips, result.died, result.revived) == (1, 0, 0, 0)
    assert (result.mean_before, result.mean_after) == (0.5, 0.5)
    assert (result.by_hand, result.by_hand_kept, result.gained, result.most) == (2, 1, 0, ())


async def test_rewards_beyond_the_scale_and_groups_that_had_none_are_counted() -> None:
    none = Case(case("none", [0.0, 0.0]).context)
    cases = [none, case("far", [0.1, 0.9]), case("below", [0.1, 0.9])]
    source = rewards_of(none=[0.2, 1.0], far=[0.2, 1.5], below=[-0.5, 0.0])
    result = summary_of(await rescored(source, *cases), "v2")
    assert (result.gained, result.outside, result.compared) == (1, 2, 2)
    actual = list(summary_lines(result))
    assert "1 group had no reward and now has one" in actual
    assert "rewards leave 0 to 1 in 2 of 3 groups" in actual
    shown = "".join(text for text, _ in words.summary_lines(result)[-1])
    assert shown == "! rewards leave 0 to 1 in 2 groups   1 group had no reward and now would"


async def test_any_source_gives_scores_or_an_abstention() -> None:
    source = Source()
    source.abstains = "no key"
    (result,) = await rescored(source, case("g", [0.1, 0.2]))
    assert (result.abstention.cause, result.abstention.part, result.after) == (
        "no key",
        "judge",
        (),
    )
    assert not result.compared
    source.abstains = ""

    async def breaks(ctx: GroupContext) -> list[float]:
        raise ValueError("odd")

    source.scorer = breaks
    assert await cause(source) == "ValueError: odd"

    async def not_numbers(ctx: GroupContext) -> list[float]:
        return [float("nan"), 1.0]

    source.scorer = not_numbers
    assert "reward 0 is nan" in await cause(source)

    class Short(Source):
        async def score(self, ctx: GroupContext) -> ScoreSheet:
            sheet = await super().score(ctx)
            return ScoreSheet(sheet.scores[1:], None, "v", 0.0)

    assert "1 rewards for 2" in await cause(Short())
    actual = summary_of([result], "v")
    assert (actual.abstained, actual.abstentions) == (1, (("no key", 1),))


async def test_other_tasks_run_between_two_groups() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    work = asyncio.get_running_loop().create_task(other())
    try:
        cases = [case(f"g{number}", [0.1, 0.2]) for number in range(50)]
        await rescored(rewards_of(**{f"g{n}": [0.1, 0.2] for n in range(50)}), *cases)
    finally:
        work.cancel()
    assert turns >= 50


# --- the journal --------------------------------------------------------------------------------


@pytest.mark.parametrize("until", ["DONE", "AWAITING_RATING"])
def test_a_group_rated_by_hand_keeps_its_automatic_rewards_beside_the_vote(
    tmp_path: Path, until: str
) -> None:
    scores, votes = [0.2, 0.8], [1.0, 0.0]
    events = by_vote(1, scores, votes)
    if until != "DONE":
        rated = GroupRated(
            group_id="g0001", server="embedded", rating="best", order=(0,), rewards=tuple(votes)
        )
        events = [*group_events(1, rewards=scores, at=NOW, until=until), rated]
    result = group_case(write_journal(tmp_path / "j.db", events), "g0001")
    assert (result.before, result.hand) == (dict(enumerate(scores)), dict(enumerate(votes)))
    assert result.source == "human"


async def test_groups_from_the_journal_have_the_rewards_that_were_sent(tmp_path: Path) -> None:
    rewards = [0.2, 0.8, 0.4, 0.1]
    groups = [
        group_events(number, rewards=rewards, at=NOW - 500 + number) for number in range(1, 8)
    ]
    journal = write_journal(tmp_path / "j.db", *groups)
    result = newest_cases(journal, 3)
    assert [newest.context.group_id for newest in result] == ["g0005", "g0006", "g0007"]
    one = result[0]
    assert [one.before[index] for index in range(4)] == rewards
    assert one.source == "auto"
    assert one.version
    assert [answer.index for answer in one.context.answers] == [0, 1, 2, 3]
    message = one.context.answers[0].completion["choices"][0]["message"]
    assert message["role"] == "assistant"
    assert one.context.query
    assert group_case(journal, "g0003").context.group_id == "g0003"
    with pytest.raises(AjetError, match="several groups begin"):
        group_case(journal, "g")
    with pytest.raises(AjetError, match="no group begins with `x%`"):
        group_case(journal, "x%")  # no pattern of the data base


def opened(reference: str | None, **fields: Any) -> list[Event]:
    """A stored group of a row."""
    group = group_events(1, rewards=[0.1, 0.9], at=NOW, row_id="row 7")
    row = Row(row_id="row 7", query="q", task_id="t7", reference=reference, **fields)
    return [
        msgspec.structs.replace(one, **kept_of(row)) if isinstance(one, GroupOpened) else one
        for one in group
    ]


def test_a_stored_group_has_the_reference_and_metadata_of_its_row(tmp_path: Path) -> None:
    journal = write_journal(tmp_path / "j.db", opened("42", metadata={"level": 3, "of": ["a"]}))
    result = group_case(journal, "g0001")
    assert result.context.reference == "42"
    assert result.context.metadata["level"] == 3
    assert result.context.metadata["of"] == ["a"]
    assert result.context.metadata["dataset_task_id"] == "t7"
    assert result.note == ""


async def test_row_data_missing_from_the_journal_is_noted(tmp_path: Path) -> None:
    large = opened("x" * (65 << 10), metadata={"text": "y" * (17 << 10)})
    result = group_case(write_journal(tmp_path / "large.db", large), "g0001")
    assert result.context.reference is None
    assert "text" not in result.context.metadata
    assert (
        result.note == "too large for the journal and left out: reference and metadata of its row"
    )
    summary = summary_of(await rescored(rewards_of(g0001=[0.3, 0.4]), result), "v")
    text = f"differs from the recorded group 1: {result.note}"
    assert any(text in line for line in summary_lines(summary))
    plain = group_events(1, rewards=[0.1, 0.9], at=NOW)
    assert group_case(write_journal(tmp_path / "plain.db", plain), "g0001").note == ""


async def test_unchanged_rewards_give_the_same_scores(tmp_path: Path) -> None:
    """The same rewards score it again without a change."""
    texts = group("Paris is the capital of France.", "I do not know.", "Paris, of course.")
    source = ComposedSource()
    sheet = await source.score(texts)
    before = {score.index: score.reward for score in sheet.scores}
    (result,) = await rescored(source, Case(texts, before))
    assert result.rewards == before
    actual = summary_of([result], "")
    assert (actual.flips, actual.died, actual.revived, actual.most) == (0, 0, 0, ())


# --- a file -------------------------------------------------------------------------------------


def written(path: Path, *rows: Any) -> Path:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_each_line_of_a_file_is_a_group(tmp_path: Path) -> None:
    file = written(
        tmp_path / "f.jsonl",
        {"query": "q", "answers": ["a", {"content": "b", "finish_reason": "length"}]},
        "",
        {
            "messages": [{"role": "user", "content": "hi"}],
            "answers": ["a"],
            "reference": 42,
            "rewards": [0.5],
            "id": "mine",
        },
    )
    (one, two), bad = cases_in(file)
    assert not bad
    assert one.context.group_id == "f.jsonl:1"
    assert [answer.message["content"] for answer in one.context.answers] == ["a", "b"]
    assert one.context.answers[1].finish_reason == "length"
    assert one.before == {}
    assert (two.context.query, two.context.reference) == ("hi", "42")
    assert (two.context.group_id, two.before) == ("mine", {0: 0.5})


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("not json", "not JSON"),
        ("[1]", "Expected `object`"),
        ({"querry": "q", "answers": ["a"]}, "missing required field `query`"),
        ({"query": "q", "answer": "a"}, "missing required field `answers`"),
        ({"query": "q", "answers": []}, "answers"),
        ({"query": "q", "answers": [3]}, "Expected `str | object`"),
        ({"query": "q", "answers": ["a"], "rewards": [1, 2]}, "2 rewards for 1 answers"),
        ({"query": "q", "answers": ["a"], "rewards": ["x"]}, "f.jsonl:2: rewards"),
    ],
)
def test_an_invalid_line_is_reported_and_skipped(row: Any, words: str, tmp_path: Path) -> None:
    good = {"query": "q", "answers": ["a"]}
    file = written(tmp_path / "f.jsonl", good, row, good)
    cases, bad = cases_in(file)
    assert len(cases) == 2
    assert len(bad) == 1
    assert words in str(bad[0])
    assert f"{file}:2" in str(bad[0])
    with pytest.raises(UsageError, match=r"f\.jsonl:1"):
        cases_in(written(file, row))


def test_a_missing_or_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        cases_in(tmp_path / "none.jsonl")
    with pytest.raises(UsageError, match="the file is empty"):
        cases_in(written(tmp_path / "f.jsonl"))


# --- what scores --------------------------------------------------------------------------------


def test_other_weights_give_another_model() -> None:
    model = reweighed(default_model(), {"length": 0.9, "reference": 0.5})
    length, reference = model.named("length"), model.named("reference")
    assert (length.weight, reference.share) == (0.9, 0.5)
    with pytest.raises(UsageError, match="no part `lenth`"):
        reweighed(default_model(), {"lenth": 1})
    with pytest.raises(UsageError, match="not between 0 and 1"):
        reweighed(default_model(), {"reference": 2})


@pytest.mark.slow
async def test_a_separate_source_is_prepared_and_closed(tmp_path: Path, hooks: HookFolder) -> None:
    home, settings = Home.open(tmp_path / "home"), Settings()
    async with rescorer(home, settings, RewardChoice()) as one:
        plain = one.version
    async with rescorer(home, settings, RewardChoice(weights={"length": 0.9})) as one:
        assert one.version not in ("", plain)
    hooks.reward("def on_compute_relative_reward(results, answers): return [1.0, 2.0]")
    async with rescorer(home, settings, RewardChoice(hooks=str(hooks.path))) as one:
        (result,) = await one.run([Case(group("a", "b"))])
        assert result.rewards == {0: 1.0, 1: 2.0}
    hooks.reward("def on_compute_relative_reward(results, answers: return")
    with pytest.raises(AjetError, match=r"SyntaxError") as broken:
        async with rescorer(home, settings, RewardChoice(hooks=str(hooks.path))):
            raise AssertionError("it must not be ready")
    assert broken.value.where.endswith("on_compute_relative_reward.py:1")
    file = tmp_path / "r.yaml"
    file.write_text("parts:\n  lenght: {}\n")
    with pytest.raises(AjetError, match="lenght") as wrong:
        async with rescorer(home, settings, RewardChoice(file=str(file))):
            raise AssertionError("it must not be ready")
    assert wrong.value.where == f"{file}:2"
    with pytest.raises(UsageError, match="there are no weights"):
        async with rescorer(
            home, settings, RewardChoice(hooks=str(hooks.path), weights={"a": 1.0})
        ):
            raise AssertionError("it must not be ready")
