"""A home that commit d3182bb wrote is opened by this program, and nothing in it is lost.

`tests/data/home_d3182bb` is made by `tests/data/make_home_d3182bb.py`; `expected.json` is what the
code of that commit reads from it.
"""

import contextlib
import hashlib
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from console.models.history.runs import compare
from core.bus import Bus
from core.events import RewardsChanged
from core.journal.history import read_page
from core.journal.read_only import JournalFile
from core.journal.start import open_journal
from core.jsonio import encode_full, every_field
from core.runtime.home import Home
from core.settings import load
from core.state import State
from engine.policy.weights import State as PolicyState
from engine.policy.weights import WeightStore, shipped
from engine.storage.checkpoint_files import find, list_checkpoints, read
from engine.storage.checkpoint_store import CheckpointStore
from engine.training.optimizer import Adam
from proxy.control.job_store import JobStore
from proxy.rewards.select import select_source
from tests.support.stack import Stack, until

FIXTURE = Path(__file__).parents[1] / "data" / "home_d3182bb"
EXPECTED: dict[str, Any] = json.loads((FIXTURE / "expected.json").read_bytes())
VERSIONS = ["3dca581ab73f", "76378f34b814"]
"""Versions of the rewards of its groups, oldest first."""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    root = tmp_path / "home"
    shutil.copytree(FIXTURE, root, ignore=shutil.ignore_patterns("expected.json"))
    root.chmod(0o700)
    return Home.open(root)


REMOVED = {
    "groups": frozenset({"stream", "expires_at", "looked"}),
    "totals": frozenset(
        {"judge_calls", "judge_tokens", "judge_hits", "judge_cost", "episodes_ended"}
    ),
    "rewards": frozenset({"cause", "traceback", "file", "line"}),
    "job": frozenset({"how"}),
}
"""Part of the state -> fields of the old code that the state does not have."""


def same_fields(new: Any, old: Any) -> Any:
    """The new value without the keys that the old one does not have."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {key: same_fields(new.get(key), value) for key, value in old.items()}
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [same_fields(*pair) for pair in zip(new, old, strict=True)]
    return new


def without(old: Any, names: frozenset[str]) -> Any:
    """The old value without the keys of these names, at any depth."""
    if isinstance(old, dict):
        return {key: without(value, names) for key, value in old.items() if key not in names}
    return [without(one, names) for one in old] if isinstance(old, list) else old


def as_json(value: Any) -> Any:
    return json.loads(encode_full(value))


def has_what_the_old_code_read(state: State) -> bool:
    """Whether groups, totals and the last run are as the old code made them of the journal."""
    for name in ("seq", "run_id", "client_uuid", "rating_mode", "groups", "totals", "rewards"):
        old = without(EXPECTED["state"][name], REMOVED.get(name, frozenset()))
        assert same_fields(as_json(getattr(state, name)), old) == old, name
    server, old = state.servers["embedded"], EXPECTED["state"]["servers"]["embedded"]
    for name in ("state", "step", "pool", "spans", "checkpoints", "job"):
        before = without(old[name], REMOVED.get(name, frozenset()))
        assert as_json(getattr(server, name)) == before, name
    sent = [(one["step"], one["groups"], one["mean"], one["update"]) for one in old["steps"]]
    return [(one.step, one.groups, one.mean, one.update) for one in server.steps] == sent


def test_its_engine_runs_have_a_history(home: Home) -> None:
    with JournalFile(home.journal) as file:
        runs = file.state().engine_runs
    assert [(one.number, one.groups, one.running) for one in runs.runs] == [
        (1, 4, False),
        (2, 2, True),
    ]
    first, second = runs.runs
    assert (first.rated, first.rewards) == (1, VERSIONS)
    assert [one.step for one in second.curve] == [2, 3]
    found = compare(runs, first, second)
    assert [one.what for one in found.job] == ["Tasks a step", "Learning rate"]


def test_its_settings_have_the_same_meaning(home: Home) -> None:
    result = yaml.safe_load(home.config.read_text())
    settings = as_json(load(home.config, {}, {}))
    assert same_fields(settings, result) == same_fields(EXPECTED["settings"], result)


def test_its_token_still_opens_the_control_api(home: Home) -> None:
    assert home.token() == EXPECTED["token"]


def test_its_journal_is_read_event_by_event(home: Home) -> None:
    before = home.journal.read_bytes()
    with contextlib.closing(sqlite3.connect(home.journal)) as db:
        rows = db.execute("select data from events order by seq").fetchall()
    written = [json.loads(line) for (data,) in rows for line in data.splitlines()]
    with JournalFile(home.journal) as file:
        events = [every_field(one) for one in file.events(0, 100_000)]
        assert has_what_the_old_code_read(file.state())
        assert len(file.runs()) == 2
    assert len(events) == len(written) == EXPECTED["events"]
    for new, old in zip(as_json(events), written, strict=True):
        assert same_fields(new, old) == old
    assert home.journal.read_bytes() == before


def test_a_proxy_continues_its_journal(home: Home) -> None:
    opened = open_journal(home.journal)
    try:
        state = opened.state
        assert has_what_the_old_code_read(state)
        assert state == opened.journal.replayed_state()
        assert not opened.notice
        assert home.client_uuid(state.client_uuid) == EXPECTED["state"]["client_uuid"]
        page = {one.group_id: as_json(one) for one in read_page(opened.journal, 0, 50).groups}
        old = without(EXPECTED["state"]["groups"], REMOVED["groups"])
        assert same_fields(page, old) == old
        groups = list(state.groups.values())
        assert [one.rating.tags for one in groups if one.rating is not None] == [("verbose",)]
        assert sum(one.marked for one in groups) == 1
        assert [one.note for one in groups if one.note] == ["look at this again"]
        assert [one.edited for one in groups if one.edited] == ["A better answer."]
    finally:
        opened.journal.close()


async def test_versions_of_its_rewards_are_kept_and_the_present_one_added(home: Home) -> None:
    """The version is a hash of the rewards' code, so the same file has a new one here."""
    opened = open_journal(home.journal)
    bus = Bus(opened.journal, "run-now", opened.state)
    source = select_source(home, load(home.config, {}, {}))
    await source.start()
    try:
        assert source.health().ok
        assert source.version not in VERSIONS
        bus.publish(RewardsChanged(source=source.name, ok=True, version=source.version, parts=()))
        await opened.journal.durable(bus.state.seq)
        changes = [one for one in opened.journal.events() if isinstance(one, RewardsChanged)]
        known = list(dict.fromkeys(one.version for one in changes if one.version))
        assert known == [*VERSIONS, source.version]
        page = read_page(opened.journal, 0, 50)
        assert list(dict.fromkeys(one.version for one in page.groups)) == VERSIONS
    finally:
        await source.close()
        opened.journal.close()


