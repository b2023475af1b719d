"""The encoder of OTLP, read by the generated classes of opentelemetry-proto."""

from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, SpanFlags, Status

from proxy.telemetry import wire
from tests.support.otlp import attributes

VALUES: dict[str, Any] = {
    "text": "é" * 200,
    "empty": "",
    "hostile": "\x1b\ud800",
    "yes": True,
    "no": False,
    "zero": 0,
    "small": 127,
    "large": 2**62,
    "negative": -3,
    "number": -0.5,
    "texts": ("a", "b" * 300),
    "none": (),
    "k" * 200: "a long name",
}


@pytest.mark.parametrize("remote", [False, True])
def test_a_span_is_read_back(remote: bool) -> None:
    data = wire.encode_span(
        trace_id=b"t" * 16,
        span_id=b"s" * 8,
        parent_id=b"p" * 8 if remote else b"",
        trace_state="a=1" if remote else "",
        remote=remote,
        name="chat \ud800 é",
        kind=wire.CLIENT,
        began=10**18,
        ended=2 * 10**18,
        attributes=wire.encode_span_attributes(VALUES),
        failed=remote,
    )
    body = wire.encode_request({"service.name": "s"}, ("scope", "1.2"), "schema", [data, data])
    (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
    assert attributes(resource.resource) == {"service.name": "s"}
    (scope,) = resource.scope_spans
    assert (scope.scope.name, scope.scope.version, scope.schema_url) == ("scope", "1.2", "schema")
    first, second = scope.spans
    assert first == second
    assert (first.trace_id, first.span_id) == (b"t" * 16, b"s" * 8)
    assert first.parent_span_id == (b"p" * 8 if remote else b"")
    assert first.trace_state == ("a=1" if remote else "")
    assert (first.name, first.kind) == ("chat ? é", Span.SPAN_KIND_CLIENT)
    assert (first.start_time_unix_nano, first.end_time_unix_nano) == (10**18, 2 * 10**18)
    assert attributes(first) == {
        **VALUES, "hostile": "\x1b?", "texts": ["a", "b" * 300], "none": [],
    }  # fmt: skip
    expected = Status.STATUS_CODE_ERROR if remote else Status.STATUS_CODE_UNSET
    assert first.status.code == expected
    assert first.flags & 1
    assert first.flags & SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
    assert bool(first.flags & SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK) == remote


def test_a_log_record_is_read_back() -> None:
    data = wire.encode_log(
        trace_id=b"t" * 16, span_id=b"s" * 8, at=10**18, event="an.event", attributes=VALUES
    )
    body = wire.encode_request({}, ("scope", "1"), "schema", [data])
    (record,) = ExportLogsServiceRequest.FromString(body).resource_logs[0].scope_logs[0].log_records
    assert (record.trace_id, record.span_id) == (b"t" * 16, b"s" * 8)
    assert (record.event_name, record.flags) == ("an.event", 1)
    assert record.time_unix_nano == record.observed_time_unix_nano == 10**18
    assert attributes(record)["negative"] == -3
    assert not record.HasField("body")
