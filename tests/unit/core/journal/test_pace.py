"""The pruner's tasks grow while they are quick, and shrink when they are slow."""

from core.journal.pace import Pace


def test_a_task_grows_with_the_haste_up_to_a_bound() -> None:
    slow, fast = Pace(), Pace()
    for pace, haste in ((slow, 0.0), (fast, 1.0)):
        for _ in range(20):
            pace.adapt(pace.amount * 0.0001, pace.amount, haste)  # 0.1 ms a row
    assert (slow.amount, fast.amount) == (32, 64)
    for _ in range(3):
        fast.adapt(0.013, fast.amount, 1.0)
    assert fast.amount == 8
