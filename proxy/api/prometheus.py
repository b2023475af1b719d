"""Prometheus's text format. No I/O."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]
Sample = tuple[Labels, float]


def family(name: str, metric_type: str, help_text: str, samples: Iterable[Sample]) -> Iterator[str]:
    """Yield the lines of one metric: help, type, then one line per sample."""
    yield f"# HELP {name} {help_text}"
    yield f"# TYPE {name} {metric_type}"
    for labels, value in samples:
        yield line(name, labels, value)


def gauge(name: str, help_text: str, samples: Iterable[Sample]) -> Iterator[str]:
    """Yield the lines of a gauge, which can go up and down."""
    return family(name, "gauge", help_text, samples)


def counter(name: str, help_text: str, samples: Iterable[Sample]) -> Iterator[str]:
    """Yield the lines of a counter, which only goes up; its name ends in `_total`."""
    return family(name, "counter", help_text, samples)


def by(label: str, counts: Mapping[Any, float]) -> list[Sample]:
    """Return one sample per key, with the key as the value of `label`."""
    return [({label: str(key)}, count) for key, count in counts.items()]


def line(name: str, labels: Labels, value: float) -> str:
    """Return the line of one sample."""
    labels_text = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{labels_text}}} {number(value)}" if labels_text else f"{name} {number(value)}"


def number(value: float) -> str:
    """Format a value or a bucket's bound."""
    return "+Inf" if value == float("inf") else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
