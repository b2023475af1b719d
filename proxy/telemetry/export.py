"""The tracer and the logger of the OpenTelemetry SDK, which send by OTLP over HTTP.

Threads of the SDK send batches. Their queues are bounded: while a collector is down or slow, data
is dropped. The standard environment variables of exporters and batches apply, see
`specification/protocol/exporter.md` and `specification/configuration/sdk-environment-variables.md`
of open-telemetry/opentelemetry-specification.
"""

import logging
import os
import platform
import re
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import requests  # noqa: TID251  # the exporters' own client
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import one_line
from ajet_swarm.common.urls import web_address
from core.settings import TelemetrySettings
from core.version import version
from proxy.telemetry.spans import SCHEMA_URL, SpanWriter

SCOPE = "ajet-console"
TIMEOUT_MS = "10000"
"""Milliseconds of one request, unless OTEL_EXPORTER_OTLP_TIMEOUT is set. Like all durations in
OpenTelemetry's variables that one is in milliseconds; the exporters read it as seconds."""
DEFAULT_ENDPOINT = "http://localhost:4318"
_SECRET = re.compile(r"(?<=//)[^/\s@]*@|\?\S*")
"""User and password, or the query, of a URL in a text."""

Report = Callable[[str, str], object]
"""Called by any thread with `traces` or `logs`, and why a request failed, or an empty text."""


class Export:
    """Makes spans and log events, and sends them in batches.

    Attributes:
        writer: Makes them of closed groups and of updates.

    Args:
        settings: Endpoint and content.
        report: Called for each request to the collector.

    Raises:
        UsageError: the endpoint is not a URL, or the timeout is invalid.
    """

    def __init__(self, settings: TelemetrySettings, report: Report) -> None:
        self._spans = OTLPSpanExporter(**_target(settings.endpoint, "traces", report))
        self._logs = OTLPLogExporter(**_target(settings.endpoint, "logs", report))
        resource = _resource()
        self._tracers = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False)
        self._tracers.add_span_processor(BatchSpanProcessor(self._spans))
        self._loggers = LoggerProvider(resource, shutdown_on_exit=False)
        self._loggers.add_log_record_processor(BatchLogRecordProcessor(self._logs))
        # What they log of a failed request is reported, once and without the secrets of the URL.
        logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)
        scope = (SCOPE, version(), SCHEMA_URL)
        tracer, logger = self._tracers.get_tracer(*scope), self._loggers.get_logger(*scope)
        self.writer = SpanWriter(tracer, logger, settings.content)

    def close(self, seconds: float) -> None:
        """Send what waits; blocks.

        Args:
            seconds: Limit; what has not been sent by then is lost and not tried again.
        """
        thread = threading.Thread(target=self._shut_down, name="telemetry", daemon=True)
        thread.start()
        thread.join(seconds)
        if thread.is_alive():  # the SDK sets the event that ends the pauses after 30 s only
            self._spans.shutdown()  # type: ignore[no-untyped-call]
            self._logs.shutdown()  # type: ignore[no-untyped-call]

    def _shut_down(self) -> None:
        self._tracers.shutdown()
        self._loggers.shutdown()


class _Session(requests.Session):
    """Sends the requests of one exporter, and reports how each of them ended."""

    def __init__(self, report: Callable[[str], object]) -> None:
        super().__init__()
        self._report = report

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        failure = ""
        try:
            response = super().send(request, **options)
            if not response.ok:
                failure = f"{response.status_code} {response.reason}"
        except OSError as error:
            failure = f"{type(error).__name__}: {error}"
            raise
        finally:
            text = f"{request.url}: {failure}" if failure else ""
            self._report(one_line(_SECRET.sub("", text), 300))
        return response


def _target(endpoint: str, signal: str, report: Report) -> dict[str, Any]:
    """Return the arguments of an exporter: its address, time limit in seconds and session.

    Args:
        endpoint: Base URL of the settings; empty for that of the environment, or the usual one.
        signal: `traces` or `logs`; its variables precede the general ones.
        report: For the session.

    Raises:
        UsageError: the address is not a URL, or the time limit is not a number.
    """
    own, general = f"OTEL_EXPORTER_OTLP_{signal.upper()}_", "OTEL_EXPORTER_OTLP_"
    exact = "" if endpoint else os.environ.get(f"{own}ENDPOINT", "")
    url = endpoint or exact or os.environ.get(f"{general}ENDPOINT") or DEFAULT_ENDPOINT
    if (parts := web_address(url)) is None:
        shown = one_line(url.rpartition("@")[2].partition("?")[0], 100)
        raise UsageError(f"`{shown}` is not a URL", "telemetry.endpoint", "Give http://HOST:PORT")
    if not exact:
        parts = parts._replace(path=f"{parts.path.rstrip('/')}/v1/{signal}")
    limit = os.environ.get(f"{own}TIMEOUT") or os.environ.get(f"{general}TIMEOUT") or TIMEOUT_MS
    if not (limit.isascii() and limit.isdigit() and int(limit[:10]) > 0):
        raise UsageError(
            "the timeout is not a positive number of milliseconds",
            f"{general}TIMEOUT",
            "Give 10000 for ten seconds",
        )
    return {
        "endpoint": parts.geturl(),
        "timeout": int(limit[:10]) / 1_000,
        "session": _Session(partial(report, signal)),
        "max_request_size": 0,  # the collector's limit counts, whose answer is reported
    }


def _resource() -> Resource:
    """Return the attributes of the program and the machine.

    OTEL_SERVICE_NAME precedes OTEL_RESOURCE_ATTRIBUTES.
    """
    own = {"service.name": SCOPE, "service.version": version(), "host.name": platform.node()}
    return Resource.create(own).merge(OTELResourceDetector().detect())
