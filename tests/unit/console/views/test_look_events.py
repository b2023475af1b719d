"""The lines of the events of the progress measurement, in the log and in `watch`."""

import pytest

from console.views.events import event_line
from core.events import Event, Rewound, TrainingPaused, TrainingResumed, TrainingRunIdentified
from tests.support.checks import present
from tests.support.looks import SERVER, baseline, broken_look, look, probe_set, running_look


@pytest.mark.parametrize(
    ("event", "text", "level"),
    [
        (probe_set(), "probe set shipped: 4 held-out prompts, never trained on", "info"),
        (
            probe_set(enabled=False),
            "probe set shipped: 4 held-out prompts, never trained on; looks are off "
            "(`probe.share: 0`)",
            "info",
        ),
        (
            probe_set(error="no probe set: set `probe.file`"),
            "no probe set: set `probe.file`",
            "warning",
        ),
        (running_look(0)[0], "look at step 13 begins: 512 answers", "info"),
        (baseline(seconds=12.4), "baseline at step 1: 0.41 (0.35 to 0.47) in 12 s", "info"),
        (
            look("l1", 12, restarted="the reward changed"),
            "look at step 12: 0.62 (0.55 to 0.69) in 11 s; better by 0.21 (0.12 to 0.30); "
            "new comparison: the reward changed",
            "info",
        ),
        (
            broken_look("l2", 13, "cut", "the weights\x1b[2J were replaced"),
            "look at step 13 was cut short: the weights␛ were replaced",
            "warning",
        ),
        (broken_look("l2", None, "failed", "judge down"), "look failed: judge down", "warning"),
        (
            TrainingPaused(server=SERVER, cause="by the operator"),
            "training is paused: by the operator",
            "warning",
        ),
        (TrainingResumed(server=SERVER), "training is resumed", "info"),
        (
            Rewound(server=SERVER, look_id="l1", step=12, restored="progress-2"),
            "rewound to the weights of step 12: restored from progress-2",
            "info",
        ),
        (
            Rewound(server=SERVER, look_id="l1", restored="/m\x1b[2J", model="/m"),
            "rewound to the weights of the baseline: the job has the model /m␛",
            "info",
        ),
        (
            baseline("b2", 12, seconds=12.4, restarted="requested by the operator"),
            "baseline at step 12: 0.41 (0.35 to 0.47) in 12 s; "
            "new comparison: requested by the operator",
            "info",
        ),
        (
            TrainingRunIdentified(server=SERVER, number=2, name="math.3", start="best"),
            "the weights are of training run 2 (math.3), begun with best",
            "info",
        ),
    ],
)
def test_each_event_is_one_line(event: Event, text: str, level: str) -> None:
    line = present(event_line(event))
    assert (line.about, line.level) == (SERVER, level)
    assert line.text.replace("[2J", "") == text


def test_a_growing_look_has_no_line() -> None:
    assert event_line(running_look(3)[1]) is None
