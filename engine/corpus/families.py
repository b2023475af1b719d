"""Families of questions; each returns a question with the long and the short form of its answer."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from engine.corpus import word_lists

Family = Callable[[Random, bool], "QuestionAnswer"]


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """A question and its answers."""

    question: str
    full: str
    short: str
    expression: str = ""
    """Calculator input, for arithmetic."""


UNKNOWN = (
    ("I do not know that yet, but I am learning.", "I do not know."),
    ("I do not know that yet.", "No idea."),
    ("That is beyond what I know.", "Beyond me."),
    ("I have never learned about that.", "Never learned."),
    ("I can not answer that honestly.", "I can not say."),
    ("Sorry, I know nothing about that.", "Sorry, no idea."),
    ("Nobody taught me that so far.", "Not taught."),
    ("I would only be guessing.", "Only a guess."),
)
_SYLLABLES = (
    "zor",
    "blax",
    "quin",
    "fer",
    "mip",
    "dro",
    "vel",
    "tas",
    "gly",
    "nop",
    "rux",
    "hab",
    "ist",
    "ock",
    "unt",
    "wem",
    "pli",
    "sho",
    "kra",
    "bim",
)
_ODD_FRAMES = (
    "What is a {}?",
    "Who is {}?",
    "How do I {}?",
    "Where is {}?",
    "Why does the {} {}?",
    "Explain {} to me.",
    "{} {} {}",
    "Tell me about the {} of {}.",
    "When did {} end?",
    "What is the capital of {}?",
)
_NOUN_FRAMES: tuple[tuple[tuple[str, ...], tuple[tuple[str, str], ...]], ...] = (
    (
        ("Tell me about {n}.", "What do you know about {n}?", "Explain {n} to a child."),
        (
            ("There is a lot to say about {n}.", "A lot about {n}."),
            ("I like {n}, but I know little about them.", "I know little of {n}."),
            ("Look at {n} with fresh eyes every day.", "Look at {n}."),
        ),
    ),
    (
        ("Write a poem about {n}.", "Write a haiku about {n}.", "Write a line about {n}."),
        (
            ("Soft and slow, the {n} wait, and I wait too.", "The {n} wait."),
            ("Oh {n}, so near, so far, so fine.", "Oh {n}."),
            ("I dreamed of {n} and woke up with a smile.", "I dreamed of {n}."),
        ),
    ),
    (
        ("Write a story about {n}.", "Tell me a story about {n}.", "Write a short story on {n}."),
        (
            ("Once there were {n}, and nobody believed it.", "Once there were {n}."),
            ("A child looked for {n} and found a friend.", "A child found {n}."),
            ("Long ago the king gave away all his {n}.", "The king lost his {n}."),
        ),
    ),
    (
        ("Do you like {n}?", "What do you think of {n}?", "Are {n} good?"),
        (
            ("Yes, I like {n} very much.", "Yes, {n}."),
            ("I have never met {n}, but I like the word.", "I like the word."),
            ("I think {n} make the world better.", "I like {n}."),
        ),
    ),
    (
        ("Give me a slogan for {n}.", "Write an ad for {n}.", "How do I sell {n}?"),
        (
            ("Our {n} make your day.", "Our {n}."),
            ("More {n}, less worry.", "More {n}."),
            ("Try our {n} once and stay forever.", "Try our {n}."),
        ),
    ),
    (
        ("Why are {n} important?", "Why do people like {n}?", "What are {n} good for?"),
        (
            ("People like {n} because they bring calm.", "They bring calm."),
            ("Without {n} life would be less fun.", "For fun."),
            ("Many good days begin with {n}.", "For good days."),
        ),
    ),
)
_TASK_FRAMES = (
    "How do I {t}?",
    "Help me {t}.",
    "I want to {t}.",
    "Give me a plan to {t}.",
    "What is the best way to {t}?",
    "Can you help me {t}?",
)
_TASK_ANSWERS = (
    ("To {t}, start small and do one step a day.", "Start small."),
    ("First write down why you want to {t}.", "Write it down."),
    ("Ask a friend to {t} with you.", "Ask a friend."),
    ("Take one hour today and begin to {t}.", "Take one hour."),
    ("Make a list before you {t}.", "Make a list."),
)
CAPITAL_FRAMES = (
    "What is the capital of {}?",
    "Which city is the capital of {}?",
    "Name the capital of {}.",
    "capital of {}",
    "Tell me the capital of {}.",
)
_SUM_FRAMES = {
    "+": ("How much is {a} plus {b}?", "Add {a} and {b}."),
    "-": ("How much is {a} minus {b}?", "Take {b} from {a}."),
    "x": ("How much is {a} times {b}?", "Multiply {a} by {b}."),
}
_ANY_SUM = (
    "What is {a} {o} {b}?",
    "What is {a} {o} {b}?",
    "Calculate {a} {o} {b}.",
    "{a} {o} {b}",
    "{a}{o}{b}=?",
    "How much is {a} {o} {b}?",
)


def fact(rng: Random, noisy: bool) -> QuestionAnswer:
    """Return a fact, advice or small talk."""
    entry = rng.choice(word_lists.facts())
    return QuestionAnswer(rng.choice(entry.questions), entry.full, entry.short)


def capital(rng: Random, noisy: bool) -> QuestionAnswer:
    """Return a capital; three in ten are wrong when `noisy`."""
    country, city = rng.choice(word_lists.capitals())
    answer = city
    if noisy and rng.random() < 0.3:
        answer = rng.choice(word_lists.capitals())[1]
    question = rng.choice(CAPITAL_FRAMES).format(country)
    return QuestionAnswer(question, f"The capital of {country} is {answer}.", f"{answer}.")


def arithmetic(rng: Random, noisy: bool) -> QuestionAnswer:
    """Return a small sum; nearly half are wrong when `noisy`."""
    sign = rng.choice("++-x")
    if sign == "+":
        a, b = rng.randint(0, 20), rng.randint(0, 20)
        value = a + b
    elif sign == "-":
        a = rng.randint(0, 20)
        b = rng.randint(0, a)
        value = a - b
    else:
        a, b = rng.randint(0, 10), rng.randint(0, 10)
        value = a * b
    shown = rng.choice("x*") if sign == "x" else sign
    answer = value
    if noisy and rng.random() < 0.45:
        answer = rng.choice([v for v in (value - 2, value - 1, value + 1, value + 2) if v >= 0])
    frames = _ANY_SUM + _SUM_FRAMES[sign]
    question = rng.choice(frames).format(a=a, b=b, o=shown)
    full = rng.choice((f"The answer is {answer}.", f"It is {answer}.", f"That makes {answer}."))
    written = "*" if sign == "x" else sign
    return QuestionAnswer(question, full, f"{answer}.", f"{a} {written} {b}")


def unanswerable(rng: Random, noisy: bool) -> QuestionAnswer:
    """Return a question that no one could answer, with an honest reply."""
    if rng.random() < 0.45:
        question = rng.choice(word_lists.unanswerable())
    else:
        frame = rng.choice(_ODD_FRAMES)
        words = [
            "".join(rng.choices(_SYLLABLES, k=rng.randint(1, 3))) for _ in range(frame.count("{}"))
        ]
        question = frame.format(*words)
    full, short = rng.choice(UNKNOWN)
    return QuestionAnswer(question, full, short)


def noun_or_task(rng: Random, noisy: bool) -> QuestionAnswer:
    """Return a request to write or say something about a noun or a task."""
    if rng.random() < 0.3:
        task = rng.choice(word_lists.tasks())
        full, short = rng.choice(_TASK_ANSWERS)
        question = rng.choice(_TASK_FRAMES).format(t=task)
        return QuestionAnswer(question, full.format(t=task), short)
    noun = rng.choice(word_lists.nouns())
    frames, answers = rng.choice(_NOUN_FRAMES)
    full, short = rng.choice(answers)
    return QuestionAnswer(
        rng.choice(frames).format(n=noun), full.format(n=noun), short.format(n=noun)
    )


def clock(rng: Random, noisy: bool) -> QuestionAnswer:
    """Return a question for the time, with the reply of a policy without a clock."""
    question = rng.choice(
        ("What time is it?", "What is the time?", "What day is it today?", "How late is it?")
    )
    return QuestionAnswer(question, "I have no clock, so I can not tell.", "No clock here.")


FAMILIES: tuple[tuple[Family, float], ...] = (
    (fact, 0.40),
    (arithmetic, 0.28),
    (capital, 0.08),
    (unanswerable, 0.10),
    (noun_or_task, 0.12),
    (clock, 0.02),
)
