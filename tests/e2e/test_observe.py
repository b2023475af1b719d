"""Observe mode with its real processes: fan-out, rating, streams, an upstream in trouble, kills."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from core.state import Group
from tests.support.scripted.openai import Failure, ScriptedOpenAI, in_thread
from tests.support.stack import Stack, until
from tests.support.stored import stored_bytes

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

KEY = "key-of-the-upstream-0123456789"
ASKED = [{"role": "user", "content": "What is 2 + 3?"}]


@contextmanager
def observing(root: Path, upstream: ScriptedOpenAI, *args: str) -> Iterator[Stack]:
    """A proxy in front of the upstream, with its key in a file."""
    file = root / "key"
    root.mkdir(exist_ok=True)
    file.write_text(upstream.key or "none\n")
    with Stack(root / "home") as stack:
        stack.proxy("--upstream", upstream.url, "--upstream-key-file", str(file), *args)
        until("seen", lambda: observes(stack))
        yield stack


def observes(stack: Stack) -> bool:
    """Whether the last check of the upstream succeeded."""
    server = stack.state().servers["upstream"]
    return server.state == "OBSERVING" and not server.lost


def client(stack: Stack) -> openai.OpenAI:
    return openai.OpenAI(base_url=stack.base_url, api_key="any", max_retries=0, timeout=60)


def closed(stack: Stack, count: int = 1) -> list[Group]:
    def all_closed() -> list[Group] | None:
        state = stack.state()
        return None if state.open_groups() else list(state.groups.values())

    groups = until("all groups closed", all_closed)
    assert len(groups) == count
    return groups


def test_a_request_is_rated_and_recorded_and_the_key_stays_secret(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.yaml").write_text("rating:\n  window: 60\n")  # `accept` comes before it is over
    with in_thread(ScriptedOpenAI(key=KEY)) as upstream, observing(tmp_path, upstream) as stack:
        with client(stack) as asking:
            answer = asking.chat.completions.create(model="mine", messages=ASKED, seed=1)  # type: ignore[arg-type]
            assert answer.model == "mine"
            assert (answer.choices[0].message.content or "").startswith("answer ")
            (group,) = closed(stack)
            assert group.phase == "DONE"
            assert [candidate.phase for candidate in group.candidates] == ["recorded"] * 4
            assert len(upstream.calls) == 4

            pieces = [
                choice.delta.content or ""
                for chunk in asking.chat.completions.create(
                    model="mine",
                    messages=[*ASKED, {"role": "user", "content": "And 4?"}],  # type: ignore[arg-type]
                    stream=True,
                )
                for choice in chunk.choices
            ]
            assert "".join(pieces).startswith("answer ")
            assert stack.run("rating", "mode", "answer_first").returncode == 0
            asking.chat.completions.create(
                model="mine",
                messages=[{"role": "user", "content": "Which is best?"}],
            )
            waiting = until("one waits", lambda: stack.state().waiting())
            rated = stack.run("rate", waiting[0].group_id, "3")
            assert rated.returncode == 0, rated.stderr
            assert stack.run("accept", waiting[0].group_id).returncode == 0
        groups = closed(stack, 3)
        assert groups[-1].source == "human"
        assert [candidate.reward for candidate in groups[-1].candidates] == [0.0, 0.0, 1.0, 0.0]
        status = json.loads(stack.run("status", "--json").stdout)
        assert status["servers"][0]["state"] == "OBSERVING"
        refused = stack.run("engine", "stop", "--yes")
        assert refused.returncode == 1
        assert "nothing is trained" in refused.stderr

        assert stack.stop("proxy") == 0
        stored = [file for file in stack.home.root.rglob("*") if file.is_file()]
        assert stored
        assert not [file for file in stored if KEY.encode() in stored_bytes(file)]


def test_a_client_that_leaves_frees_the_upstream(tmp_path: Path) -> None:
    with in_thread(ScriptedOpenAI()) as upstream, observing(tmp_path, upstream) as stack:
        upstream.gate = asyncio.Event()
        with httpx.Client(timeout=60, trust_env=False) as http:
            body = {"model": "m", "stream": True, "messages": ASKED}
            with http.stream("POST", f"{stack.base_url}/chat/completions", json=body) as answer:
                next(answer.iter_bytes())
                until("four run", lambda: upstream.running == 4)
            until("all cancelled", lambda: upstream.cancelled == 4)
        assert closed(stack)[0].phase == "ABORTED"


def test_a_failing_upstream(tmp_path: Path) -> None:
    answers: list[Any] = []

    async def answer(body: dict[str, Any], index: int) -> Any:
        return answers[0] if answers else "fine"

    with in_thread(ScriptedOpenAI()) as upstream:
        upstream.answer = answer
        with observing(tmp_path, upstream) as stack, client(stack) as asking:

            def send_chat(text: str) -> Any:
                return asking.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": text}]
                )

            answers[:] = [Failure(429, "slow down", {"Retry-After": "60"})]
            with pytest.raises(openai.RateLimitError) as limited:
                send_chat("one")
            assert limited.value.response.headers["retry-after"] == "60"
            answers[:] = [Failure(401, "bad key")]
            with pytest.raises(openai.InternalServerError) as unauthorized:
                send_chat("two")
            assert unauthorized.value.status_code == 502
            until("said", lambda: "upstream:upstream" in stack.state().alerts, 60)
            answers[:] = [Failure(400, "This model's maximum context length is 9 tokens.")]
            with pytest.raises(openai.BadRequestError, match="maximum context length is 9 tokens"):
                send_chat("three")
            answers.clear()
            assert send_chat("four").choices[0].message.content == "fine"


def test_an_upstream_that_restarts(tmp_path: Path) -> None:
    with Stack(tmp_path / "home") as stack:
        with in_thread(ScriptedOpenAI()) as upstream:
            port = upstream.port
            stack.proxy("--upstream", upstream.url)
            until("seen", lambda: stack.state().servers["upstream"].state == "OBSERVING")
            health = f"{stack.base_url.removesuffix('/v1')}/health"
            assert httpx.get(health, timeout=60, trust_env=False).status_code == 200
        until("lost", lambda: stack.state().servers["upstream"].lost, 20, every=0.2)
        with httpx.Client(timeout=60, trust_env=False) as http:
            until("down", lambda: http.get(health).status_code == 503, 90, every=0.2)
        answer = httpx.post(
            f"{stack.base_url}/chat/completions",
            json={"model": "m", "messages": ASKED},
            trust_env=False,
        )
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) > 0
        with in_thread(ScriptedOpenAI(port=port)):
            until("seen again", lambda: not stack.state().servers["upstream"].lost, 20, every=0.2)
            with client(stack) as asking:
                done = asking.chat.completions.create(model="m", messages=ASKED)  # type: ignore[arg-type]
                assert done.choices[0].message.content


def test_killed_and_started_again(tmp_path: Path) -> None:
    with in_thread(ScriptedOpenAI()) as upstream, observing(tmp_path, upstream) as stack:
        upstream.gate = asyncio.Event()
        with httpx.Client(timeout=60, trust_env=False) as http:
            body = {"model": "m", "stream": True, "messages": ASKED}
            with http.stream("POST", f"{stack.base_url}/chat/completions", json=body) as answer:
                next(answer.iter_bytes())
                until("four run", lambda: upstream.running == 4)
                stack.kill("proxy")
        until("all cancelled", lambda: upstream.cancelled == 4, 60)
        upstream.gate = None
        stack.proxy("--upstream", upstream.url)
        until("seen again", lambda: observes(stack))
        (group,) = closed(stack)
        assert group.phase == "ABORTED"
        assert "the proxy ended" in group.cause
        with client(stack) as asking:
            done = asking.chat.completions.create(model="m", messages=ASKED)  # type: ignore[arg-type]
            assert done.choices[0].message.content
        assert closed(stack, 2)[-1].phase == "DONE"


def test_flags_that_exclude_each_other(tmp_path: Path) -> None:
    with Stack(tmp_path / "home") as stack:
        both = stack.run("run", "proxy", "--upstream", "http://x:1", "--swarm-url", "http://y:2")
        assert both.returncode == 2
        assert "exclude each other" in both.stderr
        bad = stack.run("run", "proxy", "--port", "0", "--upstream", "http://me:secretly@x:1")
        assert bad.returncode == 1
        assert "secretly" not in bad.stderr
