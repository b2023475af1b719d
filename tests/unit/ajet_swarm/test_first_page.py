"""The examples of the page for authors of scripts, and of the package, run as they stand."""

import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import ajet_swarm
from ajet_swarm.client.synchronous import SwarmClient
from ajet_swarm.compat import SwarmClient as AgentJetClient
from ajet_swarm.protocol.errors import EpisodeLost
from ajet_swarm.protocol.models import Task, WorkflowOutput
from ajet_swarm.protocol.schemas import EndKind
from tests.support.scripted.threaded_swarm import ThreadedSwarm, threaded_swarm

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "library" / "README.md"
SCREEN = 42
"""Lines of the page."""


@pytest.fixture
def swarm(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadedSwarm]:
    with threaded_swarm(batch=4, repeat=4, state="OFFLINE") as swarm:
        monkeypatch.setenv("AJET_SWARM_URL", swarm.url)
        yield swarm
        assert not swarm.server.claimed()


def run(example: str) -> None:
    exec(compile(example, str(PAGE), "exec"), {"__name__": "example"})


def test_the_first_page_fits_one_screen_and_its_example_runs(swarm: ThreadedSwarm) -> None:
    text = PAGE.read_text("utf-8")
    assert len(text.splitlines()) <= SCREEN
    [example] = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    run(example)
    assert len(swarm.server.reward_log) == 16
    assert swarm.server.chats


def test_the_example_of_the_package_runs(swarm: ThreadedSwarm) -> None:
    example = re.search(r"(?:^ {4}.*\n|^\n(?= {4}))+", ajet_swarm.__doc__ or "", re.MULTILINE)
    assert example is not None
    run(textwrap.dedent(example[0]))
    assert len(swarm.server.reward_log) == 1


def test_a_late_reward_raises_but_not_for_a_script_of_agentjet(swarm: ThreadedSwarm) -> None:
    swarm.server.automatic = False
    swarm.do(lambda: swarm.server.set_state("ROLLING"))
    with SwarmClient(swarm.url) as client, AgentJetClient(swarm.url) as lenient:
        ours, _ = client.begin_episode()
        theirs, _ = lenient.begin_episode()
        swarm.do(lambda: swarm.server.set_state("WEIGHT_SYNCING"))
        with pytest.raises(EpisodeLost, match="syncing"):
            client.end_episode(Task(task_id="t"), ours, WorkflowOutput(reward=1))
        outcome = lenient.end_episode(Task(task_id="t"), theirs, WorkflowOutput(reward=1))
        assert outcome.kind is EndKind.SYNCING


SCRIPT = """
import signal, sys, time
from ajet_swarm import SwarmClient

{handler}
with SwarmClient(sys.argv[1]) as client:
    for _ in range(4):
        client.begin_episode()
    print("ready", flush=True)
    while True:
        time.sleep(0.1)  # a signal just before a long sleep would wait for its end
"""


def test_a_script_with_the_handler_of_the_page_gives_back_all_at_sigterm(
    swarm: ThreadedSwarm,
) -> None:
    swarm.do(lambda: swarm.server.set_state("ROLLING"))
    page = PAGE.with_name("details.md").read_text("utf-8")
    [handler] = re.findall(r"`(signal\.signal\(.*?\))`", page)
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(handler=handler), swarm.url],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            assert len(swarm.server.claimed()) == 4
            child.send_signal(signal.SIGTERM)
            child.wait(90)
            assert not swarm.server.claimed()
        finally:
            child.kill()
