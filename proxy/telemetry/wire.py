"""OTLP in Protocol Buffers' wire format: spans, log records and the requests that carry them.

Source: `opentelemetry/proto/{trace,logs,common,resource}/v1` of open-telemetry/opentelemetry-proto;
the numbers of the fields stand in the comments. The encoder of the SDK takes several times the
processor time for the same bytes, more than the rest of a sampled request's telemetry together.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from struct import Struct
from typing import Any

Attributes = Mapping[str, Any]
"""Name -> text, whole number, number, bool, or a list or tuple of texts."""

INTERNAL, SERVER, CLIENT = b"\x30\x01", b"\x30\x02", b"\x30\x03"
"""Field `kind` of a span."""
_FAILED = b"\x7a\x02\x18\x02"  # 15 status: 3 code, ERROR
_LOCAL, _REMOTE = 0x101, 0x301
"""Field `flags` of a span: sampled, and whether the parent is remote."""
_times = Struct("<BQBQ").pack
_flags = Struct("<HI").pack
_log_flags = Struct("<BI").pack
_double = Struct("<cd").pack


def _varint(number: int) -> bytes:
    if number < 0x80:
        return bytes((number,))
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _field(tag: bytes, data: bytes) -> bytes:
    """Return a field that holds bytes, text or a message."""
    return tag + _varint(len(data)) + data


def _text(tag: bytes, text: str) -> bytes:
    """Return a field of text; a lone surrogate, which has no UTF-8 form, becomes a `?`."""
    return _field(tag, text.encode(errors="replace"))


@lru_cache(maxsize=512)
def _key(name: str) -> bytes:
    return _text(b"\x0a", name)  # KeyValue: 1 key


def _value(value: Any) -> bytes:
    """Return an `AnyValue`."""
    if isinstance(value, str):
        return _text(b"\x0a", value)  # 1 string_value
    if isinstance(value, bool):
        return b"\x10\x01" if value else b"\x10\x00"  # 2 bool_value
    if isinstance(value, int):
        return b"\x18" + _varint(value & 0xFFFF_FFFF_FFFF_FFFF)  # 3 int_value
    if isinstance(value, float):
        return _double(b"\x21", value)  # 4 double_value
    items = b"".join(_field(b"\x0a", _value(one)) for one in value)
    return _field(b"\x2a", items)  # 5 array_value


def encode_attributes(tag: bytes, attributes: Attributes) -> bytes:
    """Return attributes as fields of `KeyValue` with that tag."""
    parts: list[bytes] = []
    for name, value in attributes.items():
        encoded = _value(value)
        pair = _key(name) + b"\x12" + _varint(len(encoded)) + encoded  # KeyValue: 2 value
        parts += (tag, _varint(len(pair)), pair)
    return b"".join(parts)


def encode_span_attributes(attributes: Attributes) -> bytes:
    """Return attributes as fields of a span."""
    return encode_attributes(b"\x4a", attributes)  # 9 attributes


def encode_span(
    *,
    trace_id: bytes,
    span_id: bytes,
    parent_id: bytes,
    trace_state: str,
    remote: bool,
    name: str,
    kind: bytes,
    began: int,
    ended: int,
    attributes: bytes,
    failed: bool,
) -> bytes:
    """Return a `Span`.

    Args:
        trace_id: 16 bytes.
        span_id: 8 bytes.
        parent_id: 8 bytes; empty for the first span of a trace.
        trace_state: The client's `tracestate`; may be empty.
        remote: Whether the parent is a span of the client.
        name: Its name.
        kind: `INTERNAL`, `SERVER` or `CLIENT`.
        began: Unix nanoseconds.
        ended: Unix nanoseconds.
        attributes: Of `encode_span_attributes`.
        failed: Whether its status is an error.
    """
    return b"".join(
        (
            b"\x0a\x10", trace_id,  # 1
            b"\x12\x08", span_id,  # 2
            _text(b"\x1a", trace_state) if trace_state else b"",  # 3
            b"\x22\x08" + parent_id if parent_id else b"",  # 4
            _text(b"\x2a", name),  # 5
            kind,  # 6
            _times(0x39, began, 0x41, ended),  # 7 start_time_unix_nano, 8 end_time_unix_nano
            attributes,  # 9
            _FAILED if failed else b"",
            _flags(0x0185, _REMOTE if remote else _LOCAL),  # 16
        )
    )  # fmt: skip


def encode_log(
    *, trace_id: bytes, span_id: bytes, at: int, event: str, attributes: Attributes
) -> bytes:
    """Return a `LogRecord` that is an event of a sampled span.

    Args:
        trace_id: 16 bytes.
        span_id: 8 bytes.
        at: Unix nanoseconds.
        event: Name of the event.
        attributes: Its attributes.
    """
    return b"".join(
        (
            _times(0x09, at, 0x59, at),  # 1 time_unix_nano, 11 observed_time_unix_nano
            encode_attributes(b"\x32", attributes),  # 6
            _log_flags(0x45, 1),  # 8
            b"\x4a\x10", trace_id,  # 9
            b"\x52\x08", span_id,  # 10
            _text(b"\x62", event),  # 12
        )
    )  # fmt: skip


def encode_request(
    resource: Attributes, scope: tuple[str, str], schema: str, records: Iterable[bytes]
) -> bytes:
    """Return the request that exports spans, or log records: both have the same fields.

    Args:
        resource: Attributes of the program and the machine.
        scope: Name and version of the library.
        schema: URL of the version of the conventions.
        records: Of `encode_span`, or of `encode_log`.
    """
    named = _text(b"\x0a", scope[0]) + _text(b"\x12", scope[1])
    scoped = b"".join(
        (
            _field(b"\x0a", named),  # 1 scope
            *(_field(b"\x12", one) for one in records),  # 2 spans, log_records
            _text(b"\x1a", schema),  # 3
        )
    )
    described = _field(b"\x0a", encode_attributes(b"\x0a", resource))  # 1 resource: 1 attributes
    return _field(b"\x0a", described + _field(b"\x12", scoped))  # 1 resource_spans: 2 scope_spans
