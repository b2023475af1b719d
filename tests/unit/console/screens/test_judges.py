"""The judges of the rewards in words and for programs, and the text when one is in trouble."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from console.cli import reports as command
from console.cli.options import Args
from console.models.alerts import action_for
from console.screens.rewards.judges import figures_of, judge_head, judge_lines, judges_data
from console.screens.rewards.model import figures, last_fault
from console.screens.rewards.text import head_lines
from console.text.lines import line_width
from console.views.events import event_line as event_told
from core.events import AlertCleared, AlertRaised, Event, JudgeSpent, RewardPart, RewardsChanged
from core.settings import Settings
from core.state import State, reduce
from proxy import main
from proxy.rewards.model.file import parse
from proxy.rewards.model.source import ComposedSource
from proxy.rewards.source import Abstention, SourceHealth
from tests.support.alerts import cause_of, todo_of
from tests.support.checks import missing, present
from tests.support.groups import text_of
from tests.support.sample import NOW, state_of

PARTS = (
    RewardPart(name="finished", kind="finished", gate=True),
    RewardPart(name="helpful", kind="judge"),
    RewardPart(name="calm", kind="judge", enabled=False),
)


def spent(judge: str = "helpful", **more: Any) -> JudgeSpent:
    values: dict[str, Any] = {
        "model": "judge-1",
        "mode": "listwise",
        "calls": 45,
        "groups": 40,
        "failures": 6,
        "hits": 10,
        "retries": 3,
        "repairs": 2,
        "prompt_tokens": 30_000,
        "completion_tokens": 1_200,
        "cost": 0.25,
        "priced": True,
        "limit": 1.0,
        "seconds": 90.0,
        "at": NOW - 1,
    }
    return JudgeSpent(judge=judge, **(values | more))


def changed(cause: str = "", part: str = "", version: str = "v1") -> RewardsChanged:
    return RewardsChanged(
        source="/h/rewards.yaml",
        ok=not cause,
        version=version,
        cause=cause,
        part=part,
        parts=PARTS,
        at=NOW - 9,
    )


def text(state: State, width: int = 78) -> str:
    return text_of(judge_lines(state, width))


def test_shares_and_means() -> None:
    result = figures_of(state_of(changed(), spent()).judges["helpful"])
    assert (result["calls_a_group"], result["cached"]) == (
        pytest.approx(45 / 40),
        pytest.approx(10 / 50),
    )
    assert (result["failed"], result["latency"]) == (pytest.approx(6 / 40), pytest.approx(2.0))
    assert result["spent"] == pytest.approx(0.25)
    nothing = figures_of(JudgeSpent(judge="new"))
    assert {nothing["calls_a_group"], nothing["cached"], nothing["failed"], nothing["spent"]} == {
        None
    }


@pytest.mark.parametrize("width", [60, 78, 118, 158])
def test_a_judge_line_shows_all_figures(width: int) -> None:
    state = state_of(changed(), spent(pairs=100, split=40, untold=1))
    result = text(state, width)
    assert not missing(
        result,
        "helpful",
        "45",
        "1.1",
        "31.2k",
        "0.250",
        "20%",
        "15%",
        "2.0s",
        "judge-1 · listwise",
        "limit 1 (25%)",
        "order decided 40% of pairs",
        "retries 3",
        "1 call reported no tokens",
    )
    if width >= 78:
        assert max(map(line_width, (judge_head(width), *judge_lines(state, width)))) <= width


def test_a_missing_price_is_shown_instead_of_zero_cost() -> None:
    state = state_of(changed(), spent(priced=False, cost=0.0, limit=0.0))
    assert "no price" in text(state)
    assert "0.000" not in text(state)
    assert judges_data(state)[0]["cost"] is None
    assert judges_data(state)[0]["limit"] is None


def test_judges_of_the_model_come_first_and_disabled_ones_are_marked() -> None:
    state = state_of(changed(), spent("gone"), spent("calm", trouble="out"), spent())
    assert [one["judge"] for one in judges_data(state)] == ["helpful", "calm", "gone"]
    assert [one["in_use"] for one in judges_data(state)] == [True, False, False]
    result = text(state)
    assert (result.count("removed from the model"), result.count("   off")) == (1, 1)
    assert "✖" not in result
    unasked = spent("gone", calls=0)
    assert "gone" not in text(state_of(changed(), unasked, spent("calm"), spent()))


def test_judge_trouble_is_shown_once() -> None:
    cause = "the judge failed 5 times in a row: 503: " + "overloaded " * 30
    state = state_of(changed(), spent(trouble=cause))
    lines = judge_lines(state, 78)
    assert "✖ the judge failed 5 times" in text_of(lines)
    assert len(lines) == 3
    assert max(map(line_width, lines)) <= 78
    state = state_of(changed(f"{cause}. Wait", "helpful"), spent(trouble=cause))
    assert "✖ see its fault" in text(state)
    assert "failed 5 times" not in text(state)
    fault = present(last_fault(state))
    assert fault.what == "judge helpful in trouble"
    head = text_of(head_lines(state, figures([]), NOW, 118, True))
    assert "! a judge is in trouble" in head
    assert "newest save broken" not in head
    result = present(event_told(changed(cause, "helpful")))
    assert "judge helpful in trouble" in result.text


def test_the_command_line_has_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    state = state_of(changed(), spent())

    async def snapshot(args: object) -> State:
        return state

    monkeypatch.setattr(command, "snapshot", snapshot)
    args = Args(home=tmp_path, last=20, json=True)
    assert command.rewards(args) == 0
    (judge,) = msgspec.json.decode(capsys.readouterr().out)["judges"]
    assert (judge["judge"], judge["calls"], judge["tokens"], judge["cost"]) == (
        "helpful",
        45,
        31_200,
        0.25,
    )
    assert judge["figures"]["cached"] == 0.2
    args.json = False
    assert command.rewards(args) == 0
    assert "/group" in capsys.readouterr().out


def test_an_alert_names_the_judge_and_its_screen() -> None:
    state = State()
    events: list[Event] = []

    def publish(event: Event) -> None:
        events.append(event)
        reduce(state, event)

    model = parse("parts:\n  helpful: {kind: judge, url: 'http://127.0.0.1:9'}\n", None)
    source = ComposedSource(model=model)
    bus = SimpleNamespace(publish=publish, state=state)
    proxy = cast(Any, SimpleNamespace(bus=bus, rewards=source, settings=Settings()))
    trouble = SourceHealth(False, Abstention("helpful", "no key. Set it"), "v1")
    main._rewards_changed(proxy, trouble)
    (alert,) = state.alerts.values()
    assert alert.key == "judge"
    assert "the judge helpful is in trouble: no key" in cause_of(alert)
    action = present(action_for(alert))
    assert (action.screen.name, action.effect) == ("rewards", "its counts; e opens the file")
    assert "`rewards enable helpful off`" in todo_of(alert)
    main._rewards_changed(proxy, SourceHealth(False, Abstention("model", "bad"), "v1"))
    assert list(state.alerts) == ["rewards"]
    main._rewards_changed(proxy, SourceHealth(True, None, "v1"))
    assert not state.alerts
    unproven = SourceHealth(False, None, "v1", waiting_for="helpful")
    main._rewards_changed(proxy, unproven)
    assert not state.alerts  # the judge is still being checked: there is no fault
    assert state.rewards.waits == "helpful"
    assert "waits for helpful" in text_of(head_lines(state, figures([]), NOW, 118, True))
    result = present(event_told(events[-1]))
    assert (result.text, result.level) == ("the newest rewards wait for helpful", "info")
    away = Abstention("helpful", "cannot be reached")
    main._rewards_changed(proxy, SourceHealth(False, away, "v1", "warning", "helpful"))
    (alert,) = state.alerts.values()
    assert (alert.key, alert.level) == ("judge", "warning")
    assert "helpful was not reached yet: cannot be reached; the last good version" in cause_of(
        alert
    )
    fault = present(last_fault(state))
    assert fault.what == "judge helpful not reached yet"
    main._rewards_changed(proxy, SourceHealth(False, away, "v1", "warning"))
    assert "groups that its cache does not answer" in cause_of(state.alerts["judge"])
    main._rewards_changed(proxy, SourceHealth(True, None, "v1"))
    kinds = [type(one) for one in events]
    assert (kinds.count(AlertRaised), kinds.count(AlertCleared)) == (4, 3)


def test_a_crashed_hook_process_is_not_reported_as_a_broken_save() -> None:
    state = State()
    bus = SimpleNamespace(publish=lambda event: reduce(state, event), state=state)
    model = parse("parts:\n  length: {kind: length}\n", None)
    rewards = ComposedSource(model=model)
    proxy = cast(Any, SimpleNamespace(bus=bus, rewards=rewards, settings=Settings()))
    result = "the hooks' process ended (exit code 7); it is started again, and groups wait for it"
    fell = Abstention("hook", result, file="/h", crashed=True)
    main._rewards_changed(proxy, SourceHealth(False, fell, ""))
    alert = state.alerts["rewards"]
    assert cause_of(alert) == result
    assert "Correct the file" not in todo_of(alert)
    fault = present(last_fault(state))
    assert (fault.what, fault.cause) == ("ended", result)
    main._rewards_changed(proxy, SourceHealth(True, None, "v1"))
    assert not state.alerts
    absent = Abstention("hook", "there is none", file="/h/f.py")
    main._rewards_changed(proxy, SourceHealth(False, absent, ""))
    assert "did not load: /h/f.py: there is none; groups go" in cause_of(state.alerts["rewards"])


def test_nothing_is_made_of_nothing() -> None:
    assert judge_lines(state_of(changed()), 78) == []
    result = text(state_of(changed(), JudgeSpent(judge="helpful", model="", mode="")))
    assert "model not known yet" in result
    assert "nan" not in result
    assert "%" not in result
