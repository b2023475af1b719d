"""The whole loop with its real processes: asked, answered, rewarded, trained, killed, recovered."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import openai
import pytest

from ajet_swarm.common.tasks import Tasks
from console.backend.feed import Feed
from console.session.app_state import Session
from console.session.history import read_curves, read_texts
from core.runtime.home import running
from core.state import Group, Server, State
from core.state.brief import brief_groups
from proxy.control.client import ControlClient
from tests.support.alerts import cause_of
from tests.support.stack import Stack, loop_up, rewards_of_best, rows_file, until

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


def client(stack: Stack) -> openai.OpenAI:
    return openai.OpenAI(base_url=stack.base_url, api_key="any", max_retries=0, timeout=120)


QUESTIONS = [
    "Why is the sky blue?",
    "What is the capital of France?",
    "How do I boil an egg?",
    "Tell me a joke.",
    "How do I sleep better?",
    "What is 7 + 8?",
    "Who are you?",
    "What do cows eat?",
]


def settled(stack: Stack) -> None:
    """All groups are over and nothing is claimed."""
    until("all groups closed", lambda: not stack.state().open_groups(), 60)
    until("nothing claimed", lambda: not stack.claimed(), 60)


def new_groups(stack: Stack, before: State) -> list[Group]:
    """Groups that were opened since, oldest first."""
    now = stack.state().groups
    return [group for name, group in now.items() if name not in before.groups]


def server_of(stack: Stack) -> Server:
    return next(iter(stack.state().servers.values()))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The processes of all tests without settings or hooks of their own."""
    with loop_up(tmp_path_factory.mktemp("loop") / "home") as stack:
        yield stack


@pytest.fixture
def loop(shared: Stack) -> Iterator[Stack]:
    """The whole loop with nothing to do."""
    assert running(shared.home, "proxy") is not None, "a test before did not start it again"
    if shared.status()["engine_status"] == "ENGINE.OFFLINE":
        assert shared.run("engine", "start").returncode == 0
    shared.rolling()
    until("the proxy knows it", lambda: server_of(shared).state == "ROLLING")
    yield shared
    settled(shared)


def test_a_stock_client_is_answered_and_the_policy_is_updated(tmp_path: Path, loop: Stack) -> None:
    with client(loop) as openai_client:
        before = loop.state()
        began = loop.step()
        plain = openai_client.chat.completions.create(
            model="any-name", messages=[{"role": "user", "content": "What is 2 + 3?"}]
        )
        assert plain.model == "any-name"
        assert plain.choices[0].message.content
        assert plain.usage is not None
        assert plain.usage.completion_tokens > 0

        pieces, finish, usage = [], None, None
        for chunk in openai_client.chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": "Why is the sky blue?"}],
            stream=True,
            stream_options={"include_usage": True},
        ):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                pieces.append(choice.delta.content or "")
                finish = choice.finish_reason or finish
        assert "".join(pieces)
        assert finish in ("stop", "length")
        assert usage is not None

        dataset = rows_file(tmp_path / "rows.jsonl", 6)
        done = loop.run("run", "mock", str(dataset), "--concurrency", "4")
        assert done.returncode == 0, done.stderr
        until("an update", lambda: loop.step() > began, 60)
        settled(loop)
        state = loop.state()
        assert state.totals.answered - before.totals.answered == 8
        assert state.totals.refused == before.totals.refused
        group = new_groups(loop, before)[0]
        assert len(group.candidates) == 4
        assert all(candidate.reward is not None for candidate in group.candidates)
        assert group.best == max(range(4), key=lambda i: (group.candidates[i].reward or 0, -i))


async def test_the_screen_shows_the_content_of_the_journal(tmp_path: Path, loop: Stack) -> None:
    """A console's own state, fed through a restart of the proxy, against all events on disk."""
    port = str(running(loop.home, "proxy").port)  # type: ignore[union-attr] # it is up
    session = Session()
    url = loop.base_url.removesuffix("/v1")
    before = await asyncio.to_thread(loop.state)
    try:
        async with ControlClient(url, loop.home.token()) as link, Tasks("console") as tasks:
            session.link = link
            tasks.spawn(Feed(session, link).run(), "feed")
            dataset = rows_file(tmp_path / "rows.jsonl", 12)
            await asyncio.to_thread(loop.start, "mock", str(dataset), "--concurrency", "4")
            groups = before.totals.groups + 4
            await eventually(lambda: session.state.totals.groups >= groups)
            await asyncio.to_thread(loop.kill, "proxy")
            await asyncio.to_thread(loop.start, "proxy", "--port", port)
            await eventually(lambda: _ended(session.state, before))
            await asyncio.to_thread(settled, loop)
            await read_texts(session)
            await read_curves(session)
            assert await asyncio.to_thread(loop.stop, "proxy") == 0
            shown = session.state
        stored = await asyncio.to_thread(loop.journal_state, shown.seq)
        brief = brief_groups(stored.groups, 0)  # older groups come without texts at the attachment
        for name, group in shown.groups.items():
            if group.brief:
                stored.groups[name] = brief[name]
        assert shown == stored
    finally:
        if running(loop.home, "proxy") is None:
            await asyncio.to_thread(loop.start, "proxy", "--port", port)