def test_its_saved_job_is_the_one_of_the_next_start(home: Home) -> None:
    saved = JobStore.beside(home.journal).load("embedded")
    assert saved is not None
    assert saved[0] == (FIXTURE / "jobs" / "embedded.yaml").read_text()


def test_its_checkpoints_are_listed_read_and_restored(home: Home) -> None:
    result = [[one.name, one.step] for one in list_checkpoints(home.engine)]
    assert result == EXPECTED["checkpoints"]
    base = shipped().digest
    store = CheckpointStore(home.engine)
    try:
        for name, step in EXPECTED["checkpoints"]:
            header, body = read(find(home.engine, name), base)
            assert (header["step"], header["t"]) == (step, step)
            values = np.frombuffer(body, "<f4")
            assert np.array_equal(values, np.arange(24, dtype="<f4") + step)
        store.restore("good", base)
        assert read(store.latest, base)[0]["step"] == 1
    finally:
        store.close()


def test_a_whole_policy_is_saved_as_before(tmp_path: Path) -> None:
    base = shipped()
    size = base.params.flat.size
    adam = Adam(size)
    adam.m[...], adam.v[...], adam.t = np.arange(size) / size, 0.5, 7
    store = WeightStore(tmp_path)
    try:
        store.save(PolicyState(base.params.copy(), adam, 7), base)
        body = store.latest.read_bytes()[-12 * size :]  # the header has the time
        assert hashlib.sha256(body).hexdigest() == EXPECTED["full_checkpoint"]
        assert store.load(base).step == 7
    finally:
        store.close()


@pytest.mark.process
@pytest.mark.timeout(240)
def test_the_processes_start_in_it(home: Home) -> None:
    shutil.rmtree(home.engine)  # its checkpoints are too small for the policy
    with Stack(home.root) as stack:
        stack.proxy()
        now = until("the proxy has its groups", stack.state)
        old = EXPECTED["state"]
        assert now.groups.keys() == old["groups"].keys()
        assert now.totals.rated == old["totals"]["rated"]
        assert now.client_uuid == old["client_uuid"]
        assert now.rewards.ok
        stack.engine()
        until("the engine is seen", lambda: stack.state().servers["embedded"].state == "OFFLINE")
        assert stack.run("engine-start").returncode == 0
        assert stack.stop("proxy") == 0
