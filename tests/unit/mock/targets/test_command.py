"""Programs and functions as targets: each way in which one can fail is an error of its row, and
nothing stays."""

import asyncio
import json
import os
import sys
from pathlib import Path

import psutil
import pytest

from mock.targets.command import CommandTarget
from mock.targets.python import PythonTarget
from mock.targets.question import Answer, Unreachable
from tests.unit.mock.helpers import Target, until
from tests.unit.mock.target_helpers import ONCE, ask, question, target_of

pytestmark = pytest.mark.slow

RUN = "kind: command\ncommand: [PY, APP, --misbehave, {kind}, '{{query}}']\ntimeout: {timeout}\n"


def misbehaving(folder: Path, kind: str, timeout: float = 20, more: str = "") -> CommandTarget:
    made = target_of(folder, RUN.format(kind=kind, timeout=timeout) + more)
    assert isinstance(made, CommandTarget)
    return made


def echo(folder: Path, code: str, more: str = "") -> CommandTarget:
    """A Python program of one line; `q` is the query, `a` the further arguments."""
    line = f"import sys, os; q, *a = sys.argv[1:]\n{code}"
    words = f"PY, -c, {json.dumps(line)}, '{{query}}', '{{session}}', '{{turn}}'"
    text = f"kind: command\ncommand: [{words}]\n"
    made = target_of(folder, text + more)
    assert isinstance(made, CommandTarget)
    return made


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("binary", "its output is not text: byte 0x80 at 1"),
        ("flood", "it printed more than 4 MB: killed"),
        ("silent", "it printed nothing"),
        ("crash", "was killed by SIGSEGV"),
        ("fail", "ended with code 1: no such model"),
    ],
)
async def test_failures_are_reported(tmp_path: Path, kind: str, error: str) -> None:
    answer = await ask(misbehaving(tmp_path, kind))
    assert answer.text == ""
    assert error in answer.error


async def test_a_password_prompt_cannot_hang(tmp_path: Path) -> None:
    answer = await ask(misbehaving(tmp_path, "password"))
    assert "ended with code 1" in answer.error
    assert "EOFError" in answer.error
    assert "it waited for input but has none" in answer.error


async def test_a_failure_has_the_last_lines_of_both_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN_KEY", "hunter2-hunter2")
    code = (
        "print('one\\ntwo'); sys.stderr.write('first\\n' * 9 + 'cannot log in with '"
        " + 'x' * 70 + os.environ['OWN_KEY'] + '\\nsee the manual\\n'); sys.exit(3)"
    )
    answer = await ask(echo(tmp_path, code, "env: [OWN_KEY]\n"))
    assert answer.error.startswith("ended with code 3: first / first / cannot log in with")
    assert answer.error.endswith(" / see the manual; it printed: one / two")
    assert "hunter" not in answer.error
    prompt = await ask(echo(tmp_path, "print('Password for joe:'); sys.exit(1)"))
    assert prompt.error.endswith("Password for joe:; it waited for input but has none")
    fed = await ask(echo(tmp_path, "print('Go on? [y/N]?'); sys.exit(1)", "stdin: x\n"))
    assert "than `stdin` has" in fed.error
    plain = await ask(echo(tmp_path, "print('token limit reached: 5'); sys.exit(1)"))
    assert plain.error == "ended with code 1: token limit reached: 5"


