"""Target files, their fields and the errors of invalid ones; rows in each API form."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from mock.targets.answers import JsonPath, NoAnswer, read_output
from mock.targets.dialects import CHAT, MESSAGES, RESPONSES, Dialect
from mock.targets.spec import (
    CommandSpec,
    HttpSpec,
    TargetFileError,
    find_target,
    preset_names,
    read_target,
)
from mock.targets.templates import fill, fill_all, placeholders
from proxy.dialects.messages import MESSAGES as MESSAGES_API
from proxy.dialects.responses import RESPONSES as RESPONSES_API
from tests.unit.mock.target_helpers import spec_of, write

BAD = {
    "knid: command": ("own.yaml:1", "`knid` is unknown. Did you mean `kind`?"),
    "kind: comand\ncommand: x {query}": ("own.yaml:1", "Did you mean `command`"),
    "kind: http\nurll: http://h/{query}": ("own.yaml:2", "`urll` is unknown. Did you mean `url`?"),
    "kind: command": ("own.yaml:1", "`command` is missing"),
    "kind: command\ncommand: run {query}\ntimout: 3": ("own.yaml:3", "Did you mean `timeout`"),
    "kind: command\ncommand: run {query}\ntimeout: soon": ("own.yaml:3", "is not a number"),
    "kind: command\ncommand: run {query}\ntimeout: 0": ("own.yaml:3", "cannot be 0"),
    "kind: command\ncommand: run it": ("own.yaml:2", "does not contain {query}"),
    "kind: command\ncommand: run {qery}": ("own.yaml:2", "Did you mean {query}"),
    "kind: command\ncommand: []": ("own.yaml:2", "`command` is empty"),
    'kind: command\ncommand: run "{query}': ("own.yaml:2", "cannot be split"),
    "kind: command\ncommand: run {query}\nanswer: lastline": ("own.yaml:3", "`last_line`"),
    "kind: command\ncommand: run {query}\nanswer: {regex: '('}": ("own.yaml:3", "a regular expr"),
    "kind: command\ncommand: run {query}\nanswer:\n  json: a..b": ("own.yaml:4", "`answer.json`"),
    "kind: command\ncommand: run {query}\nanswer:\n  jsn: a": ("own.yaml:4", "`json`"),
    "kind: command\ncommand: run {query}\nanswer: {json: a, regex: b}": ("own.yaml:3", "more than"),
    "kind: command\ncommand: run {query}\nenv: [AJET_NOT_THERE]": ("own.yaml:3", "is not set"),
    "kind: command\ncommand: run {query}\nenv: {KEY: sk-geheim}": ("own.yaml:3", "list of texts"),
    "kind: command\ncommand: run {query}\nenv: ['KEY=sk-geheim']": ("own.yaml:3", "invalid var"),
    "kind: command\ncommand: run {query}\nset: {A: '{env:AJET_NOT_THERE}'}": (
        "own.yaml:3",
        "is not set",
    ),
    "kind: command\ncommand: run {query}\nfiles: {../x: y}": ("own.yaml:3", "outside the"),
    "kind: command\ncommand: run {query}\ncommand: again": ("own.yaml:3", "is defined twice"),
    "kind: command\ncommand: run {query}\ndry: 7": ("own.yaml:3", "`dry`"),
    "kind: http\nbody: {q: '{query}'}": ("own.yaml:1", "`url` is missing"),
    "kind: http\nurl: localhost:3000\nbody: '{query}'": ("own.yaml:2", "not an address"),
    "kind: http\nurl: http://h/x\nbody: {q: hi}": ("own.yaml:3", "does not contain {query}"),
    "kind: http\nurl: http://h/x\nbody: {q: [{w: '{mesages}'}]}": ("own.yaml:3", "{messages}"),
    "kind: http\nurl: http://h/x\nmethod: PSOT\nbody: '{query}'": ("own.yaml:3", "`POST`"),
    "kind: http\nurl: http://h/x\nbody: '{query}'\nsse: yes": ("own.yaml:4", "list of fields"),
    "kind: http\nurl: http://h/x\nbody: '{query}'\nsse: {event: x}": ("own.yaml:4", "`sse.path`"),
    "kind: python\nfunction: app.ask": ("own.yaml:2", "MODULE:FUNCTION"),
    "kind: python\nfunction: none.py:ask": ("own.yaml:2", "names a file that is not in"),
    "kind: python\nfunction: app:ask\nfolder: nowhere": ("own.yaml:3", "is not a folder"),
    "kind: fake\ndialect: anthropic": ("own.yaml:2", "`dialect` cannot be"),
    "kind: fake\nparams: 3": ("own.yaml:2", "list of fields"),
    "kind: fake\nuser: gpt": ("own.yaml:2", "`user` is not a list of fields"),
    "kind: fake\nuser: {model: m}": ("own.yaml:2", "`user.url` is missing"),
    "kind: fake\nuser:\n  url: http://h/v1\n  modle: m": ("own.yaml:4", "Did you mean `model`?"),
    "kind: fake\nuser: {url: h, model: m}": ("own.yaml:2", "`user.url` is not an address"),
    "kind: fake\nuser:\n  url: http://h/v1\n  model: m\n  key_env: AJET_NOT_THERE": (
        "own.yaml:5",
        "the variable is not set",
    ),
    "kind: fake\nuser: {url: http://h/v1, model: m, key_env: sk-geheim}": (
        "own.yaml:2",
        "never the key itself",
    ),
    "kind: fake\nuser: {url: http://h/v1, model: m, turns: 0}": ("own.yaml:2", "cannot be 0"),
    "- kind: fake": ("own.yaml:1", "not a list of fields"),
    "": ("own.yaml:1", "not a list of fields"),
    "kind: fake\n  bad: [": ("own.yaml:2", "not YAML"),
    "kind: !!python/object:os.system fake": ("own.yaml:1", "cannot be read"),
}


@pytest.mark.parametrize("text", BAD)
def test_each_fault_has_its_file_line_and_field(tmp_path: Path, text: str) -> None:
    with pytest.raises(TargetFileError) as caught:
        spec_of(tmp_path, text)
    where, what = BAD[text]
    assert caught.value.where == str(tmp_path / where)
    assert what in str(caught.value)
    assert "geheim" not in str(caught.value)
    assert caught.value.exit_code == 2


TWO = {
    "kind: command\ncomand: x {query}\ntimout: 3": ("`comand` is unknown", "`timout` is unknown"),
    "kind: http\nurl: http://h/{query}\ntimeout: soon\nmethod: GTE": (
        "`timeout` is not a number",
        "`method` cannot be `GTE`",
    ),
    "kind: fake\ndialect: caht\nsession: 1": ("`dialect` cannot be", "`session` is unknown"),
    "kind: comand\ntimeout: soon": ("`kind` cannot be", "`timeout` is not a number"),
}


@pytest.mark.parametrize("text", TWO)
def test_all_faults_are_reported_together_one_per_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(TargetFileError) as caught:
        spec_of(tmp_path, text)
    first, second = str(caught.value).splitlines()
    assert TWO[text][0] in first
    assert TWO[text][1] in second
    assert "own.yaml:" in first
    assert "own.yaml:" in second


def test_an_unreadable_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TargetFileError, match="Is a directory"):
        read_target(tmp_path)
    (tmp_path / "bad.yaml").write_bytes(b"kind: \xff")
    with pytest.raises(TargetFileError, match="not UTF-8 at byte 7"):
        read_target(tmp_path / "bad.yaml")
    (tmp_path / "big.yaml").write_text("#" * (1 << 20) + "\n")
    with pytest.raises(TargetFileError, match="larger than 1 MB"):
        read_target(tmp_path / "big.yaml")


def test_a_name_or_a_path_is_found(tmp_path: Path) -> None:
    assert find_target(str(write(tmp_path, "kind: fake"))).name == "own.yaml"
    assert find_target("codex").stem == "codex"
    with pytest.raises(TargetFileError, match="Did you mean `opencode`"):
        find_target("opencod")
    with pytest.raises(TargetFileError, match="one of aider, chat, claude-code"):
        find_target("xyzzy")


@pytest.mark.parametrize("name", preset_names())
def test_each_preset_can_be_read(name: str) -> None:
    spec = read_target(find_target(name))
    assert spec.name == name
    if isinstance(spec, CommandSpec):
        result = (*spec.set.values(), *spec.files.values())
        assert {"base_url", "root_url"} & placeholders([*result, *spec.command])
        assert spec.then


def test_a_command_may_be_one_text_and_an_address_may_have_names(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "kind: command\ncommand: app --ask '{query} now'\ndry: no")
    assert isinstance(spec, CommandSpec)
    assert spec.command == ("app", "--ask", "{query} now")
    assert spec.dry == ""
    spec = spec_of(tmp_path, "kind: http\nurl: http://h:1/{session}\nbody: '{query}'\nanswer: a.0")
    assert isinstance(spec, HttpSpec)
    assert spec.answer.steps == ("a", 0)


def test_templates() -> None:
    values = {"query": 'say "hi" {session}', "session": "s", "messages": [{"role": "user"}]}
    assert fill("{query} {other} {a-b} {}", values) == 'say "hi" {session} {other} {a-b} {}'
    assert fill_all({"a": ["{messages}", 3, "x {session}"]}, values) == {
        "a": [[{"role": "user"}], 3, "x s"]
    }
    assert placeholders({"{session}": ["{query}{nothing}"]}) == {"session", "query"}


def test_paths() -> None:
    value = {"a": [{"b.c": 1}, {"b.c": 2}], "0": "zero"}
    assert JsonPath.parse('a[*]."b.c"').values(value) == [1, 2]
    assert JsonPath.parse('a.-1."b.c"').values(value) == [2]
    assert JsonPath.parse("0").values(value) == ["zero"]
    assert JsonPath.parse("a[7].x").values(value) == []
    for bad in ("a..b", "[", "a]b", "a.["):
        with pytest.raises(ValueError, match="cannot be"):
            JsonPath.parse(bad)


def test_output_is_read_as_a_terminal_shows_it() -> None:
    result = b"\x1b[2K\x1b[1mone\x1b[0m\r\n10%\r20%\rdone\n\x1b]0;title\x07two"
    assert read_output(result) == "one\ndone\ntwo"
    for bad in (b"\xff\xfe", b"a\x00b"):
        with pytest.raises(NoAnswer, match="not text"):
            read_output(bad)


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
WEB_IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
FUNCTION = {"name": "weather", "description": "", "parameters": {"type": "object"}}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"a": 1}'}}
CONVERSATION: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Is this Oslo?"}, IMAGE, WEB_IMAGE]},
    {"role": "assistant", "content": "I look.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    {"role": "assistant", "content": "Yes."},
    {"role": "user", "content": "Sure?"},
]
TOOLS = [{"type": "function", "function": FUNCTION}]


def read_back(form: Dialect) -> tuple[list[dict[str, Any]], Any]:
    """Return messages and tools as the API of this form reads them."""
    data = msgspec.json.encode(form.body("m", CONVERSATION, TOOLS))
    api = MESSAGES_API if form is MESSAGES else RESPONSES_API
    request = api.read(data, {"content-type": "application/json"}, "")
    return request.messages, request.body["tools"]


def test_a_chat_completion_has_the_messages_and_tools_as_they_are() -> None:
    assert CHAT.body("m", CONVERSATION, TOOLS) == {
        "model": "m",
        "messages": CONVERSATION,
        "tools": TOOLS,
    }
    assert "tools" not in CHAT.body("m", CONVERSATION, ())


@pytest.mark.parametrize("form", [RESPONSES, MESSAGES], ids=lambda form: form.name)
def test_another_api_reads_the_same_conversation(form: Dialect) -> None:
    messages, tools = read_back(form)
    urls = [
        part["image_url"]["url"] for part in messages[1]["content"] if part["type"] == "image_url"
    ]
    assert urls == ["data:image/png;base64,AAAA", "https://example.com/a.png"]
    texts = [part["text"] for part in messages[1]["content"] if part["type"] == "text"]
    assert texts == ["Is this Oslo?"]
    for message, expected in zip(messages, CONVERSATION, strict=True):
        assert message["role"] == expected["role"]
        if expected["role"] != "user" or isinstance(expected["content"], str):
            assert message["content"] == expected["content"]
    assert messages[2]["tool_calls"] == [CALL]
    assert messages[3]["tool_call_id"] == "c1"
    assert [tool["function"]["name"] for tool in tools] == ["weather"]
    assert tools[0]["function"]["parameters"] == {"type": "object"}
