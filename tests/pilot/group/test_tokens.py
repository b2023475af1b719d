"""The token log of a candidate, and the message without one."""

import asyncio

import pytest
from rich.cells import cell_len

from console.screens.tokens.screen import TokensScreen
from console.screens.tokens.text import head_line, token_lines
from console.text.lines import Line
from core.control_payloads import EpisodeTokens, Token, TokenCall
from tests.support.console import (
    HOSTILE,
    FakeLink,
    RunningConsole,
    group_events,
    run_console,
    state_of,
)


def log_of(count: int = 3, text: str | None = " word", prompt: int = 2) -> EpisodeTokens:
    read = tuple(Token(id=number, text="<p>", mask=0) for number in range(prompt))
    drawn = tuple(
        Token(
            id=100 + number,
            text=text if text is None else f"{text}{number}",
            mask=1,
            logprob=-1.0,
            logprob_now=None if text is None else -1.0 + 0.25 * (number - 1),
        )
        for number in range(count)
    )
    call = TokenCall(prompt_tokens=prompt, tokens=read + drawn, step=3)
    return EpisodeTokens(
        episode_uuid="e", state="finished", calls=(call,), task_id="t", reward=0.75, step=5
    )


def link_with(token_log: EpisodeTokens | None) -> FakeLink:
    link = FakeLink(state_of(*group_events(1)))
    link.token_log = token_log
    return link


async def opened(console: RunningConsole) -> None:
    for key, there in (("", "GroupList"), ("enter", "GroupDetail"), ("p", "")):
        if key:
            await console.press(key)
        async with asyncio.timeout(20):
            while there and not console.app.screen.query(there):
                await console.settle()
    await console.settle()


def plain(lines: list[Line]) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines]


@pytest.mark.parametrize("size", [(80, 24), (160, 48)])
async def test_each_token_shows_mask_and_both_log_probs(size: tuple[int, int]) -> None:
    async with run_console(link=link_with(log_of()), size=size, at="requests") as console:
        await opened(console)
        text = console.text()
        for words in (
            "candidate 1 of 4",
            "reward 0.75",
            "now: after 5 updates",
            "2 prompt, 3 trained",
            "sampled after 3 updates",
            "mean log-prob -1.00 → -1.00",
            "2 tokens read, not trained on",
            "' word0'",
            "-1.000",
            "-0.25",
            "+0.25",
        ):
            assert words in text, words
        assert all(cell_len(line) <= size[0] for line in text.splitlines())
        assert ("ratio" in text) is (size[0] > 110)
        group = console.session.state.groups["g0001"]
        assert console.link.token_requests == [(group.candidates[0].episode_uuid, "embedded")]


async def test_keys_show_another_candidate_and_unfold_the_prompt() -> None:
    async with run_console(link=link_with(log_of()), at="requests") as console:
        await opened(console)
        await console.press("right")
        await console.settle()
        assert "candidate 2 of 4" in console.text()
        assert "'<p>'" not in console.text()
        await console.press("z")
        assert "'<p>'" in console.text()
        await console.press("left", "left")
        await console.settle()
        assert "candidate 4 of 4" in console.text()
        await console.press("r")
        assert len(console.link.token_requests) == 5
        await console.press("escape")
        assert not isinstance(console.app.screen, TokensScreen)


async def test_a_long_log_scrolls() -> None:
    async with run_console(link=link_with(log_of(200)), at="requests") as console:
        await opened(console)
        assert "' word0'" in console.text()
        await console.press("end")
        assert "' word199'" in console.text()
        assert "' word0'" not in console.text()
        assert "sampled" in console.text()  # the titles stay
        await console.press("home")
        assert "' word0'" in console.text()


async def test_a_server_without_token_log_is_reported() -> None:
    async with run_console(link=link_with(None), at="requests") as console:
        await opened(console)
        text = console.text()
        assert "this server has no token log" in text
        assert "Only the embedded engine has" in text


async def test_a_candidate_without_an_episode_sends_no_request() -> None:
    link = FakeLink(state_of(*group_events(1, until="QUEUED")))
    link.token_log = log_of()
    async with run_console(link=link, at="requests") as console:
        await opened(console)
        assert "has no episode" in console.text()
        assert link.token_requests == []


async def test_hostile_tokens_stay_text() -> None:
    async with run_console(link=link_with(log_of(4, HOSTILE)), at="requests") as console:
        await opened(console)
        text = console.text()
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "[/b]" in text


async def test_a_read_only_console_shows_tokens() -> None:
    async with run_console(link=link_with(log_of()), at="requests", read_only=True) as console:
        await opened(console)
        assert "3 trained" in console.text()


def test_unknown_values_without_a_policy_are_dashes() -> None:
    lines = plain(token_lines(log_of(2, None), 100, unfolded=True))
    assert "no policy loaded" in lines[0]
    row = next(line for line in lines if line.split()[1:3] == ["100", "1"])
    assert row.split() == ["3", "100", "1", "-1.000", "–", "–", "–"]


def test_the_calls_of_an_episode_are_numbered() -> None:
    result = log_of()
    two = EpisodeTokens(episode_uuid="e", state="live", calls=result.calls * 2)
    lines = plain(token_lines(two, 90, unfolded=False))
    assert [line[:12] for line in lines if "call" in line] == [" call 1 of 2", " call 2 of 2"]
    none = plain(token_lines(EpisodeTokens(episode_uuid="e", state="live", calls=()), 90, False))
    assert none == ["This episode has made no call"]


@pytest.mark.parametrize("width", [60, 80, 109, 110, 160])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    for line in plain(token_lines(log_of(3, HOSTILE), width, unfolded=False)):
        assert cell_len(line) <= max(width, 78), line
    assert cell_len(plain([head_line(width)])[0]) <= width


def test_context_tokens_within_the_answer_are_folded_in_place() -> None:
    rows = tuple(Token(id=at, text=f"t{at}", mask=int(at not in (2, 3))) for at in range(6))
    call = TokenCall(prompt_tokens=0, tokens=rows)
    lines = plain(
        token_lines(EpisodeTokens(episode_uuid="e", state="live", calls=(call,)), 100, False)
    )
    assert "2 tokens read" in lines[3]
    assert "t2t3" in lines[3]
    assert lines[4].split()[0] == "5"
