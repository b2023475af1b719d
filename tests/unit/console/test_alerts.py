"""Every kind of alert has a sentence and advice; unknown kinds are shown, too."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from console.models.advice import advice_context
from console.models.alerts import REMEDIES, action_for
from console.text.alerts import ALERTS, alert_text, in_words
from core.events import AlertRaised, AnyEvent
from core.events.alerts import KINDS, AlertParams, params_of, read_params
from core.state import State, reduce
from proxy.alerts import alert_raised
from tests.support.checks import present

_FILE = Path(__file__).parents[2] / "data" / "alerts.yaml"


_EXAMPLES = yaml.safe_load(_FILE.read_text())


EXAMPLES = [
    (read_params(example["kind"], example["params"]), example["cause"], example["todo"])
    for example in _EXAMPLES
]


READ_ONLY = advice_context(read_only=True)


EVERY_KEY = {name: f"f{number}" for number, name in enumerate(advice_context().keys, 13)}
"""Another key for each action that advice names."""


def alert_of(params: AlertParams) -> AlertRaised:
    """Return the alert as a console has it after it received the event."""
    raised = alert_raised(f"{params.kind}:gpu", params)
    state = State()
    reduce(state, msgspec.json.decode(msgspec.json.encode(raised), type=AnyEvent))
    return state.alerts[raised.key]


def test_an_alert_in_words() -> None:
    for params, cause, todo in EXAMPLES:
        text = alert_text(alert_of(params), advice_context())
        assert text.cause == cause, params
        assert text.todo == todo, params
        assert text.cause, params
        assert text.todo, params


def test_every_kind_has_words_a_way_out_and_an_example() -> None:
    listed = set(KINDS)
    assert (set(ALERTS), {params.kind for params, _, _ in EXAMPLES}) == (listed, listed)
    assert {name.partition(":")[0] for name in REMEDIES} == listed


def test_the_examples_of_a_kind_set_each_of_its_parameters() -> None:
    for kind, params_class in sorted(KINDS.items()):
        examples = [params for params, _, _ in EXAMPLES if params.kind == kind]
        for field in msgspec.structs.fields(params_class):
            values = [getattr(example, field.name) for example in examples]
            changed = any(value != field.default for value in values)
            assert field.required or changed, f"{kind}.{field.name}"


def named_keys(params: AlertParams) -> list[str]:
    """The new keys that advice and way out of an alert name after all keys were changed."""
    alert, context = alert_of(params), advice_context(EVERY_KEY)
    action = present(action_for(alert, context=context))
    advice = f"{alert_text(alert, context).todo} {action.keys} {action.effect}"
    return [key for key in map(str.upper, EVERY_KEY.values()) if key in advice]


@pytest.mark.parametrize(
    ("params", "count"),
    [
        (params_of("refused", server="gpu", state="OFFLINE"), 1),
        (params_of("hold", ratings=2, unscored=1), 5),
        (params_of("taken", server="gpu", group="g1", idle=1.0, limit=2.0), 1),
        (params_of("tokens", server="gpu", finished=1), 2),
        (params_of("unscored", count=1, of=2, error="hook: KeyError"), 2),
        (params_of("judge", judge="helpful", error="no key"), 1),
        (params_of("port", port=8000, url="http://127.0.0.1:8001"), 2),
        (params_of("boot", server="gpu", minutes=5.0), 2),
    ],
)
def test_advice_names_the_keys_that_the_operator_has_chosen(
    params: AlertParams, count: int
) -> None:
    assert len(named_keys(params)) == count
    text = alert_text(alert_of(params), advice_context(EVERY_KEY))
    assert not any(f"`{key}`" in text.todo for key in "ASXksxi")


def test_keys_are_shown_as_they_are_pressed() -> None:
    changed = {"engine.start": "ctrl+k,f5", "group.abort": "left_square_bracket", "app.quit": "tab"}
    keys = advice_context(changed).keys
    assert [keys[name] for name in changed] == ["Ctrl+K", "[", "Tab"]
    assert (keys["list.open"], keys["rating.accept_all"]) == ("Enter", "A")


def test_a_read_only_console_names_no_key_of_a_command() -> None:
    for params, cause, _ in EXAMPLES:
        text = alert_text(alert_of(params), READ_ONLY)
        assert text.cause == cause, params
        assert not any(f"`{key}`" in text.todo for key in "ASXksxi"), params
        assert "asks one again" not in text.todo, params


def test_advice_under_a_proxy_that_only_watches_is_for_its_operator() -> None:
    watching = advice_context(watch_only=True)
    off = alert_text(alert_of(params_of("off", server="gpu", trouble="restarted")), watching)
    assert off.todo == "Its operator has to start it again"
    boot = alert_text(alert_of(params_of("boot", server="gpu", minutes=5.0)), watching)
    assert boot.todo.endswith("its operator has to stop it")
    lost = alert_text(alert_of(params_of("lost", server="gpu", error="gone")), watching)
    assert lost.todo.endswith("it is polled until it answers")


def decoded(**fields: Any) -> AlertRaised:
    """The alert of an event as another version wrote it."""
    state = State()
    text = msgspec.json.encode({"kind": "alert_raised", "seq": 1, "at": 5.0, **fields})
    reduce(state, msgspec.json.decode(text, type=AnyEvent))
    (alert,) = state.alerts.values()
    return alert


def test_a_kind_of_a_newer_version_is_shown_with_its_parameters() -> None:
    params = {"free_bytes": 1536.0, "path": "/h", "urgent": True, "ids": ["a", "b"], "by": None}
    alert = decoded(key="disk:gpu", alert_kind="disk_full", params=params, level="error")
    text = alert_text(alert, advice_context())
    assert text.cause == "disk full: free bytes 1536, path /h, urgent yes, ids a b, by none"
    assert text.todo == ""
    assert action_for(alert) is not None
    assert alert_text(decoded(key="x", alert_kind="odd"), advice_context()).cause == "odd"


def test_a_long_list_of_a_newer_version_is_shortened() -> None:
    alert = decoded(key="x", alert_kind="many", params={"ids": list("abcdefgh"), "at": {"n": 1}})
    assert alert_text(alert, advice_context()).cause == "many: ids a b c d e f and 2 more, at n 1"


@pytest.mark.parametrize("params", [{}, {"server": 5, "error": "gone"}, {"error": "gone"}])
def test_parameters_that_a_kind_does_not_have_are_listed(params: dict[str, Any]) -> None:
    alert = decoded(key="lost:gpu", alert_kind="lost", params=params)
    cause = alert_text(alert, advice_context()).cause
    assert cause.startswith("lost")
    assert all(f"{name} {value}" in cause for name, value in params.items())


def test_a_parameter_that_a_newer_version_added_changes_nothing() -> None:
    params = {"server": "gpu", "error": "gone", "since": 4.0}
    alert = decoded(key="lost:gpu", alert_kind="lost", params=params)
    assert alert_text(alert, advice_context()).cause == "gpu does not answer: gone"


def test_an_in_words_keeps_its_data() -> None:
    raised = alert_raised("lost:gpu", params_of("lost", server="gpu", error="gone"), level="error")
    shown_event = in_words(raised, advice_context())
    assert isinstance(shown_event, AlertRaised)
    assert (shown_event.cause, shown_event.alert_kind) == ("gpu does not answer: gone", "lost")
    assert (shown_event.params, shown_event.level) == ({"server": "gpu", "error": "gone"}, "error")
