"""The last fault of the rewards: what it was, where, whether it was mended."""

from console.screens.rewards.model import last_fault, place_of, place_to_open
from console.screens.rewards.text import fault_lines
from console.widgets.editor import place_command
from core.events import Event, RewardsChanged, ScoringAbstained
from tests.support.checks import missing, present
from tests.support.groups import text_of
from tests.support.proxy.rewards import STARTED, TRACE, broken, loaded, scored, state_with, two
from tests.support.sample import NOW, group_events, state_of


def test_the_start_of_the_active_version_is_shown() -> None:
    state = state_of(STARTED, loaded("v1", NOW - 100), broken(NOW - 50), loaded("v1", NOW - 40))
    assert state.rewards.since == NOW - 100
    state = state_of(STARTED, loaded("v1", NOW - 100), loaded("v2", NOW - 40))
    assert state.rewards.since == NOW - 40
    state = state_of(STARTED, broken(NOW - 100, version=""))
    assert state.rewards.since == 0.0


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
    fault = present(last_fault(state))
    assert fault.resolution.startswith("fixed at")
    again = state_of(STARTED, broken(NOW - 50), broken(NOW - 5))
    assert again.rewards.fault is not None
    assert again.rewards.fault.at == NOW - 50


def test_the_newest_fault_is_chosen_by_time_not_by_group() -> None:
    def failing(number: int, cause: str, at: float) -> list[Event]:
        abstained = ScoringAbstained(group_id=f"g{number:04}", part="hook", cause=cause, at=at)
        return [*group_events(number, until="GENERATING"), abstained]

    state = state_with(failing(1, "late", NOW - 5), failing(2, "early", NOW - 60))
    fault = present(last_fault(state))
    assert fault.cause == "hook: late"


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
    later = present(last_fault(state))
    assert not later.resolution
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

    state = state_with(failed(1, NOW - 31, 12), failed(2, NOW - 30, 0))
    fault = present(last_fault(state))
    assert (fault.group_id, fault.line) == ("g0001", 12)
    state = state_with(failed(1, NOW - 60, 12), failed(2, NOW - 30, 0))
    fault = present(last_fault(state))
    assert (fault.group_id, fault.line) == ("g0002", 0)


def test_no_fault_and_no_place() -> None:
    state = state_of(RewardsChanged(source="builtin", ok=True, version="v"))
    assert last_fault(state) is None
    assert (fault_lines(None, NOW, 78, False), place_to_open(state)) == ([], ("", 0))
    assert place_to_open(state_of(loaded("v", NOW))) == ("/h/on_compute_relative_reward.py", 1)
    assert place_of("nothing") == ("", 0)


def test_each_editor_gets_the_line_in_its_own_syntax() -> None:
    assert place_command(["vi"], "/a", 3) == ["vi", "+3", "/a"]
    assert place_command(["/usr/bin/code", "-w"], "/a", 3)[-2:] == ["--goto", "/a:3"]
    assert place_command(["hx"], "/a", 3) == ["hx", "/a:3"]
