"""Size of the pruner's tasks, adapted so that none holds up the writer for long."""

from dataclasses import dataclass

TASK_SECONDS = (0.002, 0.006)
"""Target seconds of one task: the next one is larger below it, smaller above it."""
HASTY_TASK = 2.0
"""The same at full haste, as a multiple."""


@dataclass(slots=True)
class Pace:
    """Size of the tasks of one kind, adapted to the duration of the last ones."""

    amount: int = 32
    """Rows of the next task."""

    def adapt(self, took: float, amount: int, haste: float) -> None:
        """Adapt the size to a task of `amount` rows that took `took` seconds.

        Args:
            took: Seconds.
            amount: Rows of the task.
            haste: Speed of the pruning, 0 to 1.
        """
        short, long = (one * (1 + (HASTY_TASK - 1) * haste) for one in TASK_SECONDS)
        if amount and took < short and amount >= self.amount:
            self.amount = min(1_024, self.amount * 2)
        elif amount and took > long:
            self.amount = max(4, amount // 2)
