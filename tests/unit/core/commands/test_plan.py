"""What a dry run of a command says, and what it refuses."""

from typing import Any

import pytest

from ajet_swarm.common.errors import AjetError
from core.commands import COMMANDS
from core.commands.plan import plan, refusal, shown_args
from core.events import CandidateFailed
from core.roles import Identity
from core.state import Rating, Server, State
from tests.support.sample import group_events, state_of

NOW = 1_700_000_100.0


@pytest.fixture
def state() -> State:
    made = state_of(
        *group_events(1, until="AWAITING_RATING", rewards=(0.1, 0.15)), *group_events(2)
    )
    made.servers["gpu"] = Server(name="gpu", url="http://gpu", state="ROLLING")
    made.servers["off"] = Server(name="off", url="http://off", state="OFFLINE")
    return made


def test_the_role_is_checked_before_the_arguments(state: State) -> None:
    with pytest.raises(AjetError, match="needs the role operator; anna is a viewer"):
        plan(state, "engine.stop", {"nonsense": 1}, NOW, Identity("anna", "viewer"))


def test_an_abort_names_its_loss_without_the_text_of_the_request(state: State) -> None:
    waiting, done = state.groups
    one = plan(state, "group.abort", {"group_id": waiting}, NOW)
    assert one.args == {"group_id": waiting}
    assert "2 episodes" in one.loses
    assert state.groups[waiting].query not in f"{one.message} {one.loses}"
    with pytest.raises(AjetError, match="nothing left to abort"):
        plan(state, "group.abort", {"group_id": done}, NOW)


@pytest.mark.parametrize(
    ("engine", "why"),
    [("ROLLING", ""), ("ROLLING_POST", "gives no fresh episodes"), ("OFFLINE", "is OFFLINE")],
)
def test_a_group_is_refilled_while_its_server_is_rolling(engine: str, why: str) -> None:
    failed = CandidateFailed(
        server="embedded", group_id="g0001", index=1, episode_uuid="ep-1-1", cause="timed_out"
    )
    state = state_of(*group_events(1, until="AWAITING_RATING"), failed)
    state.servers["embedded"] = Server(name="embedded", url="http://e", state=engine)
    refused = refusal(state, "group.refill", {"group_id": "g0001"}, NOW)
    assert (refused is None) == (not why)
    if not why:
        plan(state, "group.refill", {"group_id": "g0001"}, NOW)
        return
    with pytest.raises(AjetError, match=why):
        plan(state, "group.refill", {"group_id": "g0001"}, NOW)


@pytest.mark.parametrize(
    ("name", "args", "why"),
    [
        ("group.abort", {"group_id": "nobody"}, "there is no group `nobody`"),
        ("group.rate", {"rating": "best", "order": [7]}, "index is impossible"),
        ("group.rate", {"rating": "best"}, "needs `order`"),
        ("group.rate", {"rating": "scores", "scores": [1.0]}, "one number per candidate"),
        ("engine.stop", {"server": "cpu"}, "there is no server `cpu`"),
        ("engine.start", {"server": "gpu", "preset": "hand"}, "ROLLING, not OFFLINE"),
        ("engine.save", {"server": "off", "name": "x"}, "has no checkpoints"),
        ("run.pin", {"number": 3}, "there is no run 3"),
        ("rewards.weight", {"part": "length", "weight": 1}, "have no part `length`"),
        ("mock.pause", {}, "no mock user is running"),
        ("nonsense", {}, "there is no command"),
    ],
)
def test_what_would_be_refused_is_refused(
    state: State, name: str, args: dict[str, Any], why: str
) -> None:
    if name == "group.rate":
        args = {"group_id": next(iter(state.groups)), **args}
    with pytest.raises(AjetError, match=why):
        plan(state, name, args, NOW)


def test_a_group_that_lacks_votes_or_had_its_second_one_is_refused(state: State) -> None:
    first, second = state.groups.values()
    first.overlap, first.votes = 2, [Rating(rating="tie", rater="ada")]
    accept, state.rating_mode = {"group_id": first.group_id}, "hold"
    with pytest.raises(AjetError, match=r"1 of 2 votes, by ada\. Wait for the others"):
        plan(state, "group.accept", accept, NOW)
    assert plan(state, "group.accept", {**accept, "override": True}, NOW)
    state.rating_mode = "off"
    assert plan(state, "group.accept", accept, NOW)
    second.repeated, second.source, second.rating = (
        True,
        "human",
        Rating(rating="tie", rewards=(1,)),
    )
    with pytest.raises(AjetError, match="has had its second vote"):
        plan(state, "group.repeat", {"group_id": second.group_id, "rating": "tie"}, NOW)


def test_a_plan_changes_with_the_state_of_its_target(state: State) -> None:
    before = plan(state, "engine.stop", {"server": "gpu"}, NOW)
    assert before.targets == plan(state, "engine.stop", {"server": "gpu"}, NOW + 60).targets
    state.servers["gpu"].state = "OFFLINE"
    after = plan(state, "engine.stop", {"server": "gpu"}, NOW)
    assert (after.targets != before.targets, bool(before.loses), after.loses) == (True, True, "")


def test_every_destructive_command_of_the_proxy_names_a_loss(state: State) -> None:
    state.servers["gpu"].checkpoints = ()
    values = {"group_id": next(iter(state.groups)), "server": "gpu", "name": "base", "keep": 1}
    values["episode"] = "3f5b"
    for command in COMMANDS.values():
        if command.danger and command.where == "proxy":
            args = {arg.name: values[arg.name] for arg in command.args if arg.name in values}
            assert plan(state, command.name, args, NOW).loses, command.name


def test_a_job_is_shown_by_its_size() -> None:
    assert shown_args({"job": "key: s3cret", "server": "gpu"}) == {
        "job": "(11 characters)",
        "server": "gpu",
    }
