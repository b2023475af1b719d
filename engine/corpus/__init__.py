"""The policy's training corpus: dialogues built from its own sentences by a seeded generator."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from engine.corpus import families, filler, tones, word_lists
from engine.corpus.families import QuestionAnswer
from engine.corpus.tools import DialogueTools
from engine.policy.chat_template import Dialogue, Turn

__all__ = ["Corpus"]

_FUNCTIONS = [function for function, _ in families.FAMILIES]
_WEIGHTS = [weight for _, weight in families.FAMILIES]
_REPEATS = ("Can you repeat that?", "Say that again.", "Pardon?", "What did you say?")
_SHORTER = ("Say it shorter.", "In a few words?", "Make it shorter.")
_NAME_IS = ("My name is {}.", "I am {}.", "Call me {}.")
_NAME_ASK = ("What is my name?", "Who am I?", "Do you know my name?")
_LEADS = ("Please tell me: ", "Hey, ", "One question: ", "Tell me, ", "I have a question. ")


class Corpus:
    """Generator of dialogues.

    Args:
        seed: Equal seeds give equal dialogues.
        noisy: Makes nearly half of the sums and three of ten capitals wrong, so that rewards have
            something to teach.
    """

    def __init__(self, seed: int, noisy: bool = True) -> None:
        self._rng = Random(seed)
        self.noisy = noisy

    def dialogue(self) -> Dialogue:
        """Return a short dialogue, usually one question and its answer."""
        rng = self._rng
        tone, system = self._tone()
        if rng.random() < 0.06:
            system = self._padded(system, rng.randint(60, 300))
        draw = rng.random()
        if draw < 0.12:
            return self._with_tools(tone, system, rng.randint(0, 4))
        count = 1 if draw < 0.8 else rng.randint(2, 3)
        turns: list[Turn] = []
        for _ in range(count):
            turns += self._exchange(tone)
        if count > 1 and rng.random() < 0.4:
            turns += self._follow_up(tone, turns)
        return Dialogue(system, (), tuple(turns))

    def long_dialogue(self, tokens: int) -> Dialogue:
        """Return a dialogue of about `tokens` tokens: long system lines, histories, lists or
        texts."""
        rng = self._rng
        tone, system = self._tone()
        room = int(tokens * 2.7)
        kind = rng.choice(("system", "history", "tools", "text"))
        if kind == "tools":
            dialogue = self._with_tools(tone, system, rng.randint(6, 20))
            room -= sum(map(len, dialogue.tools)) + 150
            return replace(dialogue, system=self._padded(dialogue.system, room))
        turns: list[Turn] = []
        if kind == "history":
            while sum(len(turn.text) for turn in turns) < room - 150:
                turns += self._exchange(tone)
            turns += self._exchange(tone)
            return Dialogue(system, (), tuple(turns))
        turns = self._exchange(tone)
        if kind == "system":
            if rng.random() < 0.4:
                room //= 2
                turns = [*self._exchange(tone), *self._exchange(tone), *turns]
            return Dialogue(self._padded(system, room), (), tuple(turns))
        text = filler.text(rng, room)
        question = turns[0].text
        parts = (text, question) if rng.random() < 0.7 else (question, text)
        turns[0] = Turn("user", rng.choice(("\n", "\n\n", " ")).join(parts))
        return Dialogue(system, (), tuple(turns))

    def _padded(self, system: str, room: int) -> str:
        text = filler.text(self._rng, max(0, room))
        return f"{system} {text}" if self._rng.random() < 0.8 else f"{text} {system}"

    def _tone(self) -> tuple[tones.Tone, str]:
        rng = self._rng
        tone = rng.choice(tones.TONES)
        draw = rng.random()
        if draw < 0.3:
            line = rng.choice(tone.system)
            if rng.random() < 0.4:
                line = f"{rng.choice(tones.PLAIN_SYSTEM)} {line}"
            return tone, line
        return tone, rng.choice(tones.PLAIN_SYSTEM) if draw < 0.5 else ""

    def _question(self) -> QuestionAnswer:
        family = self._rng.choices(_FUNCTIONS, _WEIGHTS)[0]
        return family(self._rng, self.noisy)

    def _exchange(self, tone: tones.Tone) -> list[Turn]:
        rng = self._rng
        if rng.random() < 0.02:
            return self._name(tone)
        question_answer = self._question()
        question = self._worded(question_answer.question)
        if rng.random() < 0.06:
            tone = rng.choice(tones.TONES)
            question += " " + rng.choice(tone.system)
        return [
            Turn("user", question),
            Turn("assistant", tone.phrase(rng, question_answer.full, question_answer.short)),
        ]

    def _worded(self, question: str) -> str:
        rng = self._rng
        if rng.random() < 0.06:
            question = rng.choice(_LEADS) + question
        draw = rng.random()
        if draw < 0.15:
            question = question.lower()
        if draw < 0.1 or draw > 0.9:
            question = question.rstrip(".?!")
        return question

    def _name(self, tone: tones.Tone) -> list[Turn]:
        rng = self._rng
        name = rng.choice(word_lists.names())
        return [
            Turn("user", rng.choice(_NAME_IS).format(name)),
            Turn("assistant", tone.phrase(rng, f"Nice to meet you, {name}.", f"Hello, {name}.")),
            Turn("user", self._worded(rng.choice(_NAME_ASK))),
            Turn("assistant", tone.phrase(rng, f"Your name is {name}.", f"{name}.")),
        ]

    def _follow_up(self, tone: tones.Tone, turns: Sequence[Turn]) -> list[Turn]:
        rng = self._rng
        last = turns[-1].text
        if rng.random() < 0.7:
            return [Turn("user", self._worded(rng.choice(_REPEATS))), Turn("assistant", last)]
        entry = rng.choice(word_lists.facts())
        return [
            Turn("user", rng.choice(entry.questions)),
            Turn("assistant", tone.phrase(rng, entry.full, entry.short)),
            Turn("user", self._worded(rng.choice(_SHORTER))),
            Turn("assistant", entry.short),
        ]

    def _with_tools(self, tone: tones.Tone, system: str, others: int) -> Dialogue:
        rng = self._rng
        tools = DialogueTools(rng, others)
        turns: list[Turn] = []
        if rng.random() < 0.15:
            turns += self._exchange(tone)
        question_answer, calls = tools.turns(rng, self.noisy)
        turns.append(Turn("user", self._worded(question_answer.question)))
        turns += calls
        turns.append(
            Turn("assistant", tone.phrase(rng, question_answer.full, question_answer.short))
        )
        return Dialogue(system, tools.lines, tuple(turns))
