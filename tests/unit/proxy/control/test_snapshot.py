"""The snapshot for a console: whole newest groups, brief older ones, compressed on the wire."""

from pathlib import Path

import httpx

from core.state.brief import brief_groups
from proxy.control.client import ControlClient
from tests.support.proxy.guarded import guarded
from tests.support.runs import run_events
from tests.support.sample import group_events

COUNT = 40
WHOLE = 5


async def test_older_groups_come_brief_and_their_texts_by_page(tmp_path: Path) -> None:
    async with guarded(tmp_path) as one, ControlClient(one.url, "secret") as client:
        bus = one.context.bus
        for number in range(100, 100 + COUNT):
            for event in group_events(number):
                bus.publish(event)
        everything = await client.snapshot()
        assert everything == bus.state
        state = await client.snapshot(whole=WHOLE)
        assert state.groups == brief_groups(bus.state.groups, WHOLE)
        assert state.seq == bus.state.seq
        ids = [group.group_id for group in state.groups.values() if group.brief]
        assert len(ids) >= COUNT - WHOLE
        found = await client.groups([*ids, "none"])
        assert {group.group_id: group for group in found} == {
            group_id: bus.state.groups[group_id] for group_id in ids
        }


async def test_ended_runs_come_without_curves(tmp_path: Path) -> None:
    async with guarded(tmp_path) as one, ControlClient(one.url, "secret") as client:
        bus = one.context.bus
        for event in (*run_events(1), *run_events(2, ends=False)):
            bus.publish(event)
        state = await client.snapshot(whole=WHOLE)
        runs = state.engine_runs
        assert [run.brief for run in runs.runs] == [True, False]
        for number, curve in (await client.curves([1, 77])).items():
            run = runs.numbered(number)
            assert run is not None
            run.curve = curve
        assert runs == bus.state.engine_runs


async def test_a_large_snapshot_is_compressed_for_clients_that_accept_it(tmp_path: Path) -> None:
    async with guarded(tmp_path) as one, httpx.AsyncClient(base_url=one.url) as http:
        http.headers["authorization"] = "Bearer secret"
        for number in range(100, 100 + COUNT):
            for event in group_events(number):
                one.context.bus.publish(event)
        packed = await http.get("/control/snapshot")
        plain = await http.get("/control/snapshot", headers={"accept-encoding": "identity"})
        assert packed.headers["content-encoding"] == "gzip"
        assert "content-encoding" not in plain.headers
        assert packed.json() == plain.json()
        assert packed.num_bytes_downloaded < plain.num_bytes_downloaded / 5
        assert (await http.get("/control/snapshot?whole=x")).status_code == 400
        some = await http.get("/control/snapshot/groups?ids=")
        assert some.json() == {"groups": []}
