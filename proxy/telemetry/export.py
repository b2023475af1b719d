"""Sends spans and evaluation results to a collector by OTLP: Protocol Buffers over HTTP.

One thread makes and sends them. Its queue is bounded: while a collector is down or slow, records
are dropped. The standard environment variables of OTLP exporters apply, see
`opentelemetry/specification/protocol/exporter.md` of open-telemetry/opentelemetry-specification.
"""

import contextlib
import gzip
import logging
import os
import platform
import queue
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from urllib.parse import unquote

import httpx

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import one_line
from ajet_swarm.common.urls import web_address
from core.settings.telemetry import TelemetrySettings
from core.version import version
from proxy.telemetry import conventions as names
from proxy.telemetry.recorder import GroupRecord, Record
from proxy.telemetry.spans import SpanWriter
from proxy.telemetry.wire import encode_request

log = logging.getLogger(__name__)

SCOPE = "ajet-console"
MOST_WAITING = 1_000
"""Records that wait for the thread; further ones are dropped."""
BATCH = 2_000
"""Spans, or evaluation results, after which they are sent."""
SEND_EVERY = 5.0
"""Seconds between two batches, at most."""
TIMEOUT_MS = 10_000
"""Milliseconds of one request, unless OTEL_EXPORTER_OTLP_TIMEOUT is set; like all durations in
OpenTelemetry's variables, that one is in milliseconds."""
DEFAULT_ENDPOINT = "http://localhost:4318"

Report = Callable[[str], object]
"""Called by any thread: with the error when sending fails, with an empty text when it succeeds."""


