"""The rewards in figures and words, without a screen."""

from pathlib import Path

import msgspec
import pytest

from console.cli.options import Args
from console.cli.rewards import report as command
from console.screens.rewards.model import (
    Digests,
    PartRow,
    by_step,
    correlated,
    digest,
    figures,
    first_varied,
    last_fault,
    part_rows,
    reward_of,
    spread_of,
)
from console.screens.rewards.text import (
    decided_text,
    deciding,
    fault_lines,
    head_lines,
    part_head,
    part_words,
    row_line,
    thinned,
    trace_text,
    value_lines,
    weight_text,
)
from console.text.lines import Line, line_width
from core.events import GroupClosed, Part, RewardPart, ScoringAbstained
from core.events.causes import NotScored
from core.state import State, reduce
from tests.support.console import HOSTILE, NOW, group_events, state_of
from tests.support.groups import group, text_of
from tests.support.proxy.rewards import broken, loaded, scored, state_with, two

# --- the formula -----------------------------------------------------------------------------


def test_gates_multiply_and_weights_add() -> None:
    parts = two(0.8, 0.4, gate=0.5)
    assert reward_of(parts) == pytest.approx(0.5 * (0.4 + 0.2))
    assert reward_of(parts, without="open") == pytest.approx(0.6)
    assert reward_of(parts, without="left") == pytest.approx(0.1)
    assert reward_of(parts, {"left": 1.0, "right": 0.0}) == pytest.approx(0.4)


def test_a_part_decided_when_another_would_have_won_without_it() -> None:
    state = state_with(scored(1, [two(0.9, 0.1), two(0.2, 0.3)]))
    result = digest(state.groups["g0001"])
    assert result.distinct
    assert result.parts["left"].decided
    assert not result.parts["right"].decided
    assert not result.parts["open"].decided


def test_a_gate_that_closes_for_the_best_answer_decides() -> None:
    state = state_with(scored(1, [two(0.9, 0.9, gate=0.1), two(0.5, 0.5)]))
    result = digest(state.groups["g0001"])
    assert result.parts["open"].decided
    assert not result.parts["left"].decided


def test_the_only_part_decides_and_equal_rewards_decide_nothing() -> None:
    alone = state_with(scored(1, [[Part("hook", 0.2)], [Part("hook", 0.8)]]))
    assert digest(alone.groups["g0001"]).parts["hook"].decided
    equal = state_with(scored(1, [two(0.5, 0.5), two(0.5, 0.5)]))
    result = digest(equal.groups["g0001"])
    assert not result.distinct
    assert not any(part.decided for part in result.parts.values())
    assert result.dead == "equal rewards"


# --- many groups -----------------------------------------------------------------------------


