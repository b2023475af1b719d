"""The settings of clients, as the command prints them."""

import json
import re
import subprocess
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

from console.cli import main
from console.clients.catalog import ANY_KEY, DEFAULT_BASE, OWN_KEY, Client, clients, fill, find
from tests.support.checks import missing
from tests.support.commands.cli import Cli

GUIDE = (Path(__file__).parents[4] / "docs/guide/clients.md").read_text(encoding="utf-8")
CLIENTS = clients()
NAMES = [one.name for one in CLIENTS]


def test_the_guide_lists_every_client() -> None:
    rows = [f"| `{client.name}` | {client.title} | {client.api} |" for client in CLIENTS]
    assert not [row for row in rows if row not in GUIDE]


def test_every_client_names_its_files_and_fills_all_placeholders() -> None:
    for client in CLIENTS:
        text = "".join(fill(snippet.text) for snippet in client.snippets)
        assert DEFAULT_BASE in text, client.name
        assert "%" not in text.replace("100%", ""), client.name


@pytest.mark.parametrize("client", CLIENTS, ids=NAMES)
def test_snippets_can_be_parsed(client: Client) -> None:
    for snippet in client.snippets:
        text = fill(snippet.text, "http://127.0.0.1:8000", "k", "m")
        match snippet.language:
            case "json":
                json.loads(text)
            case "toml":
                tomllib.loads(text)
            case "yaml":
                assert isinstance(yaml.safe_load(text), list)
            case "python":
                compile(text, "snippet", "exec")
            case "sh":
                done = subprocess.run(["bash", "-n"], input=text, text=True, check=False)
                assert done.returncode == 0
            case other:
                assert other == "js"


def printed(name: str, model: str = "my-policy") -> str:
    (one,) = find(name)
    return "\n".join(fill(each.text, model=model) for each in one.snippets)


def test_claude_code_uses_the_configured_model_for_every_task() -> None:
    """Its judge in auto mode asks for a name of its own, else: a 404 where names are checked."""
    lines = printed("claude-code").splitlines()
    for which in ("", "_SMALL_FAST", "_DEFAULT_SONNET", "_DEFAULT_OPUS", "_DEFAULT_HAIKU"):
        assert f"export ANTHROPIC{which}_MODEL=my-policy" in lines


def test_all_clients_get_the_same_context_window() -> None:
    """Claude Code treats an unknown name as a model of 1m tokens and prints this each time."""
    assert "export CLAUDE_CODE_MAX_CONTEXT_TOKENS=32768" in printed("claude-code").splitlines()
    for name in ("opencode", "openclaw", "pi"):
        assert re.search(r'"context(?:Window)?": 32768\b', printed(name))


class _Models(BaseHTTPRequestHandler):
    """A proxy that lists one model with a window of 512 tokens."""

    def do_GET(self) -> None:
        data = json.dumps({"data": [{"id": "m", "max_model_len": 512}]}).encode()
        self.send_response(200 if self.path == "/v1/models" else 404)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *what: object) -> None:
        """Write nothing."""


@pytest.fixture
def small_window() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Models) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("opencode", '"limit": { "context": 512, "output": 256 }'),
        ("claude-code", "export CLAUDE_CODE_MAX_CONTEXT_TOKENS=512"),
        ("pi", '"contextWindow": 512, "maxTokens": 256'),
    ],
)
def test_the_running_proxys_context_window_is_printed(
    cli: Cli, tmp_path: Path, small_window: str, name: str, result: str
) -> None:
    output = cli.out("clients", name, "--home", str(tmp_path), "--url", small_window)
    assert result in output
    assert not missing(output, "# The engine's window is 512 tokens", "--strict-context")


def test_without_a_proxy_the_default_context_window_is_printed(cli: Cli, tmp_path: Path) -> None:
    url = "http://127.0.0.1:9"
    output = cli.out("clients", "claude-code", "--home", str(tmp_path), "--url", url)
    assert "CLAUDE_CODE_MAX_CONTEXT_TOKENS=32768" in output
    assert "The engine's window" not in output


def test_the_ai_sdk_settings_enable_structured_outputs() -> None:
    """Else it leaves an object's schema out and warns."""
    assert "supportsStructuredOutputs: true" in printed("ai-sdk")


def test_a_name_matches_one_client_or_all_with_that_prefix() -> None:
    assert [one.name for one in find("openai")] == ["openai"]
    assert [one.name for one in find("open")] == [name for name in NAMES if name.startswith("open")]
    assert (find(""), find("nobody")) == (CLIENTS, ())


def test_the_command_fills_in_the_address(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["clients", "codex", "--home", str(tmp_path), "--url", "http://gpu-box:9000/v1"])
    output = capsys.readouterr().out
    assert code == 0
    assert 'base_url = "http://gpu-box:9000/v1"' in output
    assert ANY_KEY in output


def test_the_command_prints_a_key_only_with_the_flag(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "proxy: {api_key: quite-secret, served_model_name: my-policy}"
    )
    output = cli.out("clients", "pi", "--home", str(tmp_path))
    assert OWN_KEY in output
    assert "quite-secret" not in output
    assert "--model my-policy" in output
    assert "quite-secret" in cli.out("clients", "pi", "--home", str(tmp_path), "--show-key")


def test_an_unknown_client_is_wrong_use(cli: Cli, tmp_path: Path) -> None:
    assert "codex" in cli.refused("clients", "nobody", "--home", str(tmp_path))


def test_the_names_are_listed(cli: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli("clients", "--list", "--home", str(tmp_path))
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == NAMES
