"""OpenTelemetry: spans of requests and weight updates, and results of evaluations."""
