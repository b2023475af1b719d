"""Texts that name keys name keys that work, and not too many of them."""

import pytest

from console.models.advice import advice_context
from console.models.alerts import REMEDIES, action_for
from console.models.screen_registry import SCREENS
from console.screens.group.text import DetailOptions, header_lines
from console.widgets.key_bar import MAX_KEYS, KeyBar
from core.events import AlertRaised, EngineChanged, GroupRated
from core.events.alerts import params_of
from proxy.alerts import alert_raised
from tests.pilot.rate.test_screen import waiting
from tests.support.checks import missing, present
from tests.support.console import FakeChild, FakeProcessManager, run_console
from tests.support.groups import text_of
from tests.support.sample import NOW, group_events, state_of

ALERTS = (
    AlertRaised(
        key="hold:embedded", alert_kind="hold", cause="3 open ratings hold up the weight update"
    ),
    alert_raised("refused:embedded", params_of("refused", server="embedded", state="OFFLINE")),
    AlertRaised(key="judge", alert_kind="judge", cause="the judge failed", todo="Read its counts"),
)
ORDERS = ("`s`", "(k)", "(s)", "start it", " 5 s", " 5 r")


@pytest.mark.parametrize("read_only", [False, True])
async def test_overview_and_engine_show_only_keys_that_work(read_only: bool) -> None:
    boots = EngineChanged(server="embedded", state="BOOTING", raw="BOOTING", at=NOW - 100)
    processes = FakeProcessManager({"engine": FakeChild("engine", phase="exited", exit_code=1)})
    shown = state_of(boots, *ALERTS)
    async with run_console(
        shown, size=(160, 48), processes=processes, read_only=read_only
    ) as console:
        text = console.text()
        await console.press("a")
        text += console.text()
        console.app.action_go("engine")
        await console.settle()
        text += console.text()
        named = [words for words in ORDERS if words in text]
        assert named == ([] if read_only else list(ORDERS))
        assert not missing(
            text, "hold up the weight update", "BOOTING for", "Read its counts", "last log lines"
        )


def test_a_read_only_group_head_shows_no_keys() -> None:
    rated = GroupRated(
        server="embedded", group_id="g0003", rating="best", order=(2,), rewards=(0.0, 0.0, 1.0, 0.0)
    )
    events = [*group_events(1, rewards=[0.5] * 4), *group_events(2, until="AWAITING_RATING")]
    groups = state_of(*events, *group_events(3, until="AWAITING_RATING"), rated).groups
    groups["g0002"].abstained = "ValueError"
    named = ("A sends it again", "score it again with S", "; u undoes it")
    stored = ("dead", "Otherwise it is", "held, sends in")
    for group, key, fact in zip(groups.values(), named, stored, strict=True):
        result = " ".join(text_of(header_lines(group, NOW, 100, DetailOptions())).split())
        actual = " ".join(
            text_of(header_lines(group, NOW, 100, DetailOptions(read_only=True))).split()
        )
        assert (key in result, key in actual) == (True, False)
        assert fact in actual


def test_read_only_alerts_say_what_to_look_at_instead_of_a_command() -> None:
    orders = [
        name for name, remedy in REMEDIES.items() if remedy.action or "{keys" in remedy.effect
    ]
    assert [name for name in orders if not REMEDIES[name].read_only] == []
    hold = AlertRaised(key="hold:embedded", alert_kind="hold", level="error", at=NOW)
    held = present(action_for(hold, context=advice_context(read_only=True)))
    assert held.summary == "3: Rate, what waits for a rating"


async def test_a_wide_footer_has_a_limited_number_of_keys() -> None:
    async with run_console(waiting(2), size=(200, 48)) as console:
        for place in SCREENS:
            console.app.action_go(place.name)
            await console.settle()
            keys = [key.key for key in console.app.screen.query_one(KeyBar).shown_keys]
            most = 20 if place.name == "rate" else MAX_KEYS  # a rater uses all of its keys
            assert len(keys) <= most + 1, place  # and the palette
            assert keys[-3:] == ["ctrl+q", "question_mark", "ctrl+p"], place
        await console.press("f3")
        lines = console.text().splitlines()[-1]
        assert lines.index("Best") < lines.index("Score") < lines.index("Tie") < lines.index("Help")
