"""What happens to a request before it claims: sent again, helper calls, sessions, caps, turns."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from core.dialects.errors import ApiError
from core.events import (
    AlertCleared,
    AlertRaised,
    AnswerReturned,
    GroupOpened,
    GroupScored,
    RequestJoined,
    RequestRefused,
    RequestReplayed,
)
from proxy.dataset_rows import Row
from proxy.dialects.chat.request import read_request
from proxy.groups.answer import AnswerWaiter
from tests.support.alerts import cause_of
from tests.support.capped_clock import loop_time
from tests.support.proxy.world import FAST, HEADERS, World, sent, settings, world

pytestmark = pytest.mark.slow


TOOLS = [{"type": "function", "function": {"name": "ls", "parameters": {}}}]


TITLE = "You are a title generator. You output ONLY a thread title. Nothing else."


async def say(w: World, messages: list[Any], headers: Any = None, **body: Any) -> AnswerWaiter:
    data = json.dumps({"model": "m", "messages": messages, **body}).encode()
    return w.groups.admission.admit(read_request(data, {**HEADERS, **(headers or {})}, "host"))


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


# --- sent again ---------------------------------------------------------------------------------


async def test_a_request_in_flight_is_joined_and_the_operator_sees_it(w: World) -> None:
    w.swarm.delay = 0.05
    first, second = await w.ask("same"), await w.ask("same")
    assert first.group_id == second.group_id
    assert await w.reply(first) is await w.reply(second)
    await w.closed()
    assert len(w.kinds(RequestJoined)) == len(w.kinds(GroupOpened)) == 1
    assert (w.group(first).joined, w.state.totals.joined) == (1, 1)


async def test_an_answer_that_was_not_delivered_is_given_to_the_retry(w: World) -> None:
    first = await w.ask("same")
    while (value := await first.next(1.0)) is None:
        pass
    first.leave()  # the connection broke in the midst of it
    again = await w.ask("same")
    assert again.group_id == first.group_id
    assert await w.reply(again) == value
    await w.closed()
    after = await w.ask("same")  # asked on purpose: another sample
    assert after.group_id != first.group_id
    await w.reply(after)
    await w.closed()
    assert len(w.swarm.claims) == 8
    assert [event.group_id for event in w.kinds(RequestReplayed)] == [first.group_id]
    assert (w.group(first).replayed, w.state.totals.replayed) == (1, 1)
    assert sorted(len(rewards) for rewards in sent(w.swarm).values()) == [4, 4]  # none twice


@pytest.mark.world(limits={**FAST, "leave_grace": 60.0})
async def test_an_answer_whose_client_had_just_left_is_kept_for_its_retry(w: World) -> None:
    w.swarm.delay = 0.02
    first = await w.ask("same")
    await w.open("GENERATING")
    first.leave()  # the answer arrives before the run is cancelled
    await w.until(lambda: w.group(first).best is not None)
    again = await w.ask("same")
    assert again.group_id == first.group_id
    assert (await w.reply(again)).index == 3
    await w.closed()
    assert len(w.kinds(GroupOpened)) == 1


async def test_a_delivered_answer_is_replayed_only_to_a_marked_retry(w: World) -> None:
    first = await w.ask("same")
    value = await w.reply(first)
    retry = await w.ask("same", {"x-stainless-retry-count": "1"})
    assert retry.group_id == first.group_id
    assert await w.reply(retry) == value
    row = await w.ask("same", {"x-ajet-row": "r1"})
    assert row.group_id != first.group_id
    other = await w.ask("same", {"authorization": "Bearer other", **{"x-session-id": "s"}})
    assert other.group_id not in (first.group_id, row.group_id)
    for ticket in (row, other):
        await w.reply(ticket)
    await w.closed()


@pytest.mark.world(settings(proxy={"replay": "off"}))
async def test_nothing_is_replayed_when_replay_is_off(w: World) -> None:
    first = await w.ask("same")
    while await first.next(1.0) is None:
        pass
    again = await w.ask("same", {"x-stainless-retry-count": "1"})
    assert again.group_id != first.group_id
    await w.reply(again)
    await w.closed()


# --- helper calls -------------------------------------------------------------------------------


async def test_a_title_call_is_answered_once_and_not_trained_on(w: World) -> None:
    mark = {"x-session-id": "ses_1"}
    title = [{"role": "system", "content": TITLE}, user("Generate a title:"), user("hi")]
    own = {"temperature": 0.3, "seed": 1}
    helper, main = await asyncio.gather(
        say(w, title, mark, **own), say(w, [user("hi")], mark, tools=TOOLS, **own)
    )
    await w.reply(helper)
    await w.reply(main)
    await w.closed()
    one, other = w.group(helper), w.group(main)
    assert (one.helper, one.episode_type, one.n, one.turn) == ("opencode-title", "eval", 1, 0)
    assert one.cause == "not trained on: helper call opencode-title"
    assert (other.helper, other.episode_type, other.turn) == ("", "train", 1)
    assert one.session == other.session == "ses_1"
    assert len(w.swarm.claims) == 5
    bodies = [body for _, body, _ in w.swarm.chats]
    alone = [body for body in bodies if "tools" not in body]
    assert [{name: body[name] for name in own} for body in alone] == [own]
    assert not any(set(own) & set(body) for body in bodies if "tools" in body)
    assert [len(rewards) for rewards in sent(w.swarm).values()] == [4]
    assert w.state.totals.helpers == 1


async def test_a_request_of_a_judge_is_not_judged(w: World) -> None:
    ticket = await say(w, [user("How good?")], {"x-ajet-train": "no", "x-ajet-judge": "yes"})
    await w.closed()
    assert (w.group(ticket).helper, w.group(ticket).phase) == ("judge", "DONE")
    assert not w.kinds(GroupScored)


async def test_requests_that_are_never_helper_calls(w: World) -> None:
    title = [{"role": "system", "content": TITLE}, user("hi")]
    result = await say(w, title, {"x-ajet-train": "yes"})
    w.context.rows.register(Row(row_id="r1", query="hi"))
    row = await say(w, title, {"x-ajet-row": "r1"})
    recap = "Summarize what was done in this conversation"
    w.context.rows.register(Row(row_id="r2", query=recap))
    words = await say(w, [user(recap)])
    for ticket in (result, row, words):
        await w.reply(ticket)
        assert (w.group(ticket).helper, w.group(ticket).n) == ("", 4)
    await w.closed()


async def test_a_title_request_does_not_take_a_dataset_row(w: World) -> None:
    title = [{"role": "system", "content": TITLE}, user("hi")]
    for mark, session in ({}, ""), ({"x-ajet-session": "s1"}, "s1"):
        w.context.rows.register(Row(row_id="r1", query="hi", reference="5", session=session))
        helper = await say(w, title, mark)
        main = await say(w, [user("hi")], mark, tools=TOOLS)
        for ticket, row_id, reference in (helper, "", None), (main, "r1", "5"):
            await w.reply(ticket)
            group = w.group(ticket)
            assert (group.row_id, group.reference) == (row_id, reference)
        assert w.group(helper).helper == "opencode-title"
    await w.closed()


async def test_all_requests_of_a_session_belong_to_its_row_and_a_dry_row_is_not_trained_on(
    tmp_path: Path,
) -> None:
    mark = {"x-ajet-session": "s1"}
    async with world(tmp_path) as w:
        w.context.rows.register(Row(row_id="r1", query="hi", reference="5", session="s1"))
        for text in ("<note/> hi, please", "and now?"):
            ticket = await say(w, [user(text)], mark)
            await w.reply(ticket)
            group = w.group(ticket)
            assert (group.row_id, group.reference, group.episode_type) == ("r1", "5", "train")
        w.context.rows.register(Row(row_id="dry", query="hello", session="s2", train=False))
        ticket = await say(w, [user("other words")], {"x-ajet-session": "s2"})
        await w.reply(ticket)
        assert (w.group(ticket).row_id, w.group(ticket).episode_type) == ("dry", "eval")
        await w.closed()
    assert len(w.swarm.claims) == 9


@pytest.mark.world(settings(proxy={"helpers": False}))
async def test_helper_calls_are_not_detected_when_the_setting_is_off(w: World) -> None:
    title = [{"role": "system", "content": TITLE}, user("hi")]
    ticket = await say(w, title)
    await w.reply(ticket)
    assert w.group(ticket).episode_type == "train"
    await w.closed()


async def test_a_request_without_tools_in_an_agents_session_is_a_helper_call(w: World) -> None:
    mark, asks = {"session-id": "s"}, [user("Write a short title for our chat.")]
    before = await say(w, asks, mark)
    await w.reply(before)
    await w.reply(await say(w, [user("hi")], mark, tools=TOOLS))
    after = await say(w, [user("Write a short title of our chat.")], mark)
    await w.reply(after)
    await w.closed()
    assert (w.group(before).helper, w.group(after).helper) == ("", "beside-an-agent")


# --- sessions -----------------------------------------------------------------------------------


async def test_turns_of_a_named_session_are_counted(w: World) -> None:
    mark = {"x-claude-code-session-id": "cc-1"}
    turns = []
    for number in range(3):
        ticket = await w.ask(f"q{number}", mark)
        await w.reply(ticket)
        turns.append((w.group(ticket).session, w.group(ticket).turn))
    assert turns == [("cc-1", 1), ("cc-1", 2), ("cc-1", 3)]
    await w.closed()


async def test_turns_of_a_conversation_without_a_session_name_are_matched(w: World) -> None:
    first = await say(w, [user("hi")])
    reply = await w.reply(first)
    other = await say(w, [user("hi")])
    await w.reply(other)
    back = {"role": "assistant", "content": [{"type": "text", "text": reply.answer.text}]}
    second = await say(w, [user("hi"), back, user("go on")])
    await w.reply(second)
    await w.closed()
    assert w.group(first).session.startswith("c-")
    assert w.group(second).turn == 2
    assert w.group(second).session in (w.group(first).session, w.group(other).session)
    assert w.group(first).session != w.group(other).session
    assert w.kinds(GroupOpened)[-1].session == w.group(second).session


# --- caps ---------------------------------------------------------------------------------------


@pytest.mark.world(settings(proxy={"session_calls": 3}), limits={**FAST, "alert_time": 0.3})
async def test_a_session_over_its_limit_gets_429_before_anything_is_claimed(w: World) -> None:
    w.groups.admission.sessions._clock = asyncio.get_running_loop().time
    mark = {"x-session-id": "wild\x1b one"}
    for number in range(3):
        await w.reply(await w.ask(f"q{number}", mark))
    await w.closed()
    claims = len(w.swarm.claims)
    for number in range(5):
        began = loop_time()
        with pytest.raises(ApiError) as refused:
            await w.ask(f"more {number}", mark)
        assert loop_time() - began < 0.05
        assert refused.value.status == 429
        assert refused.value.retry_after in (59, 60)
    await w.complete("other", {"x-session-id": "tame"})
    assert len(w.swarm.claims) == claims + 4
    (alert,) = w.kinds(AlertRaised)
    assert "wildone" in cause_of(alert)
    assert "3 requests a minute" in cause_of(alert)
    assert len(w.kinds(RequestRefused)) == 5
    await w.until(lambda: w.kinds(AlertCleared))
    assert not w.state.alerts


@pytest.mark.world(settings(proxy={"session_cap": 2}))
async def test_open_requests_of_a_session_are_capped(w: World) -> None:
    w.swarm.delay = 30.0
    mark = {"x-session-id": "s"}
    tickets = [await w.ask(f"q{number}", mark) for number in range(2)]
    with pytest.raises(ApiError, match="2 open requests"):
        await w.ask("q2", mark)
    joined = await w.ask("q1", mark)  # no request more
    assert joined.group_id == tickets[1].group_id
    for ticket in (*tickets, joined):
        ticket.leave()
    await w.closed()
    w.swarm.delay = 0.0
    await w.complete("q3", mark)


@pytest.mark.world(settings(proxy={"session_calls": 4}))
async def test_the_limit_also_applies_to_conversations_without_a_session_name(w: World) -> None:
    history = [user("do it")]
    for number in range(4):
        reply = await w.reply(await say(w, history, tools=TOOLS))
        history += [{"role": "assistant", "content": reply.answer.text}]
        history += [user(f"You did not use a tool ({number})")]
    with pytest.raises(ApiError) as refused:
        await say(w, history, tools=TOOLS)
    assert refused.value.status == 429
    assert len(w.kinds(GroupOpened)) == 4
    for number in range(9):  # rows of a dataset, all alike
        await w.reply(await say(w, [user("do it")], {"x-ajet-row": f"r{number}"}))
    await w.closed()


@pytest.mark.world(settings(proxy={"max_groups": 1}), slots=64)
async def test_groups_in_flight_are_bounded_and_sessions_take_turns(w: World) -> None:
    w.swarm.delay = 0.02
    flood = [await w.ask(f"a{number}", {"x-session-id": "a"}) for number in range(6)]
    lone = await w.ask("b0", {"x-session-id": "b"})
    await asyncio.gather(*(w.reply(ticket) for ticket in (*flood, lone)))
    await w.closed()
    order = [w.state.groups[event.group_id].query for event in w.kinds(AnswerReturned)]
    assert order.index("b0") <= 2
    assert [name for name in order if name != "b0"] == [f"a{number}" for number in range(6)]
    assert w.swarm.most_claimed <= 4


@pytest.mark.world(settings(proxy={"queue_limit": 2}), state="WEIGHT_SYNCING", automatic=False)
async def test_a_full_queue_refuses_at_once(w: World) -> None:
    tickets = [await w.ask(f"q{number}") for number in range(2)]
    began = loop_time()
    with pytest.raises(ApiError) as refused:
        await w.ask("q2")
    assert loop_time() - began < 0.05
    assert (refused.value.status, refused.value.retry_after) == (503, 2)
    assert not w.swarm.claims
    w.swarm.finish_sync()  # those that queued are answered
    for ticket in tickets:
        assert (await w.reply(ticket)).index == 3
    await w.closed()


@pytest.mark.world(settings(proxy={"max_groups": 1}))
async def test_a_client_that_leaves_the_queue_passes_on_its_turn(w: World) -> None:
    w.swarm.delay = 30.0
    first = await w.ask("first")
    await w.open("GENERATING")
    second, third = await w.ask("second"), await w.ask("third")
    second.leave()
    w.swarm.delay = 0.0
    first.leave()
    assert (await w.reply(third)).index == 3
    await w.closed()


@pytest.mark.world(slots=4, repeat=2, automatic=False)
async def test_a_small_group_passes_many_large_ones_that_claim_in_vain(w: World) -> None:
    for number in range(36):
        await w.ask(f"large {number}", n=6)
    await w.until(lambda: w.swarm.refusals)
    small = await w.ask("small")
    assert (await w.reply(small)).why == "winner"
    still = sum(group.query.startswith("large") for group in w.state.open_groups())
    assert still == 36


async def test_the_same_request_in_flight_need_not_be_joined(w: World) -> None:
    headers = {"x-ajet-join": "No"}
    w.swarm.delay = 0.05
    first, second = await w.ask("same", headers), await w.ask("same", headers)
    assert first.group_id != second.group_id
    retry = await w.ask("same", {**headers, "x-stainless-retry-count": "1"})
    assert retry.group_id == second.group_id
    for ticket in (first, second, retry):
        assert (await w.reply(ticket)).answers
    await w.closed()
    assert len(w.kinds(GroupOpened)) == 2


async def test_a_session_that_repeats_itself_at_once_gets_the_same_answer(w: World) -> None:
    mark = {"x-session-id": "ses_1"}
    first = await w.ask("same", mark)
    value = await w.reply(first)
    again = await w.ask("same", mark)
    assert await w.reply(again) == value
    own = await w.ask("same", {**mark, "x-ajet-join": "no"})
    row = await w.ask("same", {**mark, "x-ajet-row": "r1"})
    bare = await w.ask("same", {"authorization": "Bearer other"})
    for ticket in (own, row, bare):
        assert ticket.group_id != first.group_id
        await w.reply(ticket)
    await w.closed()


@pytest.mark.world(batch=400, slots=8)
async def test_one_busy_session_does_not_keep_another_one_waiting(w: World) -> None:
    """Two groups fit at a time: the one of another session waits for about one of them."""
    w.swarm.delay = 0.15
    busy = [await w.ask(f"a{number}", {"x-session-id": "a"}) for number in range(24)]
    await w.until(lambda: len(w.swarm.chats) >= 8 and w.server.claimer.queue.starved)
    before = len([group for group in w.state.groups.values() if not group.open])
    other = await w.ask("b", {"x-session-id": "b"})
    await w.reply(other)
    after = len([group for group in w.state.groups.values() if not group.open])
    assert after - before <= 6
    assert w.state.groups[busy[-1].group_id].open
    for ticket in busy:
        ticket.leave()
    await w.closed()
