"""Functions as targets: in a process of their own, however they behave."""

from pathlib import Path

import pytest

from mock.targets.python import PythonTarget
from mock.targets.question import Answer, Unreachable
from tests.unit.mock.target_helpers import ONCE, ask, question, target_of

pytestmark = pytest.mark.slow

MODULE = """
import asyncio, os, sys, time

calls = 0


def plain(query):
    print("chatter")
    return f"re: {query}"


def described(query, context):
    return " ".join(f"{name}={context[name]}" for name in ("session", "turn", "row", "base_url"))


async def slowly(query, context):
    await asyncio.sleep(0)
    return f"re: {context['messages'][-1]['content']}"


def environ(query):
    return " ".join(str(os.environ.get(name)) for name in query.split())


def count(query):
    global calls
    calls += 1
    return f"{calls} {os.environ['OPENAI_BASE_URL'].split('/')[4]}"


def number(query):
    return 5


def nothing(query):
    return " "


def raises(query):
    raise ValueError(f"bad key {os.environ.get('OWN_KEY')}")


def hangs(query):
    time.sleep(600)


def crashes(query):
    sys.stderr.write("about to go\\n")
    sys.stderr.flush()
    os._exit(3)


def leaves(query):
    sys.exit("no more")


def floods(query):
    return "x" * (5 << 20)


three = 3
"""


def made(folder: Path, function: str, more: str = "") -> PythonTarget:
    (folder / "own_app.py").write_text(MODULE)
    target = target_of(folder, f"kind: python\nfunction: {function}\n{more}")
    assert isinstance(target, PythonTarget)
    return target


@pytest.mark.parametrize("module", ["own_app", "own_app.py"])
async def test_it_answers(tmp_path: Path, module: str) -> None:
    answer = await ask(made(tmp_path, f"{module}:plain"), question('a "b"\n ü'))
    assert answer == Answer(text='re: a "b"\n ü', seconds=answer.seconds)


async def test_the_function_may_be_async_and_gets_the_context(tmp_path: Path) -> None:
    assert (await ask(made(tmp_path, "own_app:slowly"))).text == "re: hi"
    answer = await ask(made(tmp_path, "own_app:described"), question(turn=2))
    base = "http://127.0.0.1:9/sessions/s1/v1"
    assert answer.text == f"session=s1 turn=2 row=row-1 base_url={base}"


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("number", "it returned int, not text"),
        ("nothing", "it returned an empty answer"),
        ("raises", "own_app:raises: ValueError: bad key None (own_app.py:40)"),
        ("hangs", "no answer within 2 s: killed"),
        ("crashes", "no answer: its process ended: about to go"),
        ("leaves", "no answer: its process ended: no more"),
        ("floods", "it answered more than 4 MB"),
    ],
)
async def test_failures_are_reported(tmp_path: Path, function: str, error: str) -> None:
    limit = "timeout: 2\n" if function == "hangs" else ""
    answer = await ask(made(tmp_path, f"own_app:{function}", limit))
    assert (answer.text, answer.error) == ("", error)


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("own_app:missing", "has no attribute 'missing'"),
        ("own_app:three", "`three` is not a function"),
        ("no_such_app:ask", "No module named 'no_such_app'"),
        ("broken.py:ask", r"SyntaxError: .*\(broken.py:2\)"),
    ],
)
async def test_a_function_that_is_not_there_ends_the_run(
    tmp_path: Path, function: str, error: str
) -> None:
    (tmp_path / "broken.py").write_text("\ndef ask(:\n")
    with pytest.raises(Unreachable, match=error) as caught:
        await ask(made(tmp_path, function))
    assert caught.value.where == str(tmp_path / "own.yaml")


async def test_environment_variables_do_not_leak_between_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN_KEY", "hunter2-hunter2")
    monkeypatch.setenv("OTHER_KEY", "sk-of-somebody-else")
    more = "env: [OWN_KEY]\nset: {URL: '{root_url}/x'}\n"
    names = question("OWN_KEY OTHER_KEY URL OPENAI_API_KEY")
    answer = await ask(made(tmp_path, "own_app:environ", more), names)
    assert answer.text == "hunter2-hunter2 None http://127.0.0.1:9/sessions/s1/x any-key"
    assert "bad key [hidden]" in (await ask(made(tmp_path, "own_app:raises", more))).error


async def test_a_process_is_reused_only_if_requested(tmp_path: Path) -> None:
    for more, wanted in ("", ["1 s1", "1 s2"]), ("fresh: no\n", ["1 s1", "2 s2"]):
        target = made(tmp_path, "own_app:count", more)
        described = []
        for session in ("s1", "s2"):
            answer = await target.ask(question(session=session), ONCE)
            assert answer is not None
            described.append(answer.text)
        await target.close()
        assert described == wanted
