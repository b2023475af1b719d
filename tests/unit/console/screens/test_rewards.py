"""The rewards in figures and words, and their last fault."""

from pathlib import Path

import msgspec
import pytest

from console.cli import reports as command
from console.cli.options import Args
from console.screens.rewards.model import (
    Digests,
    RewardFigures,
    by_step,
    correlated,
    digest,
    figures,
    last_fault,
    place_of,
    place_to_open,
    reward_of,
    spread_of,
)
from console.screens.rewards.text import (
    decided_text,
    deciding,
    fault_lines,
    head_lines,
    part_words,
    thinned,
    value_lines,
    weight_text,
)
from core.events import Event, GroupClosed, Part, RewardsChanged, ScoringAbstained
from core.events.causes import NotScored
from core.state import State, reduce
from tests.support.checks import missing, present
from tests.support.groups import text_of
from tests.support.proxy.rewards import STARTED, TRACE, broken, loaded, scored, state_with, two
from tests.support.sample import NOW, group_events, state_of


def figures_in(state: State) -> RewardFigures:
    return figures(Digests().last(state, 10))


def test_gates_multiply_and_weights_add() -> None:
    parts = two(0.8, 0.4, gate=0.5)
    assert reward_of(parts) == pytest.approx(0.5 * (0.4 + 0.2))
    assert reward_of(parts, without="open") == pytest.approx(0.6)
    assert reward_of(parts, without="left") == pytest.approx(0.1)
    assert reward_of(parts, {"left": 1.0, "right": 0.0}) == pytest.approx(0.4)


ALONE = [[Part("hook", 0.2)], [Part("hook", 0.8)]]


@pytest.mark.parametrize(
    ("answers", "decided", "dead"),
    [
        ([two(0.9, 0.1), two(0.2, 0.3)], ["left"], ""),  # without it another would have won
        ([two(0.9, 0.9, gate=0.1), two(0.5, 0.5)], ["open"], ""),  # it closes for the best answer
        (ALONE, ["hook"], ""),
        ([two(0.5, 0.5), two(0.5, 0.5)], [], "equal rewards"),
    ],
)
def test_a_part_decides_whose_absence_would_change_the_winner(
    answers: list[list[Part]], decided: list[str], dead: str
) -> None:
    result = digest(state_with(scored(1, answers)).groups["g0001"])
    assert [name for name, part in result.parts.items() if part.decided] == decided
    assert (result.distinct, result.dead) == (not dead, dead)


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
    assert (left.spread.mean, left.spread.std) == (pytest.approx(0.55), pytest.approx(0.35))
    assert (left.spread.low, left.spread.high) == (0.2, 0.9)
    assert (left.decided, left.decidable) == (10, 10)
    assert decided_text(left) == "100%"
    assert (named["open"].kind, named["open"].closed) == ("gate", 10)
    assert len(left.trace) == 10
    points = by_step(Digests().last(state, 10), "left")
    assert ([point.step for point in points], points[0].mean) == ([0, 1, 2, 3], pytest.approx(0.55))


def test_a_step_repeated_by_a_later_engine_run_has_only_its_groups() -> None:
    groups = [
        scored(number, [two(value, value), two(value, value)], step=step)
        for number, (value, step) in enumerate([(0.1, 1), (0.3, 2), (0.9, 2)], 1)
    ]
    state = state_with(*groups)
    list(state.groups.values())[-1].engine_run = 1
    points = by_step(Digests().last(state, 10), "left")
    assert [(point.step, point.mean, point.engine_run) for point in points] == [
        (1, pytest.approx(0.1), 0),
        (2, pytest.approx(0.9), 1),
    ]


def test_a_part_of_weight_zero_is_only_noted() -> None:
    pair = [[Part("hook", 0.2), Part("mood", 3.0, 0.0)], [Part("hook", 0.8), Part("mood", 1.0, 0)]]
    part = figures_in(state_with(scored(1, pair))).parts[1]
    assert (part.name, part.kind) == ("mood", "noted")
    assert decided_text(part) == weight_text(part) == "–"
    assert "weight 0" in part_words(part, 80)