def _ended(state: State, before: State) -> bool:
    """Whether a mock user has ended that was not there before."""
    known = before.mock.mock_id if before.mock else ""
    return bool(state.mock and state.mock.mock_id != known and state.mock.ended_at)


async def eventually(check: Callable[[], object], limit: float = 120.0) -> None:
    async with asyncio.timeout(limit):
        while not check():
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("rows", [32, pytest.param(200, marks=pytest.mark.soak)])
def test_many_rows_headless(tmp_path: Path, loop: Stack, rows: int) -> None:
    dataset = rows_file(tmp_path / "rows.jsonl", rows)

    def ask() -> list[str]:
        """Return answers drawn with fixed seeds; nothing is trained."""
        with httpx.Client(trust_env=False, timeout=60) as http:
            answers = [
                http.post(
                    f"{loop.base_url}/chat/completions",
                    json={
                        "model": "m",
                        "messages": [{"role": "user", "content": question}],
                        "temperature": 1,
                        "seed": seed,
                    },
                    headers={"x-ajet-train": "no"},
                )
                for question in QUESTIONS
                for seed in range(4)
            ]
        return [str(answer.json()["choices"][0]["message"]["content"]) for answer in answers]

    known = len(loop.updates())
    refused = loop.state().totals.refused
    before = ask()
    assert before == ask(), "answers of the same weights and seeds are the same"
    done = loop.run("run", "mock", str(dataset), "--concurrency", "6", limit=240)
    assert done.returncode == 0, done.stderr
    settled(loop)
    state = loop.state()
    assert state.mock is not None
    assert (state.mock.done, state.mock.failed) == (rows, 0)
    assert state.totals.refused == refused
    updates = loop.updates()[known:]
    assert len(updates) >= min(5, rows // 8)
    loop.rolling()
    after = ask()
    assert after != before, "the answers come from the new weights"
    assert any(update["grad_norm"] > 0 for update in updates)


UPDATES = 2
"""Updates under load, for each number of users."""


@pytest.mark.parametrize("users", [pytest.param(3, marks=pytest.mark.soak), 12])
async def test_parallel_users_over_updates(loop: Stack, users: int) -> None:
    """No 5xx and no deadlock."""
    first = loop.step()
    codes: list[int] = []
    stop = time.monotonic() + 120

    async def user(http: httpx.AsyncClient, number: int) -> None:
        turn = 0
        while newest["step"] < first + UPDATES and time.monotonic() < stop:
            turn += 1
            answer = await http.post(
                f"{loop.base_url}/chat/completions",
                json={
                    "model": "m",
                    "messages": [
                        {"role": "user", "content": f"What is {number % 9} + {turn % 9}?"}
                    ],
                    "user": f"{number}-{turn}",
                },
            )
            codes.append(answer.status_code)

    newest = {"step": first}

    async def follow() -> None:
        while newest["step"] < first + UPDATES and time.monotonic() < stop:
            newest["step"] = await asyncio.to_thread(loop.step) or newest["step"]
            await asyncio.sleep(0.1)

    async with (
        httpx.AsyncClient(timeout=100, trust_env=False) as http,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(follow())
        for number in range(users):
            group.create_task(user(http, number))
    assert newest["step"] >= first + UPDATES
    assert set(codes) == {200}


HOOK = "on_compute_relative_reward.py"
HEAD = "async def on_compute_relative_reward(valid_results, all_answers):\n"
GOOD = f"{HEAD}    return [float(i) for i, _ in enumerate(all_answers)]\n"
HOOK_SECONDS = 3


class Hooks:
    """Return the loop with rewards from a file that each test replaces."""

    def __init__(self, stack: Stack, file: Path) -> None:
        self.stack, self.file = stack, file
        self._saves = 0
        self._versions = {""}
        """Those of earlier saves: a process that was killed starts again with one."""

    def use(self, code: str) -> None:
        """Save the hook and wait until it is in use."""
        self._saves += 1
        self._versions.add(self.stack.state().rewards.version)
        self.file.write_text(f"{code}# save {self._saves}\n")
        until("it is in use", lambda: self.stack.state().rewards.version not in self._versions)
        self._versions.add(self.stack.state().rewards.version)


@pytest.fixture(scope="module")
def hooked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hooks]:
    root = tmp_path_factory.mktemp("hooked")
    for name in ("hooks", "home"):
        (root / name).mkdir()
    (root / "hooks" / HOOK).write_text(GOOD)
    (root / "home" / "config.yaml").write_text(f"rewards:\n  time_limit: {HOOK_SECONDS}\n")
    with loop_up(root / "home", "--hooks", str(root / "hooks")) as stack:
        until("the hooks are in use", lambda: stack.state().rewards.version)
        yield Hooks(stack, root / "hooks" / HOOK)


def test_a_client_that_leaves_frees_its_episodes(hooked: Hooks) -> None:
    stack = hooked.stack
    hooked.use(f"import asyncio\n{HEAD}    await asyncio.sleep(600)\n")
    before = stack.state()
    with httpx.Client(timeout=60, trust_env=False) as http:
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
        with http.stream("POST", f"{stack.base_url}/chat/completions", json=body) as answer:
            assert answer.status_code == 200
            next(answer.iter_bytes())
            until("four claimed", lambda: len(stack.claimed()) == 4)
        until("given back", lambda: not stack.claimed())
    group = until("closed", lambda: [g for g in new_groups(stack, before) if not g.open])[0]
    assert group.phase == "ABORTED"
    assert not group.abstained, "it was over before the hook was"


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("raise ValueError('broken here')", "broken here"),
        ("return [1.0]", "4"),
        ("return [float('nan')] * len(all_answers)", "nan"),
        ("import time; time.sleep(600)", f"within {HOOK_SECONDS} s"),
    ],
)
def test_a_bad_hook_never_makes_a_reward(hooked: Hooks, code: str, result: str) -> None:
    stack = hooked.stack
    hooked.use(f"{HEAD}    {code}\n")
    before = stack.state()
    with client(stack) as openai_client:
        answer = openai_client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "What is 1 + 1?"}]
        )
    assert answer.choices[0].message.content
    group = until("abstained", lambda: [g for g in new_groups(stack, before) if g.abstained], 30)[0]
    assert result in group.abstained.lower() + group.traceback.lower()
    settled(stack)
    group = stack.state().groups[group.group_id]
    assert group.phase == "ABORTED"
    assert all(candidate.reward is None for candidate in group.candidates)
    assert not any(candidate.phase == "ended" for candidate in group.candidates)


