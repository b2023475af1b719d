"""Prometheus's text form: names, labels and numbers as its scrapers read them. No I/O."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]
Sample = tuple[Labels, float]


def family(name: str, kind: str, about: str, samples: Iterable[Sample]) -> Iterator[str]:
    """The lines of one metric: what it is, then one line for each set of labels."""
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"
    for labels, value in samples:
        yield line(name, labels, value)


def gauge(name: str, about: str, samples: Iterable[Sample]) -> Iterator[str]:
    """A metric that goes up and down."""
    return family(name, "gauge", about, samples)


def counter(name: str, about: str, samples: Iterable[Sample]) -> Iterator[str]:
    """A metric that only goes up; its name ends in `_total`."""
    return family(name, "counter", about, samples)


def by(label: str, counts: Mapping[Any, float]) -> list[Sample]:
    """One sample for each key, told by `label`."""
    return [({label: str(key)}, count) for key, count in counts.items()]


def line(name: str, labels: Labels, value: float) -> str:
    """One sample."""
    told = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{told}}} {number(value)}" if told else f"{name} {number(value)}"


def number(value: float) -> str:
    """A value, or a bucket's bound."""
    return "+Inf" if value == float("inf") else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
