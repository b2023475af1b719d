"""What a group came to: its sealed rewards, or why there was no answer."""

from core.advantage import advantages, is_dead, spread
from core.events import GroupSealed, SentReward
from proxy.errors import Refusal, busy
from proxy.generate import GONE
from proxy.run import Run
from proxy.upstream_faults import refusal_of
from swarm.errors import ChatErrorKind


def sealed(run: Run, rewards: dict[int, float], best: int, source: str) -> GroupSealed:
    """The event that fixes these rewards, by candidate."""
    mine = [one for one in run.usable if not one.taken]  # the others cannot be sent any more
    order = [one.index for one in mine]
    values = [rewards[index] for index in order]
    found = dict(zip(order, advantages(values, run.sense.damping), strict=True))
    dead = ""
    if is_dead(values):
        dead = "equal rewards" if len(values) > 1 else "a single candidate"
    return GroupSealed(
        server=run.sense.server.name,
        group_id=run.group_id,
        rewards=tuple(
            [
                SentReward(
                    index=one.index,
                    episode_uuid=one.uuid,
                    reward=rewards[one.index],
                    advantage=found[one.index],
                )
                for one in mine
            ]
        ),
        best=best,
        source=source,
        dead=dead,
        spread=spread(values),
        version=run.sheet.version if run.sheet is not None else "",
    )


def errors_of(run: Run) -> str:
    """Why the candidates failed."""
    return ", ".join(dict.fromkeys(one.error or "no answer" for one in run.candidates))


def why_none(run: Run) -> Refusal:
    """What the user is told when no candidate gave an answer."""
    if (told := refusal_of(one.failure for one in run.candidates)) is not None:
        return told
    errors = {one.error for one in run.candidates}
    if errors == {ChatErrorKind.OVERFLOW.value}:
        text = (
            "This model's maximum context length is exceeded by your prompt. "
            "Please reduce the length of the input prompt."
        )
        return Refusal(400, None, text, param="input_tokens")
    if errors & GONE:
        return busy(5)
    return busy(5, f"None of the {run.n} candidates gave an answer. Please try again later.")
