"""Why a group has no answer, or fewer than it asked for."""

from ajet_swarm.common.text import one_line
from ajet_swarm.protocol.errors import ChatErrorKind
from core.events.causes import NoAnswers, TooFewAnswers
from proxy.groups.generate import GONE
from proxy.groups.run import Candidate, GroupRun
from proxy.http.errors import ApiError
from proxy.http.upstream_errors import refusal_of


def no_answers(run: GroupRun) -> NoAnswers:
    """Return why the candidates failed, and why they were not retried."""
    return NoAnswers(
        errors=tuple(dict.fromkeys(one.error or "no answer" for one in run.candidates)),
        unretried=tuple(dict.fromkeys(one.unretried for one in run.candidates if one.unretried)),
    )


def no_answers_text(failures: NoAnswers) -> str:
    """Return the cause of a group without answers as text."""
    more = f"; not retried: {', '.join(failures.unretried)}" if failures.unretried else ""
    return f"no candidate gave an answer: {', '.join(failures.errors)}{more}"


def shortfall(run: GroupRun) -> tuple[str, TooFewAnswers | None]:
    """Return how many candidates answered and why the others did not, as text and by kind; empty
    and None if all did."""
    if len(run.usable) >= run.n:
        return "", None
    causes: dict[str, list[str]] = {}
    for one in run.candidates:
        if not one.usable:
            causes.setdefault(_why_failed(one), []).append(str(one.index + 1))
    details = [
        f"candidate{'s' if len(numbers) > 1 else ''} {', '.join(numbers)} {cause}"
        for cause, numbers in causes.items()
    ]
    text = "; ".join([f"short: {len(run.usable)} of {run.n} candidates answered", *details])
    return text, TooFewAnswers(answered=len(run.usable), of=run.n)


def _why_failed(candidate: Candidate) -> str:
    failure = candidate.failure
    if failure is None:
        return "not asked"
    verb = "aborted" if failure.kind is ChatErrorKind.TIMED_OUT else "failed"
    why = one_line(failure.text, 160) or failure.kind.value
    more = f" (not retried: {candidate.unretried})" if candidate.unretried else ""
    return f"{verb}: {why}{more}"


def no_answer_error(run: GroupRun) -> ApiError:
    """Return the error for the user when no candidate gave an answer."""
    if (refusal := refusal_of(one.failure for one in run.candidates)) is not None:
        return refusal
    errors = {one.error for one in run.candidates}
    if errors == {ChatErrorKind.OVERFLOW.value}:
        text = (
            "This model's maximum context length is exceeded by your prompt. "
            "Please reduce the length of the input prompt."
        )
        return ApiError(400, None, text, param="input_tokens")
    if errors == {ChatErrorKind.OVERSIZED.value}:
        text = "The answers of the model are larger than the request allows."
        return ApiError(502, None, text, repeatable=False)
    if errors & GONE:
        return run.overloaded(5)
    return run.overloaded(
        5, f"None of the {run.n} candidates gave an answer. Please try again later."
    )
