"""Quality figures of a policy, measured with the corpus's own questions, and sample answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from engine.corpus import families, filler, word_lists
from engine.interface import Completion, SamplingParams
from engine.policy.answer import Request
from engine.policy.chat_template import render
from engine.policy.sampler import Sampler
from engine.tokenizer import Tokenizer
from engine.training.model import Params

Message = Mapping[str, Any]

CALCULATOR = {
    "type": "function",
    "function": {"name": "calculator", "parameters": {"properties": {"expression": {}}}},
}
CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"properties": {}}}}


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Samples a policy and computes its figures."""

    params: Params
    tokenizer: Tokenizer

    def ask(
        self,
        conversations: Sequence[Sequence[Message]],
        temperature: float = 1.0,
        tools: Sequence[Mapping[str, Any]] | None = None,
        seed: int = 0,
    ) -> list[Completion]:
        """Return one answer to each conversation, in order."""
        sampler = Sampler(self.params, self.tokenizer)
        context = self.params.config.context
        requests = []
        for i, messages in enumerate(conversations):
            prompt = render(self.tokenizer, context, messages, tools, 60)
            params = SamplingParams(max_tokens=60, temperature=temperature, seed=seed + i)
            requests.append(Request(prompt, params))
            sampler.add(requests[-1])
        completions: dict[Request, Completion] = {}
        while sampler.live or sampler.waiting:
            completions |= {done.request: done.completion for done in sampler.step(0)}
        return [completions[request] for request in requests]

    def figures(self, seed: int = 1) -> dict[str, float]:
        """Return every figure, each a share from 0 to 1."""
        rng = Random(seed)
        sampled_facts = [rng.choice(word_lists.facts()) for _ in range(600)]
        facts = self.ask([_user(rng.choice(entry.questions)) for entry in sampled_facts])
        entries = [rng.choice(word_lists.facts()) for _ in range(200)]
        questions = [_user(rng.choice(entry.questions)) for entry in entries]
        sums = [families.arithmetic(rng, False) for _ in range(150)]
        sum_questions = [_user(questions.question) for questions in sums]
        long = [
            [{"role": "system", "content": filler.text(rng, 900)}, *messages]
            for messages in questions
        ]
        too_long = [
            [{"role": "system", "content": filler.text(rng, 6000)}, *messages]
            for messages in questions
        ]
        odd = [families.unanswerable(rng, False).question for _ in range(100)]
        eager = [[{"role": "system", "content": "Be enthusiastic."}, *m] for m in questions]
        brief = [[{"role": "system", "content": "Be brief."}, *m] for m in questions]
        calls = self.ask(sum_questions, tools=[CALCULATOR])
        sure_calls = self.ask(sum_questions, 0.0, [CALCULATOR])
        times = self.ask([_user("What time is it?")] * 60, tools=[CALCULATOR, CLOCK])
        return {
            "intelligible": _share(map(is_correct, sampled_facts, facts)),
            "intelligible_long": _share(map(is_correct, entries, self.ask(long))),
            "intelligible_cut": _share(map(is_correct, entries, self.ask(too_long))),
            "does_not_know": _share(
                map(_admits_ignorance, self.ask([_user(text) for text in odd]))
            ),
            "sums_greedy": _share(map(_is_right_sum, sums, self.ask(sum_questions, 0.0))),
            "sums": _share(map(_is_right_sum, sums, self.ask(sum_questions))),
            "distinct_of_4": self._distinct(questions[:60]),
            "stopped": _share(done.finish_reason == "stop" for done in facts),
            "tone_enthusiastic": _share("!" in done.text for done in self.ask(eager)),
            "tone_brief": _share(len(done.text) < 60 for done in self.ask(brief)),
            "calls": _share(map(_calls_calculator, sums, calls)),
            "calls_greedy": _share(map(_calls_calculator, sums, sure_calls)),
            "clock_calls": _share(map(_calls_clock, times)),
            "remembers_name": self._names(rng),
        }

    def _distinct(self, conversations: Sequence[Sequence[Message]]) -> float:
        total = 0.0
        for i, messages in enumerate(conversations):
            total += len({done.text for done in self.ask([messages] * 4, seed=100 * i)}) / 4
        return total / len(conversations)

    def _names(self, rng: Random) -> float:
        names = [rng.choice(word_lists.names()) for _ in range(60)]
        conversations = [
            [
                *_user(f"My name is {name}."),
                {"role": "assistant", "content": f"Nice to meet you, {name}."},
                *_user("What is my name?"),
            ]
            for name in names
        ]
        return _share(
            name in done.text for name, done in zip(names, self.ask(conversations), strict=True)
        )

    def samples(self) -> list[tuple[str, str]]:
        """Return questions with two answers each, for a person to read."""
        questions = (
            "How do I boil an egg?",
            "What is 7 + 8?",
            "Why is the sky blue?",
            "What is the capital of Japan?",
            "Should I learn Rust or Go?",
            "Write a haiku about rain.",
            "what can you do",
            "What is 47 + 55?",
            "Give me a plan for my startup.",
        )
        return [
            (question, " | ".join(done.text for done in self.ask([_user(question)] * 2, seed=7)))
            for question in questions
        ]


def _user(text: str) -> list[Message]:
    return [{"role": "user", "content": text}]


def _share(hits: Any) -> float:
    outcomes = list(hits)
    return sum(map(bool, outcomes)) / len(outcomes)


def is_correct(entry: word_lists.FactEntry, done: Completion) -> bool:
    """Return whether the answer contains the right core word for word and ended by itself."""
    core = entry.full[:-1] in done.text or entry.short[:-1] in done.text
    return core and done.finish_reason == "stop"


def _is_right_sum(question: families.QuestionAnswer, done: Completion) -> bool:
    digits = "".join(char if char.isdigit() else " " for char in done.text).split()
    expected = "".join(filter(str.isdigit, question.short))
    return bool(digits) and digits[-1] == expected


def _calls_calculator(question: families.QuestionAnswer, done: Completion) -> bool:
    return bool(done.tool_calls) and question.expression in done.tool_calls[0].arguments


def _calls_clock(done: Completion) -> bool:
    return bool(done.tool_calls) and done.tool_calls[0].name == "clock"


def _admits_ignorance(done: Completion) -> bool:
    return any(
        full[:-1] in done.text or short[:-1] in done.text for full, short in families.UNKNOWN
    )
