"""kill -9 of the proxy right after it has acknowledged a vote: the vote is still sent."""

from pathlib import Path

import httpx
import pytest

from core.runtime.home import running
from core.state import Group
from tests.support.stack import Stack, rewards_of_best, until

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]


def ask(stack: Stack, text: str) -> None:
    """One question, answered before its group is rated."""
    body = {"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": text}]}
    url = f"{stack.base_url}/chat/completions"
    answer = httpx.post(url, json=body, trust_env=False, timeout=110)
    assert answer.status_code == 200, answer.text


def rate(stack: Stack, group: Group) -> None:
    """Vote, and kill the proxy as soon as the vote is acknowledged."""
    info = running(stack.home, "proxy")
    assert info is not None
    headers = {"authorization": f"Bearer {stack.home.token()}"}
    vote = {"group_id": group.group_id, "rating": "best", "order": [1], "rater": "ada"}
    url = f"{info.url}/control/commands/group.rate"
    response = httpx.post(url, json=vote, headers=headers, trust_env=False, timeout=60)
    stack.kill("proxy")
    assert response.status_code == 200, response.text


@pytest.mark.parametrize("kills", [1, pytest.param(50, marks=pytest.mark.soak)])
def test_no_acknowledged_vote_is_lost(tmp_path: Path, kills: int) -> None:
    lost = []
    with Stack(tmp_path / "home") as stack:
        stack.environment["AJET_CONSOLE__RATING__MODE"] = "answer_first"
        stack.engine()
        stack.proxy()
        assert stack.run("engine", "start").returncode == 0
        stack.rolling()
        for number in range(kills):
            ask(stack, f"question {number}")
            (group,) = until("it waits", lambda: stack.state().waiting(), 60)
            rate(stack, group)
            stack.proxy()
            name = group.group_id
            until("it is over", lambda: not stack.state().groups[name].open, 90)  # noqa: B023
            closed = stack.state().groups[name]
            rewards = [candidate.reward for candidate in closed.candidates]
            if closed.source != "human" or rewards != rewards_of_best(closed, 1):
                lost.append((name, closed.phase, closed.cause, closed.source, rewards))
            until("nothing is claimed", lambda: not stack.claimed(), 60)
    print(f"{len(lost)} of {kills} votes lost")
    assert not lost
