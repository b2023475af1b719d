"""Size of the looks that fit between two weight syncs, learned from looks that were cut."""

CUTS = 2
"""Number of consecutive cut looks after which the next one is smaller."""
MARGIN = 0.8
"""Share of the answers that fit which the next look takes."""


class RollingPhases:
    """The number of answers for each prompt of the next look.

    A look of a server without snapshots ends with its ROLLING phase. After two looks that were cut
    in a row, the next ones take as many answers for each prompt as fitted. The number follows from
    earlier looks only, never from the answers of the look itself, so its interval stays valid.

    Args:
        samples: Setting `probe.samples`; it is never changed where it is not 0.

    Attributes:
        samples: Answers for each prompt of the next look; 0 as many as are usual.
        done: Number of answers of the look in progress, so far.
    """

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.done = 0
        self._fixed = samples > 0
        self._prompts = self._planned = 0
        self._cuts: list[int] = []
        """Number of answers of each look that was cut since the last complete one."""

    def begin(self, prompts: int, samples: int) -> None:
        """Begin a look at a number of prompts with `samples` answers for each."""
        if prompts != self._prompts:
            self._cuts.clear()
        self._prompts, self._planned, self.done = prompts, samples, 0

    def complete(self) -> None:
        """End a complete look."""
        self._cuts.clear()

    def cut(self) -> str:
        """End a look that a weight sync cut; return what follows from it for the operator."""
        self._cuts.append(self.done)
        answers = f"{self.done} of {self._prompts * self._planned} answers were sampled"
        if len(self._cuts) < CUTS:
            return answers
        fits = int(MARGIN * max(self._cuts))
        samples = min(fits // self._prompts, self._planned - 1)
        if fits < 1:
            return f"{answers}: none fits between syncs. Take a look while no user waits"
        if samples < 1:
            return f"{answers}; use fewer prompts in `probe.file`: about {fits} fit between syncs"
        if self._fixed:
            return f"{answers}; `probe.samples: {samples}` fits between syncs"
        self.samples = samples
        self._cuts.clear()
        plural = "" if samples == 1 else "s"
        return f"{answers}; the next look takes {samples} answer{plural} for each prompt"
