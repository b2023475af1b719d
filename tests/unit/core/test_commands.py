"""Commands: their registry, and what one would do now."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from ajet_swarm.common.errors import AjetError
from console.cli.common import send_command
from console.cli.options import Args
from console.cli.output import output
from console.mcp.content import ContentPolicy
from console.mcp.schema import tool_name
from console.mcp.tools import Tools
from console.models.available_commands import available_commands
from console.session.app_state import Session
from console.session.command_plans import refusal as refusal_of
from core.commands import COMMANDS, CommandError, validate
from core.commands.plan import plan, refusal, shown_args
from core.events import CandidateFailed, WorkChanged
from core.events.base import GroupEvent
from core.events.progress import ProbeSetLoaded
from core.events.rating import VoteEvent
from core.events.rewards import WhatIfChanged
from core.roles import AccessRole, Identity
from core.state import Group, Lease, Probe, Rating, Server, State
from core.state.runs import PIN_CAP
from proxy.control.client import ControlClient, ControlError
from tests.support.looks import measured
from tests.support.proxy.guarded import Guarded, guarded, make_ready
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
    state.progress["gpu"] = measured()
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


# --- the same answer everywhere ------------------------------------------------------------------

G: dict[str, Any] = {"group_id": "g0001"}
S: dict[str, Any] = {"server": "embedded"}
VOTE = {**G, "rating": "tie"}
Change = Callable[[Group, Server, State], object]


def group(**fields: Any) -> Change:
    return lambda target, _, __: [setattr(target, name, value) for name, value in fields.items()]


def server(**fields: Any) -> Change:
    return lambda _, target, __: [setattr(target, name, value) for name, value in fields.items()]


def mock(phase: str) -> Change:
    return lambda _, __, state: setattr(state.mock, "phase", phase)


def progress(**fields: Any) -> Change:
    def change(_: Group, __: Server, state: State) -> None:
        for name, value in fields.items():
            setattr(state.progress["embedded"], name, value)

    return change


def unmeasured(_: Group, __: Server, state: State) -> None:
    state.progress.clear()


def what_if(**fields: Any) -> Change:
    return lambda _, __, state: setattr(state, "what_if", WhatIfChanged(what="a file", **fields))


def pinned(_: Group, __: Server, state: State) -> None:
    runs = state.engine_runs.runs
    runs += [replace(runs[0], number=number + 2, pinned=True) for number in range(PIN_CAP)]


def trying(over: bool) -> Change:
    known = Probe(try_id="t1", server="embedded", group_id="g0001", prompt="x", over=over)
    return lambda _, __, state: setattr(state, "tries", [known])


def unscored(group_changed: Group, _: Server, __: State) -> None:
    group_changed.rating, group_changed.scored_at = None, None
    for candidate in group_changed.candidates:
        candidate.auto_reward = None


def short(group_changed: Group, engine: Server, _: State) -> None:
    group_changed.rating, engine.state = None, "ROLLING"
    (
        group_changed.candidates[0].phase,
        group_changed.candidates[0].text,
        group_changed.candidates[0].finish_reason,
    ) = (
        "failed",
        "",
        "",
    )


def nothing(*_: object) -> None:
    return None


IN_PALETTE = {
    "group.unrate", "group.accept", "group.abort", "group.rescore", "group.refill", "group.rerun",
    "engine.start", "engine.stop", "engine.cancel", "engine.resume", "mock.pause", "mock.resume",
    "mock.stop", "progress.look", "progress.trust", "progress.rewind", "progress.pause",
    "progress.resume",
}  # fmt: skip
"""Commands that the palette offers when they have an effect."""
NO_LOOKS = replace(measured().probe_set or ProbeSetLoaded(), enabled=False)
BORIS = Rating(rating="tie", rater="boris", rewards=(0.5, 0.5))
LEASED = [Lease(holder="theirs", rater="boris", until=1e12)]
TABLE: list[tuple[str, dict[str, Any], Change, str]] = [
    ("group.rate", VOTE, nothing, ""),
    ("group.rate", VOTE, group(phase="GENERATING"), "Its candidates are not complete yet"),
    ("group.rate", VOTE, group(phase="DONE"), "Already finished"),
    ("group.rate", VOTE, group(phase="ABORTED"), "Already aborted"),
    ("group.rate", VOTE, group(episode_type="eval"), "not trained on"),
    ("group.rate", VOTE, group(rating=None, leases=LEASED), "boris is rating group g0001"),
    ("group.rate", VOTE, group(overlap=2, votes=[BORIS, BORIS]), "has its 2 votes"),
    ("group.rate", {**G, "rating": "best"}, nothing, "needs `order`"),
    ("group.rate", {**VOTE, "shown": [3, 1, 0, 2]}, nothing, ""),
    ("group.rate", {**VOTE, "shown": [0, 1, 2]}, nothing, "has other answers now than those"),
    ("group.unrate", G, nothing, ""),
    ("group.unrate", G, group(rating=None), "There is no vote to undo"),
    ("group.unrate", G, group(until=1.0), "too late to undo it"),
    ("group.accept", G, nothing, ""),
    ("group.accept", G, unscored, "no automatic reward to accept yet"),
    ("group.accept", G, group(phase="DONE"), "Already finished"),
    ("group.abort", G, nothing, ""),
    ("group.abort", G, group(phase="SUBMITTING"), "nothing left to abort"),
    ("group.abort", G, group(phase="ABORTED"), "nothing left to abort"),
    ("group.rescore", G, nothing, ""),
    ("group.rescore", G, unscored, "It was not scored yet"),
    ("group.refill", G, nothing, "It is complete"),
    ("group.refill", G, short, ""),
    ("group.refill", G, group(phase="DONE"), "It is closed"),
    ("group.rerun", G, nothing, ""),
    ("group.rerun", G, group(request_id=""), "no longer stored"),
    ("group.note", {**G, "note": "x"}, group(phase="DONE"), ""),
    ("group.edit", {**G, "index": 9, "edited": "x"}, nothing, "has no candidate 10"),
    ("group.settle", VOTE, nothing, "do not disagree"),
    ("group.repeat", VOTE, nothing, "no rating that was sent"),
    ("group.abort", {"group_id": "nope"}, nothing, "there is no group `nope`"),
    ("engine.start", S, nothing, ""),
    ("engine.start", S, server(state="ROLLING"), "ROLLING already"),
    ("engine.start", {**S, "preset": "hand"}, server(state="ROLLING"), "ROLLING, not OFFLINE"),
    ("engine.start", S, server(lost="gone"), "does not answer"),
    ("engine.start", S, server(state="OBSERVING"), "there is no engine"),
    ("engine.start", S, server(work=WorkChanged(work="Apply a job")), "`Apply a job` runs on"),
    ("engine.stop", S, server(state="ROLLING"), ""),
    ("engine.stop", S, nothing, "OFFLINE already"),
    ("engine.stop", S, server(state="ROLLING", lost="gone"), ""),
    ("engine.apply", S, server(state="ROLLING"), ""),
    ("engine.apply", S, server(state="ROLLING", lost="gone"), "does not answer"),
    ("engine.job", S, nothing, "the command has no job"),
    ("engine.try", {**S, "prompt": " "}, nothing, "there is nothing to try"),
    ("engine.try", {**S, "prompt": "x", "try_id": "t1"}, trying(over=True), "try `t1` already"),
    ("engine.try_stop", {}, trying(over=False), ""),
    ("engine.try_stop", {}, trying(over=True), "no try runs"),
    ("engine.try_stop", {"try_id": "t1"}, trying(over=True), "try t1 has ended"),
    ("engine.try_stop", {"try_id": "t2"}, trying(over=False), "no such try runs"),
    (
        "engine.apply",
        S,
        server(state="ROLLING", work=WorkChanged(work="Start")),
        "`Start` runs on",
    ),
    ("engine.cancel", S, server(work=WorkChanged(work="Start")), ""),
    ("engine.cancel", S, nothing, "nothing runs on embedded"),
    ("engine.resume", S, nothing, ""),
    ("engine.resume", S, server(checkpoints=None), "has no checkpoints"),
    ("engine.save", {**S, "name": "a"}, server(state="BOOTING"), "it has no policy yet"),
    ("engine.restore", {**S, "name": "x"}, nothing, ""),
    ("engine.restore", {**S, "name": "y"}, nothing, "there is no checkpoint `y`"),
    ("engine.prune", {**S, "keep": -1}, nothing, "`keep` cannot be -1"),
    ("engine.stop", {"server": "none"}, nothing, "there is no server `none`"),
    ("run.pin", {"number": 7}, nothing, "there is no run 7"),
    ("run.pin", {"number": 1}, pinned, "200 runs are pinned"),
    ("run.name", {"number": 1, "name": "x" * 81}, nothing, "the name has 81 characters"),
    ("progress.look", S, nothing, ""),
    ("progress.look", S, unmeasured, "there is no probe set"),
    ("progress.look", S, progress(probe_set=ProbeSetLoaded(error="gone")), "no probe set. gone"),
    ("progress.trust", S, nothing, ""),
    ("progress.trust", S, progress(probe_set=NO_LOOKS), "looks are disabled"),
    ("progress.look", S, server(state="OBSERVING"), "there is no server `embedded`"),
    ("progress.rewind", S, nothing, ""),
    ("progress.rewind", S, progress(looks=[]), "there is no verified step"),
    ("progress.rewind", S, server(lost="gone"), "does not answer"),
    ("progress.rewind", {**S, "path": "/x"}, nothing, "restores its own checkpoint"),
    ("progress.pause", S, nothing, ""),
    ("progress.pause", S, progress(paused="by hand"), "requests do not train already"),
    ("progress.resume", S, progress(paused="by hand"), ""),
    ("progress.resume", S, nothing, "training is not paused"),
    ("progress.pair", S, nothing, ""),
    ("progress.pair", S, progress(looks=[]), "there are no two looks to compare"),
    ("rewards.whatif", {"weights": ["length=1"]}, nothing, ""),
    ("rewards.whatif", {"weights": ["length"]}, nothing, "`length` is not a weight"),
    ("rewards.whatif", {"last": 501}, nothing, "501 groups cannot be tried"),
    ("rewards.whatif", {"file": "a", "hooks": "b"}, nothing, "a file and a hook folder"),
    ("rewards.whatif_stop", {}, what_if(phase="doing"), ""),
    ("rewards.whatif_stop", {}, what_if(phase="done"), "no what-if runs"),
    ("rewards.apply", {}, what_if(phase="done", weights=(("length", 1.0),)), ""),
    ("rewards.apply", {}, what_if(phase="doing"), "no what-if to apply"),
    ("rewards.apply", {}, what_if(phase="done"), "tried a file, not weights"),
    ("rewards.apply", {"weights": ["length=1"]}, what_if(phase="doing"), ""),
    ("rewards.gate", {"part": "nope", "on": True}, nothing, "have no part `nope`"),
    ("mock.pause", {}, nothing, ""),
    ("mock.pause", {}, mock("stopping"), "the mock user is stopping"),
    ("mock.resume", {}, mock("paused"), ""),
    ("mock.stop", {}, mock("finished"), "no mock user is running"),
]
"""Command, arguments, change of the state, what the answer contains; empty if it is executed."""
OF_RATERS: list[tuple[str, dict[str, Any], Change, str]] = [
    ("group.unrate", G, nothing, ""),
    ("group.unrate", G, group(rating=BORIS), "the vote on group g0001 is of boris"),
    ("group.accept", G, group(rating=BORIS), "does not wait for your vote alone"),
    ("group.rate", {**VOTE, "override": True}, nothing, "needs the role operator"),
    ("group.abort", G, nothing, "needs the role operator"),
]
ROWS = [("operator", *row) for row in TABLE] + [("rater", *row) for row in OF_RATERS]


@pytest.mark.slow
async def test_each_way_gives_the_same_answer(tmp_path: Path) -> None:
    """Handler, keys and palette, `--dry-run` and MCP, for each row of the table."""
    async with guarded(tmp_path) as api:
        make_ready(api)
        base = api.context.bus.state
        for role, name, args, change, expected in ROWS:
            state = api.context.bus.state = deepcopy(base)
            engine = state.servers["embedded"]
            change(state.groups["g0001"], engine, state)
            async with api.client(role) as client:
                answers = {
                    "dry run": await dry_run(api, role, name, args),
                    "MCP": await by_mcp(client, name, args),
                    "console": await by_console(client, name, args),
                    "handler": await by_handler(api, client, name, args),
                }
            for way, answer in answers.items():
                case = f"{name} {args} of {role}, {way}: {answer!r}"
                assert expected in answer, case
                assert bool(answer) == bool(expected), case


async def by_handler(
    api: Guarded, client: ControlClient, name: str, args: Mapping[str, Any]
) -> str:
    api.recorder.executed.clear()
    try:
        reply = await client.command(name, args)
    except ControlError as error:
        return str(error)
    return "" if api.recorder.executed else reply.message


async def dry_run(api: Guarded, role: AccessRole, name: str, args: Mapping[str, Any]) -> str:
    file = api.access.path.with_name(f"{role}.token")
    file.write_text(api.tokens[role])
    place = Args(home=file.parent, url=api.url, token_file=file)
    output().dry_run = True
    try:
        message = (await send_command(place, name, args)).message
    except AjetError as error:
        return str(error)
    finally:
        output().dry_run = False
    return "" if message.startswith("would execute") else message


async def by_mcp(client: ControlClient, name: str, args: Mapping[str, Any]) -> str:
    @asynccontextmanager
    async def connect() -> AsyncIterator[ControlClient]:
        yield client

    tools = Tools(connect, role="act", content=ContentPolicy(shown=True))
    named = {"rater": ""} if "rater" in {arg.name for arg in COMMANDS[name].args} else {}
    try:
        result = await tools.call(tool_name(name), {**args, **named, "dry_run": True})
    except AjetError as error:
        return str(error)
    return "" if result["would"].startswith("would execute") else str(result["would"])


async def by_console(client: ControlClient, name: str, args: Mapping[str, Any]) -> str:
    """The answer to keys; the palette offers a command with these arguments if there is none."""
    session = Session(link=cast(Any, client))
    session.state, session.seen = await client.snapshot(), True
    session.identity = client.identity
    why = refusal_of(session, name, **args)
    offered = {command.command for command in available_commands(session, "g0001", "embedded")}
    if name in IN_PALETTE and args in (G, S, {}):
        assert (name in offered) == (why is None), f"palette: {name} {args}: {why}"
    return str(why) if why is not None else ""


def test_commands_are_checked() -> None:
    assert validate("group.rate", {"group_id": "g", "rating": "best", "order": "2"}) == {
        "group_id": "g",
        "rating": "best",
        "order": (2,),
    }
    for name, args, value in (
        ("group.rat", {}, "no command"),
        ("group.rate", {"group_id": "g"}, "needs `rating`"),
        ("group.rate", {"group_id": "g", "rating": "good"}, "Valid: best"),
        ("group.rate", {"group_id": "g", "rating": "scores", "scores": ["nan"]}, "cannot be"),
        ("group.abort", {"group_id": "g", "why": "x"}, "takes no `why`"),
        ("group.mark", {"group_id": "g", "marked": "perhaps"}, "cannot be"),
    ):
        with pytest.raises(CommandError, match=value):
            validate(name, args)


def test_command_names_and_titles_follow_one_form() -> None:
    for name, command in COMMANDS.items():
        assert name == command.name
        assert name.count(".") == 1
        assert ": " in command.title
        assert command.help


def test_all_commands_with_a_vote_take_the_same_record() -> None:
    vote = set(VoteEvent.__struct_fields__) - set(GroupEvent.__struct_fields__) - {"rewards"}
    for name in ("group.rate", "group.settle", "group.repeat"):
        args = {arg.name for arg in COMMANDS[name].args}
        assert args - {"group_id", "holder", "override"} == vote, name
