"""Teach a chat application's policy a persona.

    python -m examples.persona

The user's way is the real one: mock user, the application's own API, its backend, the fake vLLM,
the embedded engine, and back. The reward is the pair of hooks in `examples/hooks/persona`.
"""

import sys
from pathlib import Path

from examples.lesson import Lesson, Row, main
from examples.persona.measure import liveliness
from examples.stage import Stage, say

HERE = Path(__file__).resolve().parent


def _application(stage: Stage, base_url: str) -> None:
    """Start the chat application with the fake vLLM's address as its only configuration."""
    stage.environment["OPENAI_BASE_URL"] = base_url
    stage.environment["OPENAI_API_KEY"] = "any-key"
    child = stage.start("app", sys.executable, str(HERE / "app.py"), "--port", "0")

    def port() -> str:
        words = stage.log("app").partition("http://127.0.0.1:")[2].split()
        return words[0].strip("/") if words else ""

    stage.environment["CHAT_PORT"] = stage.wait("app", child, port)
    say(f"chat application http://127.0.0.1:{stage.environment['CHAT_PORT']}")


def _right(row: Row, text: str) -> float:
    return float(any(core in text for core in row.reference.split("|")))


LESSON = Lesson(
    name="persona",
    measure="liveliness, 0 to 1",
    score=lambda row, text: liveliness(text),
    also={"the fact is in the answer word for word": _right},
    held_out=HERE / "held_out.jsonl",
    dataset=HERE / "questions.jsonl",
    proxy=("--hooks", str(HERE.parent / "hooks" / "persona")),
    target=("--target", str(HERE / "app.yaml")),
    application=_application,
)

if __name__ == "__main__":
    sys.exit(main(LESSON))
