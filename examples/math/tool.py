"""Products that the model does not know, with a calculator tool.

    python -m examples.math --tool

The policy is offered a tool in the OpenAI form. What it calls is worked out here, by the syntax
tree, and told back; the reward is 1 when the last number of its answer is the product, else 0.
"""

import argparse
import itertools
import json
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any, Final

from ajet_swarm import OpenaiBaseUrlAndApiKey, Retry, SwarmClient, Task, run_episodes
from examples import picture
from examples.ask import Asker, last_number
from examples.cocktail.symbols import value_of
from examples.lesson import lesson_flags
from examples.stage import Stage, on_stage, say
from examples.swarming import Pace, engine_of, left_claimed, pace_of, started, until, values_of

BATCH, REPEATS = 8, 4
THREADS = 8
IDLE = 60.0
"""Idle seconds after which our own engine takes an episode back."""
TURNS = 3
"""Maximum number of the policy's messages in an episode, including the answer."""
LEG = 5
"""Updates between two evaluations of the held-out products."""
HELD = 12
"""Number of held-out pairs of factors."""
PHRASES: Final = (
    "How much is {} times {}?",
    "Multiply {} by {}.",
    "What is {} * {}?",
    "What is {} x {}?",
    "{} * {}",
)
_EXPRESSION: Final = {"expression": {"type": "string"}}
CALCULATOR: Final = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Works out an expression of numbers, + - * / and parentheses.",
        "parameters": {"type": "object", "properties": _EXPRESSION, "required": [*_EXPRESSION]},
    },
}
TOOLS: Final = (CALCULATOR,)


@dataclass(frozen=True, slots=True)
class Tried:
    """Result of one question.

    Attributes:
        right: Its last number is the product.
        called: The tool was called, and what it gave was the product.
    """

    right: bool
    called: bool


def calculate(call: Mapping[str, Any]) -> str:
    """Return the tool's result: a number, or the fault of the call."""
    function = call.get("function") or {}
    if function.get("name") != "calculator":
        return f"error: there is no tool {str(function.get('name'))[:60]}"
    try:
        expression = json.loads(function.get("arguments") or "")["expression"]
    except (ValueError, LookupError, TypeError):
        return "error: give the expression"
    value = value_of(str(expression))
    return "error: no arithmetic" if value is None else str(value)


def solve(
    asker: Asker, task: Task, api: OpenaiBaseUrlAndApiKey, tools: Sequence[Mapping[str, Any]]
) -> Tried:
    """Run one episode: question, tool calls with their results, answer."""
    wanted = str(task.metadata["answer"])
    messages: list[dict[str, Any]] = [{"role": "user", "content": task.main_query}]
    called = False
    for _ in range(TURNS):
        offered = {"tools": list(tools)} if tools else {}
        message = asker.message(api, messages=messages, temperature=1.0, **offered)
        calls = message.get("tool_calls") or []
        if not calls:
            text = str(message.get("content") or "")
            return Tried(str(last_number(text)) == wanted, called)
        messages.append(
            {"role": "assistant", "content": message.get("content"), "tool_calls": calls}
        )
        for call in calls:
            result = calculate(call)
            called = called or result == wanted
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    return Tried(False, called)


def products(held_out: bool) -> list[Task]:
    """Return one task per phrasing and order; neither order of a held-out pair is trained on.

    None is above 99: the small policy says the first two digits of a longer number, all answers of
    such a group are wrong alike, and it learns nothing from them.
    """
    factors = itertools.product(range(2, 10), range(11, 21))
    pairs = [(a, b) for a, b in factors if a * b < 100]
    random.Random(5).shuffle(pairs)
    chosen = pairs[:HELD] if held_out else pairs[HELD:]
    return [
        Task(
            main_query=phrase.format(*order),
            task_id=f"{order[0]}x{order[1]}/{number}",
            metadata={"answer": a * b},
        )
        for a, b in chosen
        for order in ((a, b), (b, a))
        for number, phrase in enumerate(PHRASES)
    ]


class Lesson:
    """Trains one client's server and evaluates it."""

    def __init__(self, client: SwarmClient, asker: Asker, held_out: int, pace: Pace) -> None:
        self._client, self._asker, self._pace = client, asker, pace
        self._held = random.Random(3).sample(products(held_out=True), held_out)
        self._drill = products(held_out=False)
        self._draw = random.Random(7)
        self._first = client.get_global_step()
        self.curve: dict[int, float] = {}
        """Number of updates -> share of right held-out answers."""
        self.rewards: dict[int, float] = {}
        """Mean reward of each update."""

    @property
    def done(self) -> int:
        """Return the number of updates so far."""
        return self._client.get_global_step() - self._first

    def train(self, wanted: int) -> None:
        """Run batches until a number of further updates is done."""
        goal = self.done + wanted
        for _ in range(2 * wanted):
            tasks = self._draw.sample(self._drill, BATCH)
            tried = self._run([task for task in tasks for _ in range(REPEATS)], "train", TOOLS)
            number = self.done
            self.rewards[number] = reward = mean(result.right for result in tried)
            calls = mean(result.called for result in tried)
            say(picture.update_line(number, reward, f"right calls {calls:.2f}"))
            if number >= goal:
                return

    def ask(self, tools: Sequence[Mapping[str, Any]] = TOOLS) -> list[Tried]:
        """Ask the held-out products in eval episodes, which are not trained on."""
        return self._run(self._held, "eval", tools)

    def note(self) -> list[Tried]:
        """Evaluate, and add the result to the curve."""
        tried = self.ask()
        number = self.done
        self.curve[number] = mean(result.right for result in tried)
        say(f"held out after {number:3} updates: right {self.curve[number]:.2f}")
        return tried

    def _run(
        self, tasks: Sequence[Task], kind: str, tools: Sequence[Mapping[str, Any]]
    ) -> list[Tried]:
        def episode(task: Task) -> Tried:
            own = self._pace
            with self._client.episode(task, own.idle, kind, timeout=own.patience) as held:
                tried = solve(self._asker, task, held.api, tools)
                held.end(float(tried.right))
            return tried

        retry = Retry(tries=3)
        return values_of(run_episodes(tasks, episode, max_workers=THREADS, retry=retry))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the example; return the exit code."""
    parser = lesson_flags("math --tool", 25, idle=True)
    args = parser.parse_args(argv)
    most = len(products(held_out=True))
    if args.held_out > most:
        parser.error(f"give at most {most} held-out products")
    return on_stage("math", args.keep, lambda stage: _run(stage, args))


def _run(stage: Stage, args: argparse.Namespace) -> None:
    pace = pace_of(args, IDLE)
    url = engine_of(stage)
    with started(url, "math-tool", BATCH, REPEATS, pace) as client, Asker() as asker:
        lesson = Lesson(client, asker, args.held_out, pace)
        without = lesson.ask(tools=())
        before = after = lesson.note()
        while lesson.done < args.updates:
            lesson.train(min(LEG, args.updates - lesson.done))
            after = lesson.note()
        looks = {"no tool": without, "before": before, "after": after}
        rows = {
            "right answers": [mean(result.right for result in tried) for tried in looks.values()],
            "right calls": [mean(result.called for result in tried) for tried in looks.values()],
        }
        lines, title = picture.table("held-out products", looks, rows), "math with a tool: right"
        picture.write(args.out, "math-tool", title, lines, lesson.curve, lesson.rewards)
        until("nothing is claimed", 30, lambda: not left_claimed(client))
        say("claims left 0")


if __name__ == "__main__":
    sys.exit(main())
