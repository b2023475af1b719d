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
    names: dict[str, Any] = {"source": "/h/rewards.yaml", "version": version, "part": part}
    return RewardsChanged(**names, ok=not cause, cause=cause, parts=PARTS, at=NOW - 9)


def text(state: State, width: int = 78) -> str:
    return text_of(judge_lines(state, width))


def test_shares_and_means() -> None:
    result = figures_of(state_of(changed(), spent()).judges["helpful"])
    shares = {"calls_a_group": 45 / 40, "cached": 10 / 50, "failed": 6 / 40, "spent": 0.25}
    assert {name: result[name] for name in shares} == pytest.approx(shares)
    assert result["latency"] == pytest.approx(2.0)
    nothing = figures_of(JudgeSpent(judge="new"))
    assert {nothing[name] for name in shares} == {None}


@pytest.mark.parametrize("width", [60, 78, 118, 158])
def test_a_judge_line_shows_all_figures(width: int) -> None:
    state = state_of(changed(), spent(pairs=100, split=40, untold=1))
    result = text(state, width)
    assert not missing(
        result,
        *("helpful", "45", "1.1", "31.2k", "0.250", "20%", "15%", "2.0s"),
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
    (data,) = judges_data(state)
    assert data["cost"] is data["limit"] is None


def test_judges_of_the_model_come_first_and_disabled_ones_are_marked() -> None:
    state = state_of(changed(), spent("gone"), spent("calm", trouble="out"), spent())
    in_use = [(judge["judge"], judge["in_use"]) for judge in judges_data(state)]
    assert in_use == [("helpful", True), ("calm", False), ("gone", False)]
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
    assert present(last_fault(state)).what == "judge helpful in trouble"
    head = text_of(head_lines(state, figures([]), NOW, 118, True))
    assert "! a judge is in trouble" in head
    assert "newest save broken" not in head
    assert "judge helpful in trouble" in present(event_told(changed(cause, "helpful"))).text


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
    expected = {"judge": "helpful", "calls": 45, "tokens": 31_200, "cost": 0.25}
    assert judge.items() >= expected.items()
    assert judge["figures"]["cached"] == 0.2
    args.json = False
    assert command.rewards(args) == 0
    assert "/group" in capsys.readouterr().out


class Said:
    """What a proxy with one reward part publishes about the health of its rewards."""

    def __init__(self, part: str) -> None:
        self.state = State()
        self.events: list[Event] = []
        bus = SimpleNamespace(publish=self._publish, state=self.state)
        rewards = ComposedSource(model=parse(f"parts:\n  {part}\n", None))
        self._proxy = SimpleNamespace(bus=bus, rewards=rewards, settings=Settings())

    def __call__(self, health: SourceHealth) -> None:
        main._rewards_changed(cast(Any, self._proxy), health)

    def _publish(self, event: Event) -> None:
        self.events.append(event)
        reduce(self.state, event)


def test_an_alert_names_the_judge_and_its_screen() -> None:
    said = Said("helpful: {kind: judge, url: 'http://127.0.0.1:9'}")
    state = said.state
    said(SourceHealth(False, Abstention("helpful", "no key. Set it"), "v1"))
    (alert,) = state.alerts.values()
    assert alert.key == "judge"
    assert "the judge helpful is in trouble: no key" in cause_of(alert)
    action = present(action_for(alert))
    assert (action.screen.name, action.effect) == ("rewards", "its counts; e opens the file")
    assert "`rewards enable helpful off`" in todo_of(alert)
    said(SourceHealth(False, Abstention("model", "bad"), "v1"))
    assert list(state.alerts) == ["rewards"]
    said(SourceHealth(True, None, "v1"))
    assert not state.alerts
    said(SourceHealth(False, None, "v1", waiting_for="helpful"))
    assert not state.alerts  # the judge is still being checked: there is no fault
    assert state.rewards.waits == "helpful"
    assert "waits for helpful" in text_of(head_lines(state, figures([]), NOW, 118, True))
    result = present(event_told(said.events[-1]))
    assert (result.text, result.level) == ("the newest rewards wait for helpful", "info")
    away = Abstention("helpful", "cannot be reached")
    said(SourceHealth(False, away, "v1", "warning", "helpful"))
    (alert,) = state.alerts.values()
    assert (alert.key, alert.level) == ("judge", "warning")
    assert "helpful was not reached yet: cannot be reached; the last good version" in cause_of(
        alert
    )
    assert present(last_fault(state)).what == "judge helpful not reached yet"
    said(SourceHealth(False, away, "v1", "warning"))
    assert "groups that its cache does not answer" in cause_of(state.alerts["judge"])
    said(SourceHealth(True, None, "v1"))
    kinds = [type(event) for event in said.events]
    assert (kinds.count(AlertRaised), kinds.count(AlertCleared)) == (4, 3)


def test_a_crashed_hook_process_is_not_reported_as_a_broken_save() -> None:
    said = Said("length: {kind: length}")
    state = said.state
    result = "the hooks' process ended (exit code 7); it is started again, and groups wait for it"
    fell = Abstention("hook", result, file="/h", crashed=True)
    said(SourceHealth(False, fell, ""))
    alert = state.alerts["rewards"]
    assert cause_of(alert) == result
    assert "Correct the file" not in todo_of(alert)
    fault = present(last_fault(state))
    assert (fault.what, fault.cause) == ("ended", result)
    said(SourceHealth(True, None, "v1"))
    assert not state.alerts
    absent = Abstention("hook", "there is none", file="/h/f.py")
    said(SourceHealth(False, absent, ""))
    assert "did not load: /h/f.py: there is none; groups go" in cause_of(state.alerts["rewards"])


def test_nothing_is_made_of_nothing() -> None:
    assert judge_lines(state_of(changed()), 78) == []
    result = text(state_of(changed(), JudgeSpent(judge="helpful", model="", mode="")))
    assert "model not known yet" in result
    assert "nan" not in result
    assert "%" not in result
