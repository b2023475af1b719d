"""The settings of telemetry: OpenTelemetry, and sinks for the figures of each step."""

from typing import Annotated, Any

import msgspec

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class TelemetrySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What leaves the proxy for other programs; see docs/guide/telemetry.md. Nothing by default."""

    enabled: bool = False
    """Send spans and evaluation results to an OpenTelemetry collector (OTLP over HTTP); needs the
    extra `otel`."""
    endpoint: str = ""
    """Base URL of the collector, as `http://127.0.0.1:4318`; empty uses the environment variable
    OTEL_EXPORTER_OTLP_ENDPOINT, or that address."""
    service_name: str = ""
    """Name of this proxy in the collector; empty uses the environment variable OTEL_SERVICE_NAME,
    or `ajet-console`."""
    sample: Share = 0.05
    """Share of the requests that are sent. A request with a W3C trace context is sent if its
    client samples it."""
    content: bool = False
    """Send prompts, answers and the reasons of rewards as well."""
    sinks: dict[str, dict[str, Any] | None] = msgspec.field(default_factory=dict)
    """Name of a sink -> its options: `tensorboard: {}` writes event files; others are plug-ins."""