class Exporter:
    """Makes spans of records on a thread of its own, and sends them in batches.

    Args:
        settings: Endpoint, service name and content.
        report: Called when sending begins to fail, and when it works again.
        environment: Environment variables; by default those of the process.

    Raises:
        UsageError: the endpoint is not a URL, or a variable is invalid.
    """

    def __init__(
        self,
        settings: TelemetrySettings,
        report: Report,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        own = os.environ if environment is None else environment
        self._report = report
        self._failing = False
        self._senders = (
            Sender(settings.endpoint, "traces", own),
            Sender(settings.endpoint, "logs", own),
        )
        self._resource = resource_of(settings, own)
        self._writer = SpanWriter(settings.content)
        self._records: queue.Queue[Record | None] = queue.Queue(MOST_WAITING)
        self.dropped = 0
        """Records dropped because the thread fell behind, as with a slow collector."""
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._thread.start()

    def add(self, record: Record) -> None:
        """Take a record; returns at once, and drops it if too many wait."""
        try:
            self._records.put_nowait(record)
        except queue.Full:
            self.dropped += 1

    def close(self, seconds: float) -> None:
        """Send what waits, within a time limit; blocks.

        Args:
            seconds: Limit; what has not been sent by then is lost.
        """
        end = time.monotonic() + seconds
        with contextlib.suppress(queue.Full):
            self._records.put(None, timeout=seconds)
        self._thread.join(max(end - time.monotonic(), 0.0))

    def _run(self) -> None:
        """Make spans of records until the end, and send them every few seconds."""
        next_send = time.monotonic() + SEND_EVERY
        ended = False
        while not ended:
            with contextlib.suppress(queue.Empty):
                record = self._records.get(timeout=max(next_send - time.monotonic(), 0.0))
                ended = record is None
                if record is not None:
                    self._write(record)
            made = max(len(self._writer.spans), len(self._writer.logs))
            if ended or made >= BATCH or time.monotonic() >= next_send:
                self._send()
                next_send = time.monotonic() + SEND_EVERY
        for sender in self._senders:
            sender.close()

    def _write(self, record: Record) -> None:
        try:
            if isinstance(record, GroupRecord):
                self._writer.write_group(record)
            else:
                self._writer.write_update(record)
        except Exception:  # a fault of one record must not stop the others
            log.exception("a record could not be written")

    def _send(self) -> None:
        """Send all that was made; what the collector does not take is lost."""
        made = (self._writer.spans, self._writer.logs)
        self._writer.spans, self._writer.logs = [], []
        scope = (SCOPE, version())
        errors: list[str] = []
        for sender, records in zip(self._senders, made, strict=True):
            if records and not any(errors):
                body = encode_request(self._resource, scope, names.SCHEMA_URL, records)
                errors.append(sender.send(body))
        if errors and any(errors) is not self._failing:
            self._failing = any(errors)
            self._report("".join(errors))


class Sender:
    """Sends one kind of data.

    Args:
        endpoint: Base URL; empty for that of the environment, or the default.
        signal: `traces` or `logs`.
        environment: Environment variables; those of the signal precede the general ones.

    Raises:
        UsageError: the endpoint is not a URL, or a variable is invalid.
    """

    def __init__(self, endpoint: str, signal: str, environment: Mapping[str, str]) -> None:
        def variable(name: str) -> str:
            general = environment.get(f"OTEL_EXPORTER_OTLP_{name}", "")
            return environment.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_{name}") or general

        general = environment.get("OTEL_EXPORTER_OTLP_ENDPOINT") or DEFAULT_ENDPOINT
        exact = environment.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
        is_base = bool(endpoint) or not exact
        url = endpoint or exact or general
        parts = web_address(url)
        if parts is None:
            shown = one_line(url.rpartition("@")[2].partition("?")[0], 100)
            raise UsageError(
                f"`{shown}` is not a URL", "telemetry.endpoint", "Give http://HOST:PORT"
            )
        if is_base:
            parts = parts._replace(path=f"{parts.path.rstrip('/')}/v1/{signal}")
        self._url = parts.geturl()
        self._shown_url = parts._replace(
            netloc=parts.netloc.rpartition("@")[2], query="", fragment=""
        ).geturl()
        """The URL without user, password and query, for messages."""
        self._gzip = variable("COMPRESSION").lower() == "gzip"
        headers = {"content-type": "application/x-protobuf"}
        if self._gzip:
            headers["content-encoding"] = "gzip"
        for pair in filter(None, variable("HEADERS").split(",")):
            name, _, text = pair.partition("=")
            headers[unquote(name).strip().lower()] = unquote(text).strip()
        limit = variable("TIMEOUT") or str(TIMEOUT_MS)
        if not (limit.isascii() and limit.isdigit() and int(limit[:10]) > 0):
            raise UsageError(
                "the timeout is not a positive number of milliseconds",
                "OTEL_EXPORTER_OTLP_TIMEOUT",
                "Give 10000 for ten seconds",
            )
        tls = ssl.create_default_context(cafile=variable("CERTIFICATE") or None)
        if certificate := variable("CLIENT_CERTIFICATE"):
            tls.load_cert_chain(certificate, variable("CLIENT_KEY") or None)
        self._client = httpx.Client(headers=headers, timeout=int(limit[:10]) / 1_000, verify=tls)

    def send(self, body: bytes) -> str:
        """Send a request; return why it failed, or an empty text. Blocks up to the timeout."""
        try:
            content = gzip.compress(body, 1) if self._gzip else body
            answer = self._client.post(self._url, content=content)
        except (httpx.HTTPError, OSError) as error:
            return one_line(f"{self._shown_url}: {type(error).__name__}: {error}", 300)
        if answer.is_success:
            return ""
        return one_line(f"{self._shown_url}: {answer.status_code} {answer.reason_phrase}", 300)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def resource_of(settings: TelemetrySettings, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of the program and the machine.

    The settings precede OTEL_SERVICE_NAME, and that precedes OTEL_RESOURCE_ATTRIBUTES.
    """
    resource = {
        "service.name": SCOPE,
        "service.version": version(),
        "telemetry.sdk.name": SCOPE,
        "telemetry.sdk.language": "python",
        "telemetry.sdk.version": version(),
        "host.name": platform.node(),
    }
    for pair in filter(None, environment.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",")):
        name, _, text = pair.partition("=")
        resource[unquote(name).strip()] = unquote(text).strip()
    if named := settings.service_name or environment.get("OTEL_SERVICE_NAME"):
        resource["service.name"] = named
    return resource
