"""Who gets the episodes: users before raters and rows, groups within the pool, each once."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

import ajet_swarm.episodes.claim
from ajet_swarm.common.tasks import Tasks
from core.dialects.errors import ApiError
from core.events import AlertRaised, ClaimIntended, ClaimsReturned, GroupClosed, RatingAwaited
from core.events.mock import WAITS_FOR_VOTES
from core.runtime.home import Home
from core.settings import Settings
from core.state import Group
from mock.dataset import open_dataset
from mock.run.pace import Pace
from mock.run.progress import Progress
from mock.run.row_order import RowSelection
from mock.run.runner import Runner
from mock.targets.question import Answer, Question, marks
from proxy.dataset_rows import Row
from proxy.dialects.chat.request import read_request
from proxy.groups.answer import AnswerWaiter
from proxy.groups.claim import ACTIVE, KEPT
from proxy.servers.facts import ROLLING_POST
from tests.support.alerts import cause_of
from tests.support.proxy.world import HEADERS, World, let, settings, world
from tests.support.scripted.swarm import ScriptedSwarm
from tests.unit.mock.helpers import FakeControl, write_rows

REAL = {"window": 3.0, "discard_timeout_rating": 600.0}


BUDGETS = {"answer_budget": 90.0, "stream_budget": 600.0}


def mode(name: str, **rating: Any) -> Settings:
    """The times of the product, in one rating mode."""
    return settings(proxy=BUDGETS, rating={**REAL, "mode": name, **rating})


class Users:
    """Users of the application, each with the time that it waited for its answer."""

    def __init__(self, w: World, tasks: Tasks) -> None:
        self.w, self.tasks = w, tasks
        self.waits: list[float] = []
        self.refused: list[int] = []
        self.sent = 0

    def send(self, **body: Any) -> None:
        self.sent += 1
        self.tasks.spawn(self._ask(f"question {self.sent}", body), f"user{self.sent}")

    async def _ask(self, text: str, body: dict[str, Any]) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        reply = await self.w.reply(await self.w.ask(text, **body), 10_000.0)
        self.waits.append(clock() - began)
        if reply.error is not None:
            self.refused.append(reply.error.status)


async def show(w: World, holder: str, group: Group, idle: float = 0.0) -> None:
    """A console shows a group to its rater."""
    args = {"group_id": group.group_id, "holder": holder, "rater": holder, "idle": idle}
    await w.order("group.lease", **args)


def open_groups(w: World) -> list[Group]:
    return [one for one in w.state.waiting() if one.phase == "AWAITING_RATING"]


async def nobody(w: World) -> None:
    """No rater."""


async def idle_rater(w: World) -> None:
    """A rater who has the first group on screen and pressed no key for a minute."""
    for group in open_groups(w)[:1]:
        await show(w, "ada", group, idle=60.0)


async def four_raters(w: World) -> None:
    """Each of four raters has a group on screen and goes on pressing keys."""
    for holder in ("ada", "bob", "cyd", "dee"):
        now = w.context.clock()
        free = [group for group in open_groups(w) if not group.leases_of_others(holder, now)]
        own = [group for group in free if group.leases and now < group.leases[0].until]
        for group in (own or free)[:1]:
            await show(w, holder, group)


async def test_no_user_waits_for_a_rater(tmp_path: Path) -> None:
    """Forty users in five minutes, in bursts of four, and no vote: as if nobody rated."""
    scenes = {"off": nobody, "nobody": nobody, "idle": idle_rater, "four": four_raters}
    async with contextlib.AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(Tasks("users"))
        users: dict[str, Users] = {}
        for name in scenes:
            (tmp_path / name).mkdir()
            chosen = mode("off" if name == "off" else "answer_first")
            w = await stack.enter_async_context(world(tmp_path / name, configured=chosen))
            w.console()
            users[name] = Users(w, tasks)
        worlds = [user.w for user in users.values()]
        for second in range(0, 300, 5):
            for name, user in users.items():
                if second % 30 == 0:
                    for _ in range(4):
                        user.send(stream=bool(user.sent % 2))
                await scenes[name](user.w)
            await let(5.0, *worlds)
        await let(10.0, *worlds)
        for name, user in users.items():
            assert (name, len(user.waits), user.refused) == (name, 40, [])
            assert max(user.waits) < max(users["off"].waits) + 10.0, name
        states = [user.w.state for name, user in users.items() if name != "off"]
        assert all(sum(group.unrated for group in state.groups.values()) >= 36 for state in states)


# --- which group ends, and how ------------------------------------------------------------------


@contextlib.asynccontextmanager
async def full(tmp_path: Path, count: int = 4, **rating: Any) -> AsyncIterator[World]:
    """A proxy whose episodes are all held by answered, unrated groups."""
    swarm = rating.pop("swarm", None)
    chosen = mode(rating.pop("name", "answer_first"), **rating)
    async with world(tmp_path, swarm, configured=chosen) as w:
        w.console()
        for number in range(count):
            await w.reply(await w.ask(f"question {number}"))
        await w.until(lambda: len(open_groups(w)) == count)
        yield w


async def test_the_oldest_unrated_group_ends_and_stays_in_the_list(tmp_path: Path) -> None:
    async with full(tmp_path) as w:
        oldest, *others = open_groups(w)
        await w.reply(await w.ask("one more"))
        await w.until(lambda: oldest.phase == "DONE")
        assert (oldest.source, oldest.unrated, oldest.rating) == ("auto", True, None)
        await let(30.0, w)  # the one user is served: no other group has to end
        assert {other.phase for other in others} == {"AWAITING_RATING"}


async def test_the_fallback_can_be_an_abort(tmp_path: Path) -> None:
    async with full(tmp_path, fallback="abort") as w:
        oldest = open_groups(w)[0]
        await w.reply(await w.ask("one more"))
        await w.until(lambda: oldest.phase == "ABORTED")
        assert oldest.cause == "not rated: a user waited"
        assert not w.swarm.ends


async def test_a_held_vote_is_sent_before_an_unrated_group_ends(tmp_path: Path) -> None:
    async with full(tmp_path, window=600.0) as w:
        *others, newest = open_groups(w)
        await w.commands.rate(newest.group_id, "best", (2,))
        await w.reply(await w.ask("one more"))
        await w.until(lambda: newest.phase == "DONE")
        assert (newest.source, newest.unrated) == ("human", False)
        assert {other.phase for other in others} == {"AWAITING_RATING"}


async def test_the_votes_so_far_of_several_raters_are_sent(tmp_path: Path) -> None:
    async with full(tmp_path, overlap=2) as w:
        group = open_groups(w)[2]
        await w.commands.rate(group.group_id, "best", (2,), rater="ada")
        await w.reply(await w.ask("one more"))
        await w.until(lambda: group.phase == "DONE")
        assert group.source == "human"


async def test_an_update_waits_for_no_rater_while_a_user_waits_for_it(tmp_path: Path) -> None:
    async with full(tmp_path) as w:
        groups = open_groups(w)
        await show(w, "ada", groups[0])
        w.swarm.set_state("ROLLING_POST")
        await w.server.watcher.wait_for(lambda status: status.is_in(ROLLING_POST))
        await let(30.0, w)  # nobody waits: the update does
        assert {group.phase for group in groups} == {"AWAITING_RATING"}
        waiter = await w.ask("one more")
        await let(5.0, w)
        assert (await w.reply(waiter)).error is None
        assert {group.unrated for group in groups} == {True}


async def test_a_group_on_an_active_raters_screen_is_spared_for_ten_seconds(tmp_path: Path) -> None:
    swarm = ScriptedSwarm(batch=20, slots=16)  # no update in between
    async with swarm, full(tmp_path, swarm=swarm) as w:
        shown, second, third, _ = open_groups(w)
        await show(w, "ada", shown)
        await w.reply(await w.ask("one more"))
        await w.until(lambda: second.phase == "DONE")
        assert shown.phase == "AWAITING_RATING"
        assert 0 < shown.spared - w.context.clock() <= KEPT  # the rater sees it
        assert shown.spared in [event.spared for event in w.kinds(RatingAwaited)]
        await let(KEPT, w)
        await show(w, "ada", shown)
        await w.reply(await w.ask("and another"))
        await w.until(lambda: shown.phase == "DONE")
        assert third.phase == "AWAITING_RATING"


async def test_a_rater_who_is_idle_or_has_the_last_group_is_not_spared(tmp_path: Path) -> None:
    async with full(tmp_path) as w:
        shown, other, *_ = open_groups(w)
        await show(w, "ada", shown, idle=ACTIVE + 1.0)
        await w.reply(await w.ask("one more"))
        await w.until(lambda: shown.phase == "DONE")
        assert other.phase == "AWAITING_RATING"
    (tmp_path / "one").mkdir()
    swarm = ScriptedSwarm(batch=1)
    async with swarm, full(tmp_path / "one", count=1, swarm=swarm) as w:
        (only,) = open_groups(w)
        await show(w, "ada", only)
        assert (await w.reply(await w.ask("one more"))).error is None
        assert (only.phase, only.spared) == ("DONE", 0.0)


@pytest.mark.world(mode("hold"))
async def test_a_user_who_waits_for_his_rating_does_not_give_way(w: World) -> None:
    """In mode hold a group ends only once its own user has an answer."""
    w.console()
    held = [await w.ask(f"question {number}") for number in range(4)]
    answers = asyncio.gather(*(w.reply(waiter, 10_000.0) for waiter in held))
    await w.until(lambda: len(open_groups(w)) == 4)
    waiter = await w.ask("one more", stream=True)
    await let(60.0, w)
    assert (len(open_groups(w)), w.group(waiter).phase) == (4, "CLAIMING")
    await let(40.0, w)
    assert [answer.why for answer in await answers] == ["provisional"] * 4
    assert w.group(waiter).phase == "AWAITING_RATING"


async def test_a_held_vote_decides_the_answer_at_the_budget(tmp_path: Path) -> None:
    async with world(tmp_path, configured=mode("hold", window=600.0)) as w:
        w.console()
        ticket = await w.ask()
        [group] = await w.until(lambda: open_groups(w))
        automatic = [candidate.auto_reward or 0.0 for candidate in group.candidates]
        chosen = automatic.index(min(automatic))
        await w.commands.rate(group.group_id, "best", (chosen,))
        answer = asyncio.gather(w.reply(ticket, 10_000.0))
        await let(BUDGETS["answer_budget"] + 5.0, w)
        [reply] = await answer
        assert (reply.why, reply.index) == ("provisional", chosen)


async def test_a_request_asked_again_by_the_operator_ends_no_group(tmp_path: Path) -> None:
    async with full(tmp_path) as w:
        groups = open_groups(w)
        await w.commands.rerun(groups[0].group_id)
        await let(60.0, w)
        assert {group.phase for group in groups} == {"AWAITING_RATING"}
        await w.commands.rate(groups[0].group_id, "best", (2,))
        await w.until(lambda: len(w.state.groups) == 5 and len(open_groups(w)) == 4)


# --- the mock user ------------------------------------------------------------------------------


def announce(w: World, number: int) -> str:
    """Announce a row as the mock user does; return the directive."""
    row = Row(row_id=f"row-{number}", query=f"row {number}", mock_id="m-1")
    directive = w.dispatcher.directive("m-1", for_row=True)
    if directive == "run":
        w.context.rows.register(row)
    return directive


async def test_a_row_waits_for_votes_and_ends_no_group(tmp_path: Path) -> None:
    async with full(tmp_path, count=3) as w:
        groups = open_groups(w)
        assert announce(w, 1) == "run"
        assert announce(w, 2) == "wait"  # row 1 will take the last episodes
        w.context.rows.register(Row(row_id="row-2", query="row 2", mock_id="m-1"))  # all the same
        for number in (1, 2):
            await w.ask(f"row {number}", headers={"x-ajet-row": f"row-{number}"})
        waiter = await w.ask("row 2", headers={"x-ajet-row": "row-2"})  # joins
        await let(400.0, w, step=5.0)
        assert {group.phase for group in groups} == {"AWAITING_RATING"}
        assert len(open_groups(w)) == 4
        await w.commands.rate(groups[0].group_id, "best", (2,))
        await let(6.0, w)
        assert (await w.reply(waiter)).error is None


async def test_rows_that_wait_at_one_server_take_no_room_at_another(tmp_path: Path) -> None:
    async with ScriptedSwarm() as swarm:
        chosen = mode("answer_first")
        async with world(tmp_path, configured=chosen, others={"other": swarm}) as w:
            w.console()
            for number in range(4):  # rows of conversations stay announced between their turns
                row = Row(row_id=f"row-{number}", query="", mock_id="m-1", session=f"c-{number}")
                w.context.rows.register(row)
                await w.reply(await w.ask("row", headers={"x-ajet-row": row.row_id}))
            await w.reply(await w.ask("question", model="other"))
            await w.until(lambda: len(open_groups(w)) == 5)
            assert [group.server for group in open_groups(w)].count("other") == 1
            assert announce(w, 5) == "run"


async def test_rows_are_users_where_the_settings_say_so(tmp_path: Path) -> None:
    async with full(tmp_path, mock_waits=False) as w:
        oldest = open_groups(w)[0]
        assert announce(w, 1) == "run"
        await w.reply(await w.ask("row 1", headers={"x-ajet-row": "row-1"}))
        await w.until(lambda: oldest.unrated)


class Proxy(FakeControl):
    """The control API of a proxy in the same loop."""

    w: World

    async def register_row(self, row: Mapping[str, Any]) -> str:
        found = msgspec.convert(dict(row), Row)
        directive = self.w.dispatcher.directive(found.mock_id, for_row=True)
        if directive == "run":
            self.w.context.rows.register(found)
        return directive


class Application:
    """Sends each question to the proxy once."""

    name, in_session = "application", False

    def __init__(self, w: World) -> None:
        self.w = w
        self.asked: list[str] = []

    async def ask(self, question: Question, *_: Any) -> Answer:
        self.asked.append(question.sent_id)
        waiter = await self.w.ask(question.query, headers=marks(question))
        reply = await self.w.reply(waiter, 10_000.0)
        self.w.context.rows.release(question.sent_id)
        return Answer(error="" if reply.error is None else str(reply.error), text="answer")

    async def end_conversation(self, session: str) -> None: ...

    async def close(self) -> None: ...


@pytest.mark.timeout(600)
async def test_every_row_of_the_mock_user_waits_for_its_vote(home: Home, tmp_path: Path) -> None:
    """Forty rows, and an operator who votes once in 15 s."""
    path = write_rows(tmp_path / "rows.jsonl", 40)
    async with world(tmp_path, configured=mode("answer_first")) as w, Tasks("mock") as tasks:
        w.console()
        control, application = Proxy(), Application(w)
        control.w = w
        with open_dataset(path) as dataset, Progress(home.root, dataset.fingerprint()) as progress:
            runner = Runner(dataset, progress, application, Pace(), RowSelection(), control)
            run = tasks.spawn(runner.run(), "run")
            waited = set()
            for _ in range(50):
                await let(15.0, w, step=5.0)
                waited.add(runner.counters.waiting)
                if groups := [group for group in open_groups(w) if group.rating is None]:
                    await w.commands.rate(groups[0].group_id, "best", (2,))
            await run
        assert (runner.counters.done, runner.counters.failed, runner.counters.retries) == (40, 0, 0)
        assert WAITS_FOR_VOTES in waited
        await w.closed()
        groups = w.state.groups.values()
        assert sorted(application.asked) == sorted({group.row_id for group in groups})
        assert [(group.phase, group.source) for group in groups] == [("DONE", "human")] * 40


async def ask(w: World, n: int, text: str = "hi") -> AnswerWaiter:
    result = {"model": "m", "n": n, "messages": [{"role": "user", "content": text}]}
    return w.groups.admission.admit(read_request(json.dumps(result).encode(), HEADERS, "host"))


@pytest.mark.world(batch=2)
async def test_too_many_choices_are_a_400_before_any_claim(w: World) -> None:
    await w.until(lambda: w.server.watcher.pool)
    with pytest.raises(ApiError, match="n must be at most 8, got 9") as refused:
        await ask(w, 9)
    assert (refused.value.status, refused.value.param) == (400, "n")
    assert not w.kinds(ClaimIntended)
    assert (await w.reply(await ask(w, 8))).answers


@pytest.mark.slow
@pytest.mark.world(batch=64)
async def test_no_request_takes_a_whole_batch(w: World) -> None:
    with pytest.raises(ApiError, match=r"n must be at most 16, got 65. \(parameter=n, value=65"):
        await ask(w, 65)
    assert (await w.reply(await ask(w, 16))).answers


@pytest.mark.world(batch=2)
async def test_the_limit_applies_also_when_the_pool_is_read_later(w: World) -> None:
    await w.until(lambda: w.server.watcher.pool)
    pool, w.server.watcher.pool = w.server.watcher.pool, None
    large = await ask(w, 9)
    w.server.watcher.pool = pool
    small = await ask(w, 1, "another")
    first, second = await asyncio.gather(w.reply(large), w.reply(small))
    assert first.error.status == 400
    assert second.answers


@pytest.mark.world(settings(proxy={"repeats": 20}), batch=2)
async def test_repeats_beyond_the_number_of_episodes_are_reduced_with_an_alert(w: World) -> None:
    assert (await w.reply(await w.ask("hi"))).answers
    await w.closed()
    assert [event.n for event in w.kinds(ClaimIntended)] == [8]
    result = [event for event in w.kinds(AlertRaised) if event.key == "room:s"]
    assert [cause_of(event) for event in result] == [
        "20 candidates are wanted, s has 8 episodes at a time: 8 are used"
    ]


THEIRS = {"client_uuid": "other", "episode_type": "train", "discard_episode_timeout": 240}


class HungrySwarm(ScriptedSwarm):
    """A server with another client, which claims each episode the moment it is free."""

    hungry = False

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.owners: list[str] = []
        """The owner of each aborted episode at the time of the abort, since `hungry`."""

    def abort(self, body: dict[str, Any]) -> dict[str, Any]:
        episode = self.episodes.get(body["episode_uuid"])
        if self.hungry:
            self.owners.append(episode.client if episode is not None else "gone")
        answer = super().abort(body)
        while self.hungry and self.unclaimed:
            self.claim(THEIRS)
        return answer


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ajet_swarm.episodes.claim, "KEEP_AFTER", 0.0)
    monkeypatch.setattr(ajet_swarm.episodes.claim, "KEEP", (20.0, 20.0))


def gathered(w: World) -> bool:
    """Whether the group holds three episodes in a window."""
    (group,) = w.state.open_groups()
    return (
        w.server.claimer.keeping
        and sum(bool(candidate.episode_uuid) for candidate in group.candidates) == 3
    )


@pytest.mark.parametrize("end", ["leave", "deadline"])
async def test_a_group_that_gathers_gives_back_each_episode_once(tmp_path: Path, end: str) -> None:
    seconds = 60.0 if end == "leave" else 0.5
    chosen = settings(proxy={"answer_budget": seconds, "answer_limit": seconds})
    async with HungrySwarm(slots=3) as swarm, world(tmp_path, swarm, chosen) as w:
        ticket = await w.ask()
        await w.until(lambda: gathered(w))
        swarm.hungry = True
        if end == "leave":
            ticket.leave()
        else:
            assert (await w.reply(ticket)).why == "error"
        await w.closed()
        assert await w.server.claimer.ends.tasks.drain(20)
        assert swarm.owners == ["me"] * 3
        assert [one.client for one in swarm.claimed()] == ["other"] * 3
        kinds = [type(kind) for kind in w.kinds(ClaimsReturned, GroupClosed)]
        assert kinds[-2:] == [ClaimsReturned, GroupClosed]


async def test_a_group_with_a_claim_in_flight_gives_back_each_episode_once(tmp_path: Path) -> None:
    async with HungrySwarm(slots=4) as swarm, world(tmp_path, swarm) as w:
        swarm.fail_next("/claim_episode", "late")
        ticket = await w.ask()
        await w.until(
            lambda: (
                sum(bool(candidate.episode_uuid) for candidate in w.group(ticket).candidates) == 3
            )
        )
        swarm.hungry = True
        ticket.leave()
        await w.closed()
        swarm.release()
        assert await w.server.claimer.ends.tasks.drain(20)
        assert swarm.owners == ["me"] * 4
        assert [one.client for one in swarm.claimed()] == ["other"] * 4
