"""The prompts of the probe set whose rewards changed most."""

from dataclasses import dataclass
from statistics import fmean

from core.events import PromptFigures
from core.state import Progress
from core.verdict.conclusion import CHANCE


@dataclass(frozen=True, slots=True)
class PromptChange:
    """One probe prompt in the baseline and in the newest look; texts as the model wrote them."""

    id: str
    prompt: str
    reference: str
    before: float | None
    """Mean reward in the baseline; None for comparisons."""
    now: float
    """Mean reward in the look; for comparisons the win rate."""
    text_before: str
    text_now: str
    rewards_before: tuple[float, ...] = ()
    rewards_now: tuple[float, ...] = ()
    likeliest: bool = True
    """Whether both texts are the answers of greatest probability; else each is one of several
    random samples, which differ without a change of the policy, too."""

    @property
    def change(self) -> float:
        """Difference of the means; for comparisons the distance to an even win rate."""
        return self.now - (CHANCE if self.before is None else self.before)

    @property
    def same_text(self) -> bool:
        """Whether both answers are equal."""
        return self.text_before == self.text_now


def prompt_changes(progress: Progress) -> list[PromptChange]:
    """Return the prompts of the newest look, those whose mean reward changed most first.

    Where it changed equally, other answers come before equal ones.
    """
    look = progress.current
    if look is None:
        return []
    known = (
        {prompt.id: prompt for prompt in progress.probe_set.prompts} if progress.probe_set else {}
    )
    before = {figures.id: figures for figures in progress.before}
    changes = []
    for now in progress.now:
        was = before.get(now.id)
        if not now.rewards or was is None:
            continue
        likeliest = bool(was.answer and now.answer)
        text_before, text_now = _texts(was, now, likeliest)
        prompt = known.get(now.id)
        absolute = look.mode == "absolute"
        changes.append(
            PromptChange(
                now.id,
                prompt.prompt if prompt is not None else now.id,
                prompt.reference if prompt is not None else "",
                fmean(was.rewards) if absolute and was.rewards else None,
                fmean(now.rewards),
                text_before,
                text_now,
                was.rewards if absolute else (),
                now.rewards,
                likeliest,
            )
        )
    return sorted(
        changes, key=lambda change: (-round(abs(change.change), 9), change.same_text, change.prompt)
    )


def _texts(before: PromptFigures, now: PromptFigures, likeliest: bool) -> tuple[str, str]:
    """Return the answers to compare: those of greatest probability, else the first samples."""
    if likeliest:
        return before.answer, now.answer
    return before.example or before.answer, now.example or now.answer
