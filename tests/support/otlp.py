"""An OpenTelemetry collector on loopback that keeps what it receives."""

import contextlib
import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """What a collector received."""

    def __init__(self) -> None:
        self.url = ""
        self.spans: list[Any] = []
        """`opentelemetry.proto.trace.v1.trace_pb2.Span`."""
        self.logs: list[Any] = []
        """`opentelemetry.proto.logs.v1.logs_pb2.LogRecord`."""
        self.resources: list[dict[str, Any]] = []
        self.schemas: set[str] = set()
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.posts = 0
        self.gate = threading.Event()
        """Requests are answered once it is set."""
        self.gate.set()

    def take(self, path: str, body: bytes) -> None:
        """Keep the content of one request."""
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(attributes(resource.resource))
                for scope in resource.scope_spans:
                    self.schemas.add(scope.schema_url)
                    self.spans += scope.spans
        elif path == "/v1/logs":
            for logs in ExportLogsServiceRequest.FromString(body).resource_logs:
                for scope in logs.scope_logs:
                    self.schemas.add(scope.schema_url)
                    self.logs += scope.log_records

    def named(self, start: str) -> list[Any]:
        """Spans whose name starts with `start`."""
        return [span for span in self.spans if span.name.startswith(start)]


def attributes(one: Any) -> dict[str, Any]:
    """The attributes of a span, a log record or a resource."""
    return {pair.key: _value(pair.value) for pair in one.attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind)


@contextlib.contextmanager
def collector() -> Iterator[Collector]:
    """A collector on a free port."""
    result = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            result.posts += 1
            result.headers.append({name.lower(): text for name, text in self.headers.items()})
            result.gate.wait(20)
            if result.status == 200:
                result.take(self.path, body)
            with contextlib.suppress(OSError):
                self.send_response(result.status)
                self.send_header("content-length", "0")
                self.end_headers()

        def log_message(self, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    result.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield result
    finally:
        result.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()