def test_a_weight_that_differs_between_groups_is_shown_from_to() -> None:
    state = state_with(
        scored(1, [two(0.9, 0.1, weight=0.12), two(0.2, 0.3, weight=0.12)]),
        scored(2, [two(0.9, 0.1, weight=0.3), two(0.2, 0.3, weight=0.3)]),
    )
    part = figures_in(state).parts[1]
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
    result = figures_in(state)
    assert (result.groups, result.scored, result.settled) == (3, 2, 3)
    assert (result.dead, result.sent) == (1, 2)
    assert result.causes == (("equal rewards", 1),)
    assert result.losses == (("aborted: rated skip", 1),)
    assert result.abstentions == (("hook: ZeroDivisionError", 1),)
    text = text_of(head_lines(state, result, NOW, 78, True))
    assert not missing(
        text,
        "○ dead 50% (1 of 2)",
        "1 equal rewards",
        "× lost 33% (1 of 3)",
        "1 aborted: rated skip",
        "not scored 33% (1 of 3)",
    )
    assert "hook: ZeroDivisionError" not in text  # the fault below names it


def test_unscored_groups_are_counted_apart_from_dead_ones() -> None:
    why = "unscored: no console is attached; hook: ZeroDivisionError"
    state = state_with(
        scored(1, [two(0.5, 0.5), two(0.5, 0.5)]),
        [
            *group_events(3, until="GENERATING", at=NOW - 40),
            ScoringAbstained(group_id="g0003", part="hook", cause="ZeroDivisionError", at=NOW - 30),
            GroupClosed(
                group_id="g0003", phase="ABORTED", cause=why, cause_kind=NotScored.kind, at=NOW - 20
            ),
        ],
    )
    result = figures_in(state)
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


def test_length_is_compared_within_groups() -> None:
    up = [[(10, 0.1), (20, 0.2)], [(100, 0.0), (110, 0.1)]]
    value, count = correlated(up)
    assert (value, count) == (pytest.approx(1.0), 4)
    down, _ = correlated([[(10, 0.2), (20, 0.1)], [(100, 0.9), (110, 0.8)]])
    assert down == pytest.approx(-1.0)
    assert correlated([[(10, 0.2), (10, 0.1), (10, 0.3)]]) == (None, 3)
    assert correlated([[(10, 0.2)]]) == (None, 0)


def test_length_is_in_tokens_if_known() -> None:
    state = state_with(scored(1, [two(0.9, 0.1), two(0.2, 0.3), two(0.1, 0.1)]))
    result = figures_in(state)
    assert (result.unit, result.paired) == ("tokens", 3)
    for candidate in state.groups["g0001"].candidates:
        candidate.tokens = 0
    assert figures_in(state).unit == "characters"


def test_quartiles() -> None:
    result = spread_of([4.0, 1.0, 2.0, 3.0, 5.0])
    assert (result.low, result.first, result.median, result.third, result.high) == (1, 2, 3, 4, 5)
    assert (result.std, spread_of([0.5]).third) == (pytest.approx(2**0.5), 0.5)


def test_thinning_keeps_the_mean_and_fits_the_width() -> None:
    values = [float(number) for number in range(97)]
    result = thinned(values, 10)
    assert len(result) == 10
    assert result == sorted(result)
    assert thinned([1.0, 2.0], 10) == [1.0, 2.0]


def test_one_sentence_says_which_part_decides() -> None:
    state = state_with(scored(1, [two(0.9, 0.1), two(0.2, 0.3)]))
    assert deciding(figures_in(state)) == "left decides 100% of winners"
    assert deciding(figures([])) == ""


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
        assert [part["name"] for part in data["figures"]["parts"]] == ["open", "left", "right"]
    else:
        assert not missing(
            output, "newest save broken", "ZeroDivisionError: division by zero", "left"
        )


def test_the_start_of_the_active_version_is_shown() -> None:
    first = loaded("v1", NOW - 100)
    for events, since in (
        ((first, broken(NOW - 50), loaded("v1", NOW - 40)), NOW - 100),
        ((first, loaded("v2", NOW - 40)), NOW - 40),
        ((broken(NOW - 100, version=""),), 0.0),
    ):
        assert state_of(STARTED, *events).rewards.since == since