async def test_a_hanging_program_is_killed_with_its_children(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    target = misbehaving(tmp_path, "hang", 1.0, f"set: {{SMALL_PID: '{note}'}}")
    answer = await ask(target)
    assert answer.error == "no answer within 1 s: killed"
    pids = [int(pid) for pid in note.read_text().split()]
    assert len(pids) == 2
    await until(lambda: not any(map(_lives, pids)))


_KILLED = """
import asyncio, sys
from pathlib import Path
from mock.targets.process import run

code = "import os, subprocess, sys, time; p = subprocess.Popen(['sleep', '60']);"
code += "print(os.getpid(), p.pid, file=open(sys.argv[1], 'w'), flush=True); time.sleep(60)"
argv = [sys.executable, "-c", code, sys.argv[1]]
asyncio.run(run(argv, env={}, folder=Path("/"), stdin=None, limit=60))
"""


async def test_no_process_outlives_a_killed_mock_user(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    argv = (sys.executable, "-c", _KILLED, str(note))
    killed = await asyncio.create_subprocess_exec(*argv, cwd=Path(__file__).parents[4])
    await until(lambda: note.exists() and len(note.read_text().split()) == 2, 20)
    pids = [int(pid) for pid in note.read_text().split()]
    assert all(map(_lives, pids))
    killed.kill()
    await killed.wait()
    await until(lambda: not any(map(_lives, pids)))


async def test_no_guard_process_remains(tmp_path: Path) -> None:
    before = set(psutil.Process().children(recursive=True))
    assert (await ask(echo(tmp_path, "print(q)"))).text == "hi"
    assert set(psutil.Process().children(recursive=True)) <= before


async def test_a_cancelled_question_ends_its_program(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    target = misbehaving(tmp_path, "hang", 60, f"set: {{SMALL_PID: '{note}'}}")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(ask(target))
        await until(lambda: note.exists() and len(note.read_text().split()) == 2, 20)
        task.cancel()
    pids = [int(pid) for pid in note.read_text().split()]
    await until(lambda: not any(map(_lives, pids)))


async def test_a_leftover_child_does_not_delay_the_answer(tmp_path: Path) -> None:
    answer = await ask(misbehaving(tmp_path, "leave-child"))
    assert (answer.text, answer.error) == ("answered all the same", "")


async def test_a_program_that_is_not_there_ends_the_run(tmp_path: Path) -> None:
    target = target_of(tmp_path, "kind: command\ncommand: [no-such-program-here, '{query}']")
    with pytest.raises(Unreachable, match="there is no program `no-such-program-here`") as caught:
        await ask(target)
    assert caught.value.where == str(tmp_path / "own.yaml")
    target = target_of(tmp_path, "kind: command\ncommand: [PY, '{query}']\nfolder: /no/such/place")
    with pytest.raises(Unreachable, match="there is no folder"):
        await ask(target)
    target = target_of(tmp_path, f"kind: command\ncommand: [{tmp_path / 'own.yaml'}, '{{query}}']")
    with pytest.raises(Unreachable, match="may not be run"):
        await ask(target)


async def test_the_query_is_passed_unmodified(tmp_path: Path) -> None:
    nasty = "--help; $(touch x) `id` '\" {session} \\ \n second line ü"
    assert (await ask(echo(tmp_path, "print(q)"), question(nasty))).text == nasty
    more = "stdin: 'Q: {query}'\n"
    reading = echo(tmp_path, "print(sys.stdin.read())", more)
    assert (await ask(reading, question(nasty))).text == f"Q: {nasty}"
    big = "x" * 1_000_000
    count = "kind: command\ncommand: [PY, -c, 'import sys; print(len(sys.stdin.read()))']\n"
    assert (await ask(target_of(tmp_path, count + more), question(big))).text == "1000003"
    deaf = target_of(tmp_path, "kind: command\ncommand: [PY, -c, 'print(1)']\n" + more)
    assert (await ask(deaf, question(big))).text == "1"
    assert "did not start" in (await ask(echo(tmp_path, "print(q)"), question(big))).error
    assert "NUL" in (await ask(echo(tmp_path, "print(q)"), question("a\x00b"))).error


async def test_the_program_gets_only_the_environment_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN_KEY", "hunter2-hunter2")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    more = "env: [OWN_KEY]\nset: {URL: '{base_url}', ROOT: '{root_url}', B: 'x{env:OWN_KEY}'}\n"
    code = "e = os.environ; print(e['URL'], e['ROOT'], e['B'], 'OPENAI_API_KEY' in e, e['TERM'])"
    answer = await ask(echo(tmp_path, code, more))
    base = "http://127.0.0.1:9/sessions/s1"
    assert answer.text == f"{base}/v1 {base} xhunter2-hunter2 False dumb"
    response = await ask(echo(tmp_path, "sys.exit('bad key ' + os.environ['OWN_KEY'])", more))
    assert response.error == "ended with code 1: bad key [hidden]"


async def test_another_address_has_no_sessions(tmp_path: Path) -> None:
    text = "kind: command\ncommand: [PY, -c, 'print(\"{base_url}\")', '{query}']\n"
    for more, setting in ("", False), ("sessions: no\n", True):
        answer = await ask(target_of(tmp_path, text + more, sessions=setting))
        assert answer.text == "http://127.0.0.1:9/v1"
    answer = await ask(target_of(tmp_path, text + "base_url: http://proxy:8000/v1\n"))
    assert answer.text == "http://proxy:8000/sessions/s1/v1"


@pytest.mark.parametrize(
    ("code", "how", "wanted"),
    [
        (r"print('a\n b \n\n')", "last_line", "b"),
        (r"print('a: 1\na: 2')", "{regex: '^a: (.*?)$'}", "2"),
        ("print('x=5')", r"{regex: 'x=\d'}", "x=5"),
        ("""print('{"r": [{"t": "yes"}]}')""", "{json: 'r[0].t'}", "yes"),
        (
            """for k, t in (1, 'a'), (2, 'x'), (1, 'b'): print('{"k": %d, "t": "%s"}' % (k, t))""",
            "{lines: t, where: {k: 1}}",
            "ab",
        ),
        ("open('out', 'w').write('from the file')", "{file: out}", "from the file"),
        ("open(a[0], 'w').write('x: y')", "{file: '{session}', regex: 'x: (.)'}", "y"),
    ],
)
async def test_the_answer_is_found(tmp_path: Path, code: str, how: str, wanted: str) -> None:
    assert (await ask(echo(tmp_path, code, f"answer: {how}\n"))).text == wanted


@pytest.mark.parametrize(
    ("code", "how", "error"),
    [
        ("print('nothing here')", r"{regex: 'x=(\d)'}", r"`x=(\d)` is not in its output"),
        ("print('<html>')", "{json: r}", "its output is not JSON: <html>"),
        ("""print('{"a": 1}')""", "{json: r}", "nothing at `r`; its fields: a"),
        ("""print('{"r": " "}')""", "{json: r}", "the answer is empty"),
        ("""print('{"a": 1}')""", "{lines: t}", "no event has text at `t`"),
        ("print('x')", "{file: out}", "its answer file cannot be read: No such file"),
        ("print(); print('why', file=sys.stderr)", "whole", "printed nothing; it printed: why"),
    ],
)
async def test_output_without_an_answer_is_a_failure(
    tmp_path: Path, code: str, how: str, error: str
) -> None:
    answer = await ask(echo(tmp_path, code, f"answer: {how}\n"))
    assert answer.text == ""
    assert error in answer.error


async def test_a_conversation_has_a_folder_of_its_own(tmp_path: Path) -> None:
    code = "open('said', 'a').write(q + ' '); print(os.getcwd(), open('said').read())"
    line = f"import sys, os; q = sys.argv[1]; {code}"
    text = f"kind: command\ncommand: &c [PY, -c, {json.dumps(line)}, '{{query}}']\nthen: *c\n"
    target = target_of(tmp_path, text + 'files: {sub/said.json: \'{"at": "{base_url}"}\'}\n')
    folders = []
    for turn in (question("a"), question("b", 2), question("c", session="s2")):
        answer = await target.ask(turn, ONCE)
        assert answer is not None
        folder, _, value = answer.text.partition(" ")
        folders.append(Path(folder))
        assert value == {"a": "a", "b": "a b", "c": "c"}[turn.query]
    assert folders[0] == folders[1] != folders[2]
    assert "/sessions/s1/v1" in (folders[0] / "sub" / "said.json").read_text()
    await target.end_conversation("s1")
    assert [folder.exists() for folder in folders] == [False, False, True]
    await target.close()
    assert not folders[2].exists()


async def test_a_second_turn_requires_the_field_then(tmp_path: Path) -> None:
    answer = await ask(echo(tmp_path, "print(q)"), question("more", 2))
    assert answer.error == "it takes one question only: the file has no `then`"


async def test_messages_that_the_target_does_not_receive_are_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = echo(tmp_path, "print(q)")
    system = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    for _ in range(2):
        await target.ask(question(messages=system), ONCE)
    await target.close()
    assert caplog.text.count("only the queries of rows, not their system prompts") == 1
    caplog.clear()
    has = target_of(tmp_path, "kind: command\ncommand: [PY, -c, 'print(\"{system}\")', '{query}']")
    assert (await ask(has, question(messages=system))).text == "Be brief."
    assert not caplog.text


async def test_the_example_app_calls_its_session_address(tmp_path: Path, target: Target) -> None:
    text = "kind: command\ncommand: [PY, APP, '{query}']\nset: {OPENAI_BASE_URL: '{base_url}'}\n"
    own = target_of(tmp_path, text + "answer: last_line\nsessions: no\n", target.url)
    assert (await ask(own)).text == "re: The user says: hi"
    assert os.environ.get("OPENAI_BASE_URL") is None


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_a_program_may_open_its_output_again(tmp_path: Path) -> None:
    line = "echo $0; echo b > /dev/stdout; echo 1 >&2; echo 2 > /dev/stderr; echo last >&2; exit 3"
    text = f"kind: command\ncommand: [sh, -c, {json.dumps(line)}, '{{query}}']\n"
    assert "it printed: hi / b" in (await ask(target_of(tmp_path, text))).error
    assert "last" in (await ask(target_of(tmp_path, text))).error
    answer = await ask(target_of(tmp_path, text + "codes: [3]\n"))
    assert (answer.text, answer.error) == ("hi\nb", "")


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
async def test_failures_of_a_function_are_reported(
    tmp_path: Path, function: str, error: str
) -> None:
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