def traceback_of_fault(stack: Stack) -> str:
    fault = stack.state().rewards.fault
    return "" if fault is None else fault.traceback


def test_a_broken_save_shows_its_traceback_and_the_old_version_stays_in_use(hooked: Hooks) -> None:
    stack = hooked.stack
    hooked.use(GOOD)
    before = stack.state()
    hooked.file.write_text(GOOD.replace("return", "retrun"))
    until("an alert", lambda: "retrun" in traceback_of_fault(stack), 60)
    alert = stack.state().alerts["rewards"]
    assert "SyntaxError" in cause_of(alert)
    assert f"{HOOK}:2" in cause_of(alert)
    with client(stack) as openai_client:
        openai_client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "What is 1 + 1?"}]
        )
    settled(stack)
    group = new_groups(stack, before)[0]
    assert not group.abstained
    assert [candidate.reward for candidate in group.candidates] == [0.0, 1.0, 2.0, 3.0]
    hooked.file.write_text(GOOD)
    until("the alert is gone", lambda: "rewards" not in stack.state().alerts, 60)


def test_rate_and_abort_by_command(loop: Stack) -> None:
    assert loop.run("rating", "mode", "answer_first").returncode == 0
    try:
        with client(loop) as openai_client:
            for _ in range(2):
                openai_client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": "What is 5 + 5?"}]
                )
        waiting = until("two wait", lambda: (g := loop.state().waiting()) and len(g) == 2 and g)
        rated, aborted = waiting
        done = loop.run("rate", rated.group_id, "3")
        assert done.returncode == 0, done.stderr
        done = loop.run("abort", aborted.group_id, "--reason", "debugging", "--yes")
        assert done.returncode == 0, done.stderr
        settled(loop)
        groups = loop.state().groups
        closed = groups[rated.group_id]
        assert [candidate.reward for candidate in closed.candidates] == rewards_of_best(closed, 2)
        assert groups[rated.group_id].source == "human"
        assert groups[aborted.group_id].phase == "ABORTED"
        late = loop.run("rate", rated.group_id, "1")
        assert late.returncode == 1
        assert "Traceback" not in late.stderr
    finally:
        assert loop.run("rating", "mode", "off").returncode == 0


def test_status_json_counts_claimed_episodes(loop: Stack) -> None:
    body = json.loads(loop.run("status", "--json").stdout)
    assert body["proxy"]["url"] in loop.base_url
    assert json.dumps(body).count("ROLLING")
    assert loop.run("engine", "stop", "--yes").returncode == 0
    until("OFFLINE", lambda: loop.status()["engine_status"] == "ENGINE.OFFLINE")
    answer = httpx.post(
        f"{loop.base_url}/chat/completions",
        json={"model": "m", "messages": [{"role": "user", "content": "x"}]},
        trust_env=False,
    )
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
