"""Which requests are recorded, and how much is kept."""

from pathlib import Path

import pytest
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

from core.bus import Bus
from core.events import AnswerReturned, GroupClosed, GroupOpened
from core.journal.writer import Journal
from proxy.dialects.session_marks import trace_context_of
from proxy.telemetry import recorder
from proxy.telemetry.recorder import GroupRecord, Record, Recorder


@pytest.fixture
def bus(tmp_path: Path) -> Bus:
    return Bus(Journal(tmp_path / "j.db"), "run")


def open_group(bus: Bus, name: str, traceparent: str = "") -> None:
    bus.publish(
        GroupOpened(
            group_id=name, request_id="r", task_id="t", n=1, query="", body={},
            traceparent=traceparent,
        )
    )  # fmt: skip


def test_the_share_is_that_of_the_sampler_of_the_sdk(bus: Bus) -> None:
    records: list[Record] = []
    Recorder(bus, 0.25, records.append, seed=1)
    for number in range(200):
        open_group(bus, str(number))
        bus.publish(GroupClosed(group_id=str(number), phase="DONE"))
    assert 30 < len(records) < 70
    sampler = TraceIdRatioBased(0.25)
    for record in records:
        assert isinstance(record, GroupRecord)
        assert sampler.should_sample(None, record.trace_id, "").decision.is_sampled()


def test_records_of_open_groups_are_bounded(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MOST_OPEN", 2)
    records: list[Record] = []
    recorded = Recorder(bus, 1.0, records.append)
    for name in "abc":
        open_group(bus, name)
    assert (recorded.open_groups, recorded.left_out) == (2, 1)
    bus.publish(AnswerReturned(group_id="c", index=0, why="winner", waited=0.1))
    bus.publish(GroupClosed(group_id="c", phase="DONE"))
    bus.publish(AnswerReturned(group_id="a", index=0, why="winner", waited=0.1))
    bus.publish(GroupClosed(group_id="a", phase="DONE"))
    (record,) = records
    assert isinstance(record, GroupRecord)
    assert [type(one) for one in record.events] == [AnswerReturned, GroupClosed]
    assert recorded.open_groups == 1


@pytest.mark.parametrize(
    ("parent", "valid"),
    [
        (f"00-{'a' * 32}-{'b' * 16}-01", True),
        (f"01-{'a' * 32}-{'b' * 16}-01-more", True),
        (f"ff-{'a' * 32}-{'b' * 16}-01", False),
        (f"00-{'0' * 32}-{'b' * 16}-01", False),
        (f"00-{'a' * 32}-{'0' * 16}-01", False),
        (f"00-{'A' * 32}-{'b' * 16}-01", False),
        (f"00-{'a' * 32}-{'b' * 16}-01x", False),
        ("\x1b[31m", False),
    ],
)
def test_only_a_valid_trace_context_is_kept(parent: str, valid: bool) -> None:
    headers = {"traceparent": parent, "tracestate": "a=1"}
    kept, state = trace_context_of(headers)
    assert (bool(kept), bool(state)) == (valid, valid)
    assert len(kept) in (0, 55)


def test_a_tracestate_that_is_too_long_or_hostile_is_left_out() -> None:
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    for state in ("a=" + "x" * 600, "a=\x1b[31m", "a=\n"):
        assert trace_context_of({"traceparent": parent, "tracestate": state}) == (parent, "")
