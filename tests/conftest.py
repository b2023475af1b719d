"""What all tests share: a clean environment and a home of their own."""

import asyncio
import gc
import itertools
import logging
import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

from core.runtime.gc_tuning import MIDDLE, OLD, YOUNG
from core.runtime.home import Home
from engine import memory
from engine.training import threads
from tests.support.capped_clock import CappedClockPolicy

threads.prepare()  # before the import of numpy, as in the engine's own process
asyncio.set_event_loop_policy(CappedClockPolicy())  # no test depends on how fast the machine is
for _signal in (
    signal.SIGINT,
    signal.SIGHUP,
):  # a background job may ignore them, and so its children
    if signal.getsignal(_signal) is signal.SIG_IGN:
        signal.signal(_signal, signal.SIG_DFL)
_HYPOTHESIS = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("any", max_examples=40, **_HYPOTHESIS)
settings.register_profile("long", max_examples=1000, **_HYPOTHESIS)
settings.load_profile("any")
gc.disable()  # until all tests are collected: their modules stay
_release = memory.release

# Reading the public authorities takes each new client of httpx 35 ms, and nothing here is public.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).parent / "data" / "authority.pem")
PILOT = Path(__file__).parent / "pilot"
MEMORY = Path("/dev/shm")
FREE = 2 << 30
"""Bytes that must be free in `MEMORY`, and twice as many in all: the tests write 0.7 GB."""
_ROOT = "PYTEST_DEBUG_TEMPROOT"
"""Variable that names the folder below which pytest makes its own."""
_count = itertools.count(1)


def _has_room(folder: Path) -> bool:
    """Whether files in memory can be written there and executed."""
    try:
        facts = os.statvfs(folder)
    except (OSError, AttributeError):  # there is no such folder; not a POSIX system
        return False
    enough = facts.f_bavail * facts.f_frsize >= FREE
    is_ours = os.access(folder, os.W_OK) and not facts.f_flag & os.ST_NOEXEC
    return enough and is_ours and psutil.virtual_memory().available >= 2 * FREE


_in_memory = _ROOT not in os.environ and _has_room(MEMORY)
if _in_memory:  # each new journal waits for the disk several times: 60 ms, and 3 ms of CPU
    os.environ[_ROOT] = str(MEMORY)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Exclude the imported modules from garbage collection, and collect the rest less often.

    Both cost a tenth of a run.
    """
    gc.freeze()
    gc.enable()
    gc.set_threshold(YOUNG, MIDDLE, OLD)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Collect what all tests left, until nothing is left to collect.

    pytest then collects five times, each time through all that remains: two seconds.
    """
    for _ in range(5):
        if not gc.collect():
            break
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _freed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Remove the folders from memory, unless a test failed: someone may look into them.

    The one around them stays with its lock: another run that begins now would take its number, and
    this process removes the lock of that name at its end.
    """
    yield
    if _in_memory and not request.session.testsfailed:
        for folder in tmp_path_factory.getbasetemp().glob("[!.]*"):
            shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Which clock the loops of this test have, and whether closed policies collect garbage."""
    CappedClockPolicy.wall = PILOT in item.path.parents
    memory.release = _release if item.get_closest_marker("torch") else _keep_garbage


def _keep_garbage() -> None:
    """In place of the collection after each closed policy, which would also go through all that
    earlier tests left: 0.3 s of CPU."""


@pytest.fixture
def _own_place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A path that no other test has; nothing is there yet."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    return tmp_path_factory.getbasetemp() / f"{next(_count)}-{name}"


@pytest.fixture
def tmp_path(_own_place: Path) -> Path:
    """An empty folder; pytest's own looks through those of all tests before for a free name."""
    _own_place.mkdir(0o700)
    return _own_place


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, _own_place: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("AJET", "OPENAI_", "ANTHROPIC_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AJET_CONSOLE_HOME", str(_own_place / "home"))


_RETRIES = logging.getLogger("ajet_swarm.runs.executors")
"""Logger whose level the example `werewolves` sets."""


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """Undo what a test changes in the process's log: captured lines cost memory, and a level that
    an example sets would silence a later test."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    _RETRIES.setLevel(logging.NOTSET)
    for handler in root.handlers[:]:
        if handler not in handlers:
            root.removeHandler(handler)
    for handler in handlers:
        if handler not in root.handlers:
            root.addHandler(handler)


@pytest.fixture
def collected_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collect garbage after each closed policy, as the engine does."""
    monkeypatch.setattr(memory, "release", _release)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """An empty home."""
    return Home.open(tmp_path / "home")