def test_a_broken_save_is_shown_until_it_is_fixed() -> None:
    state = state_of(STARTED, loaded("v1", NOW - 100), broken(NOW - 50))
    fault = present(last_fault(state))
    assert (fault.file, fault.line, fault.resolution) == ("/h/hook.py", 12, "")
    assert place_to_open(state) == ("/h/hook.py", 12)
    text = text_of(fault_lines(fault, NOW, 78, False))
    assert not missing(text, "did not load", "hook.py:12", "traceback, 6 lines")
    assert "division by zero" not in text
    whole = text_of(fault_lines(fault, NOW, 78, True))
    assert "ZeroDivisionError: division by zero" in whole
    state = state_of(STARTED, loaded("v1", NOW - 100), broken(NOW - 50), loaded("v2", NOW - 9))
    assert present(last_fault(state)).resolution.startswith("fixed at")
    again = state_of(STARTED, broken(NOW - 50), broken(NOW - 5))
    assert present(again.rewards.fault).at == NOW - 50


def test_the_newest_fault_is_chosen_by_time_not_by_group() -> None:
    def failing(number: int, cause: str, at: float) -> list[Event]:
        abstained = ScoringAbstained(group_id=f"g{number:04}", part="hook", cause=cause, at=at)
        return [*group_events(number, until="GENERATING"), abstained]

    state = state_with(failing(1, "late", NOW - 5), failing(2, "early", NOW - 60))
    assert present(last_fault(state)).cause == "hook: late"


def test_a_failed_group_is_a_fault_too() -> None:
    failing = [
        *group_events(1, until="GENERATING"),
        ScoringAbstained(group_id="g0001", part="hook", cause="no", traceback=TRACE, at=NOW - 600),
    ]
    state = state_with(failing)
    fault = present(last_fault(state))
    assert (fault.group_id, fault.file, fault.line) == ("g0001", "/h/hook.py", 12)
    assert not fault.resolution
    assert "waits for you" in fault.what
    state = state_with(failing, scored(2, [two(0.9, 0.1), two(0.2, 0.3)]))
    assert not present(last_fault(state)).resolution
    state.groups["g0001"].phase = "ABORTED"
    later = present(last_fault(state))
    assert later.resolution == "1 group scored since"
    assert "waits" not in later.what


def test_among_groups_that_failed_together_one_with_a_place_is_preferred() -> None:
    def failed(number: int, at: float, line: int) -> list[Event]:
        abstained = ScoringAbstained(
            group_id=f"g000{number}", part="hook", cause=f"no {number}", line=line, at=at,
            file="/h/hook.py" if line else "",
        )  # fmt: skip
        return [*group_events(number, until="GENERATING"), abstained]

    for at, expected in ((NOW - 31, ("g0001", 12)), (NOW - 60, ("g0002", 0))):
        fault = present(last_fault(state_with(failed(1, at, 12), failed(2, NOW - 30, 0))))
        assert (fault.group_id, fault.line) == expected


def test_no_fault_and_no_place() -> None:
    state = state_of(RewardsChanged(source="builtin", ok=True, version="v"))
    assert last_fault(state) is None
    assert (fault_lines(None, NOW, 78, False), place_to_open(state)) == ([], ("", 0))
    assert place_to_open(state_of(loaded("v", NOW))) == ("/h/on_compute_relative_reward.py", 1)
    assert place_of("nothing") == ("", 0)


def test_the_values_of_a_part_stand_beside_rewards_and_reasons() -> None:
    state = state_with(scored(1, [two(0.9, 0.1), two(0.2, 0.3)]))
    known = state.groups["g0001"]
    shown = [text_of(value_lines(digest(known), name, 78)) for name in ("left", "right")]
    assert not missing(shown[0], "◆ decided it", "0.90   reward  0.50 ▲ left 0.9")
    assert ["“answer 0 to: Why is the sky blue?”" in text for text in shown] == [False, True]
