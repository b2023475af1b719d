"""OpenTelemetry: spans of requests and weight updates, and results of evaluations.

`Recorder` listens to the bus: it keeps the events of each sampled group until that group closes.
`SpanWriter` then makes the spans of the group, with the times of those events, by a tracer of the
OpenTelemetry SDK, whose batches threads of their own send. Only `spans` and `export` import the
SDK, which the extra `otel` installs; `service` imports them if the settings enable telemetry.
"""