def test_figures_of_parts_over_the_last_groups() -> None:
    groups = [
        scored(number, [two(0.9, 0.1), two(0.2, 0.3, gate=0.5)], step=number // 4)
        for number in range(1, 13)
    ]
    state = state_with(*groups)
    result = figures(Digests().last(state, 10), "v1")
    assert (result.groups, result.scored, result.present, result.dead) == (10, 10, 10, 0)
    named = {part.name: part for part in result.parts}
    assert list(named) == ["open", "left", "right"]
    left = named["left"]
    assert (left.kind, left.weight, left.groups) == ("weighted", 0.5, 10)
    assert left.spread.mean == pytest.approx(0.55)
    assert left.spread.std == pytest.approx(0.35)
    assert (left.spread.low, left.spread.high) == (0.2, 0.9)
    assert (left.decided, left.decidable) == (10, 10)
    assert decided_text(left) == "100%"
    assert (named["open"].kind, named["open"].closed) == ("gate", 10)
    assert len(left.trace) == 10
    points = by_step(Digests().last(state, 10), "left")
    assert [one.step for one in points] == [0, 1, 2, 3]
    assert points[0].mean == pytest.approx(0.55)


def test_a_step_repeated_by_a_later_engine_run_has_only_its_groups() -> None:
    groups = [
        scored(number, [two(value, value), two(value, value)], step=step)
        for number, (value, step) in enumerate([(0.1, 1), (0.3, 2), (0.9, 2)], 1)
    ]
    state = state_with(*groups)
    list(state.groups.values())[-1].engine_run = 1
    points = by_step(Digests().last(state, 10), "left")
    assert [(one.step, one.mean, one.engine_run) for one in points] == [
        (1, pytest.approx(0.1), 0),
        (2, pytest.approx(0.9), 1),
    ]


def test_a_part_of_weight_zero_is_only_noted() -> None:
    pair = [[Part("hook", 0.2), Part("mood", 3.0, 0.0)], [Part("hook", 0.8), Part("mood", 1.0, 0)]]
    part = figures(Digests().last(state_with(scored(1, pair)), 10)).parts[1]
    assert (part.name, part.kind, decided_text(part), weight_text(part)) == (
        "mood",
        "noted",
        "–",
        "–",
    )
    assert "weight 0" in part_words(part, 80)


def test_a_weight_that_differs_between_groups_is_shown_from_to() -> None:
    state = state_with(
        scored(1, [two(0.9, 0.1, weight=0.12), two(0.2, 0.3, weight=0.12)]),
        scored(2, [two(0.9, 0.1, weight=0.3), two(0.2, 0.3, weight=0.3)]),
    )
    part = figures(Digests().last(state, 10)).parts[1]
    assert weight_text(part) == ".12-.30"


def test_dead_groups_and_abstentions_with_their_causes() -> None:
    waits = group_events(3, until="GENERATING", at=NOW - 40)
    state = state_with(
        scored(1, [two(0.5, 0.5), two(0.5, 0.5)]),
        scored(2, [two(0.9, 0.1), two(0.2, 0.3)]),
        [
            *waits,
            ScoringAbstained(group_id="g0003", part="hook", cause="ZeroDivisionError", at=NOW - 30),
            GroupClosed(group_id="g0003", phase="ABORTED", cause="rated skip", at=NOW - 20),
        ],
    )
    result = figures(Digests().last(state, 10))
    assert (result.groups, result.scored, result.settled) == (3, 2, 3)
    assert (result.dead, result.sent) == (1, 2)
    assert result.causes == (("equal rewards", 1),)
    assert result.losses == (("aborted: rated skip", 1),)
    assert result.abstentions == (("hook: ZeroDivisionError", 1),)
    text = text_of(head_lines(state, result, NOW, 78, True))
    assert "○ dead 50% (1 of 2)" in text
    assert "1 equal rewards" in text
    assert "× lost 33% (1 of 3)" in text
    assert "1 aborted: rated skip" in text
    assert "not scored 33% (1 of 3)" in text
    assert "hook: ZeroDivisionError" not in text  # the fault below names it


def test_unscored_groups_are_counted_apart_from_dead_ones() -> None:
    why = "unscored: no console is attached; hook: ZeroDivisionError"
    state = state_with(
        scored(1, [two(0.5, 0.5), two(0.5, 0.5)]),
        [
            *group_events(3, until="GENERATING", at=NOW - 40),
            ScoringAbstained(group_id="g0003", part="hook", cause="ZeroDivisionError", at=NOW - 30),
            GroupClosed(
                group_id="g0003",
                phase="ABORTED",
                cause=why,
                cause_kind=NotScored.kind,
                at=NOW - 20,
            ),
        ],
    )
    result = figures(Digests().last(state, 10))
    assert (result.dead, dict(result.causes)) == (1, {"equal rewards": 1})
    assert result.abstentions == (("hook: ZeroDivisionError", 1),)
    state.rewards.ok, state.rewards.version = False, ""
    assert "no console is attached, groups are aborted" in text_of(
        head_lines(state, result, NOW, 120, True)
    )


def test_groups_that_are_not_trained_or_not_scored_yet_count_for_nothing() -> None:
    state = state_with(group_events(1, until="GENERATING"))
    assert Digests().last(state, 10) == []
    result = figures([])
    text = text_of(head_lines(state, result, NOW, 78, True))
    assert "No group is scored yet" in text
    assert "0%" not in text
    state = state_with(scored(1, [two(0.9, 0.1), two(0.2, 0.3)]))
    state.groups["g0001"].episode_type = "eval"
    assert Digests().last(state, 10) == []


def test_a_digest_is_rebuilt_only_when_its_group_changes() -> None:
    state = state_with(scored(1, [two(0.9, 0.1), two(0.2, 0.3)], until="SCORING"))
    digests = Digests()
    first = digests.last(state, 10)[0]
    assert digests.last(state, 10)[0] is first
    assert not first.settled
    group = state.groups["g0001"]
    group.phase, group.sealed_at, group.source = "SUBMITTING", NOW, "human"
    again = digests.last(state, 10)[0]
    assert again is not first
    assert again.settled
    assert again.by_hand


# --- arithmetic ------------------------------------------------------------------------------


def test_length_is_compared_within_groups() -> None:
    up = [[(10, 0.1), (20, 0.2)], [(100, 0.0), (110, 0.1)]]
    value, count = correlated(up)
    assert value == pytest.approx(1.0)
    assert count == 4
    down, _ = correlated([[(10, 0.2), (20, 0.1)], [(100, 0.9), (110, 0.8)]])
    assert down == pytest.approx(-1.0)
    assert correlated([[(10, 0.2), (10, 0.1), (10, 0.3)]]) == (None, 3)
    assert correlated([[(10, 0.2)]]) == (None, 0)


def test_length_is_in_tokens_if_known() -> None:
    state = state_with(scored(1, [two(0.9, 0.1), two(0.2, 0.3), two(0.1, 0.1)]))
    result = figures(Digests().last(state, 10))
    assert (result.unit, result.paired) == ("tokens", 3)
    for one in state.groups["g0001"].candidates:
        one.tokens = 0
    assert figures(Digests().last(state, 10)).unit == "characters"


def test_quartiles() -> None:
    result = spread_of([4.0, 1.0, 2.0, 3.0, 5.0])
    assert (result.low, result.first, result.median, result.third, result.high) == (1, 2, 3, 4, 5)
    assert result.std == pytest.approx(2**0.5)
    assert spread_of([0.5]).third == 0.5


def test_thinning_keeps_the_mean_and_fits_the_width() -> None:
    values = [float(one) for one in range(97)]
    result = thinned(values, 10)
    assert len(result) == 10
    assert result == sorted(result)
    assert thinned([1.0, 2.0], 10) == [1.0, 2.0]


# --- what fits -------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [58, 78, 118, 158])
def test_everything_fits_its_width(width: int) -> None:
    pair = [
        [Part(HOSTILE, -12345.678, reason=HOSTILE), Part("b", 1e9, gate=True)],
        [Part(HOSTILE, 0.5, 0.25, reason=HOSTILE * 9), Part("b", 0.0, gate=True)],
    ]
    state = state_with(scored(1, pair))
    state.groups["g0001"].query = HOSTILE
    state.rewards.source, state.rewards.version = f"/{HOSTILE * 9}", HOSTILE
    state.rewards.since = NOW - 60
    result = figures(Digests().last(state, 10), "v1")
    lines = [
        *head_lines(state, result, NOW, width, True),
        part_head(width),
        *(row_line(PartRow(part.name, None, part), width) for part in result.parts),
        *(line for name in (HOSTILE, "b") for line in values_of(state, "g0001", name, width)),
        *fault_lines(last_fault(state_of(broken(NOW, HOSTILE * 9))), NOW, width, True),
    ]
    for line in lines:
        assert line_width(line) <= width, text_of([line])
        assert "\x1b" not in text_of([line])
        assert "\u202e" not in text_of([line])
    assert all(len(trace_text(part, 9)) <= 9 for part in result.parts)


def values_of(state: State, group_id: str, name: str, width: int = 78) -> list[Line]:
    known = state.groups[group_id]
    return value_lines(known, digest(known), name, width)


def test_the_values_of_a_part_stand_beside_rewards_and_reasons() -> None:
    state = state_with(scored(1, [two(0.9, 0.1), two(0.2, 0.3)]))
    text = text_of(values_of(state, "g0001", "left"))
    assert "◆ decided it" in text
    assert "0.90   reward  0.50 ▲ left 0.9" in text
    assert "“answer 0 to: Why is the sky blue?”" not in text
    without = text_of(values_of(state, "g0001", "right"))
    assert "“answer 0 to: Why is the sky blue?”" in without


def test_one_sentence_says_which_part_decides() -> None:
    state = state_with(scored(1, [two(0.9, 0.1), two(0.2, 0.3)]))
    assert deciding(figures(Digests().last(state, 10))) == "left decides 100% of winners"
    assert deciding(figures([])) == ""


def test_rows_keep_the_order_of_the_model() -> None:
    model = [RewardPart(name=name, kind="x") for name in ("reference", "length", "code")]
    first, second = group(1), group(2)
    for answer in first.candidates:
        answer.parts = (Part("length", answer.index / 4, 0.4), Part("code", 1.0, 0.4))
    for answer in second.candidates:
        values = Part("length", 0.5, 0.4), Part("reference", 1.0, 0.8), Part("old", 0.0, 0.8)
        answer.parts = values
    only_first = part_rows(model, figures([digest(first)]).parts)
    assert [row.name for row in only_first] == ["reference", "length", "code"]
    assert [row.figures is None for row in only_first] == [True, False, False]
    both = part_rows(model, figures([digest(first), digest(second)]).parts)
    assert [row.name for row in both] == ["reference", "length", "code", "old"]
    assert first_varied(both) == "length"
    assert first_varied(both[:1]) == ""


@pytest.mark.parametrize("json", [False, True])
def test_the_same_on_the_command_line(
    json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    state = state_with(scored(1, [two(0.9, 0.1), two(0.2, 0.3)]))
    for event in (loaded("v1", NOW - 100), broken(NOW - 50)):
        reduce(state, event)

    async def snapshot(args: Args) -> State:
        return state

    monkeypatch.setattr(command, "snapshot", snapshot)
    args = Args(home=tmp_path, json=json, last=10)
    assert command.rewards(args) == 0
    output = capsys.readouterr().out
    if json:
        data = msgspec.json.decode(output)
        assert (data["version"], data["ok"], data["fault"]["line"]) == ("v1", False, 12)
        assert [one["name"] for one in data["figures"]["parts"]] == ["open", "left", "right"]
    else:
        assert "newest save broken" in output
        assert "ZeroDivisionError: division by zero" in output
        assert "left" in output
