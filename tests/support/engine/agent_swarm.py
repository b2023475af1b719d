"""A swarm server for real clients: its policy plays scripts, chosen by the request's text.

    python -m tests.support.engine.agent_swarm  # the server alone, on a free port
    python -m tests.support.engine.agent_swarm --proxy 8000 --home /tmp/x --key K  # with the proxy

The second form starts our proxy in front of it, for tests of a client by hand. Which
script is played depends on the user's words since the last finished answer:

    use the tool            one call of an offered tool that can be called harmlessly, with valid
                            arguments; when its result is back, a text that repeats it
    use two tools           the same as two parallel calls
    think                   reasoning before the text
    the word is X           remembered; `which word` is answered from the conversation, so only a
                            client that sent the first turn again gets it
    reward-delay=N          repeated in the text, where our reward function reads it and sleeps N
                            seconds; an agent's last message is not always its user's text
    anything else           a short text that names the candidate

An agent that ends only with a call of a final tool (`submit_and_exit`, ...) gets that call with the
text. No answer is invented for the proxy: this is the training server's side.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.scripted.swarm import ScriptedSwarm

DONE = "AJET-DONE"
"""In each text answer."""
RAN = "AJET-RAN"
"""The text that a shell tool has to print."""

HOOK = '''"""Sleeps as long as the request says; the last candidate is the best."""

import asyncio
import re


async def on_compute_relative_reward(valid_results, all_answers):
    found = re.findall(r"reward-delay=([0-9.]+)", all_answers[0].get("content") or "")
    await asyncio.sleep(float(found[-1]) if found else 0.0)
    return [index / 10 for index in range(len(all_answers))]
'''

CONFIG = """\
rewards: {time_limit: 590}
rating: {window: 0, discard_timeout: 900}
"""

_SHELL = ("bash", "shell", "exec_command", "exec", "run_shell_command", "run_commands", "terminal")
_READ = (
    "read",
    "read_file",
    "read_files",
    "list_directory",
    "ls",
    "glob",
    "list_files",
    "get_word",
)
_FINISH = ("submit_and_exit", "attempt_completion", "finish", "final_answer")
_DELAY = re.compile(r"reward-delay=[0-9.]+")
_WORD = re.compile(r"the word is ([A-Za-z0-9-]+)", re.IGNORECASE)


# --- scripts ------------------------------------------------------------------------------------


async def play(name: str, body: dict[str, Any], index: int) -> dict[str, Any]:
    """The scripted policy; see the module's docstring.

    Args:
        name: The episode.
        body: The request for a chat completion.
        index: Which call of the episode it is, from 0.
    """
    messages = body["messages"]
    turn = _turn(messages)
    lower = " ".join(text_of(one) for one in turn if one.get("role") == "user").lower()
    tools = _tools(body)
    results = [text_of(one) for one in turn if one.get("role") == "tool"]
    wanted = 2 if "use two tools" in lower else int("use the tool" in lower)
    values: dict[str, Any] = {}
    if "think" in lower:
        values["reasoning"] = f"Candidate {name[:6]} thinks about it first."
    chosen = _harmless(tools, lower)
    if wanted and not results and chosen is not None:
        calls = [_call(name, at, *chosen) for at in range(wanted)]
        return values | {"content": None, "tool_calls": calls}
    values["content"] = _text(name, lower, messages, results)
    finish = next((one for one in _FINISH if one in tools), "")
    if finish:
        values["tool_calls"] = [_call(name, 0, finish, fill(tools[finish], values["content"]))]
    return values


def _text(
    name: str, user_text: str, messages: Sequence[Mapping[str, Any]], results: Sequence[str]
) -> str:
    text = f"Hello from candidate {name[:6]}."
    if "which word" in user_text:
        words = _WORD.findall(
            " ".join(text_of(message) for message in messages if _is_user(message))
        )
        text = f"The word was {words[0]}." if words else "There was no word."
    elif results:
        text = f"The tool said {results[-1].strip()[:200]!r}."
    delay = _DELAY.search(user_text)
    return f"{text} {DONE} {delay[0]}" if delay else f"{text} {DONE}"


def text_of(message: Mapping[str, Any]) -> str:
    """A message's text, whatever form its content has."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        return " ".join(part for part in parts if isinstance(part, str))
    return ""


def _turn(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The messages after the last answer that called no tool."""
    for at in range(len(messages) - 1, -1, -1):
        one = messages[at]
        if one.get("role") != "assistant":
            continue
        names = [call["function"]["name"] for call in one.get("tool_calls") or ()]
        if not names or set(names) <= set(_FINISH):
            return list(messages[at + 1 :])
    return list(messages)


def _is_user(message: Mapping[str, Any]) -> bool:
    return message.get("role") == "user"


# --- tools --------------------------------------------------------------------------------------


def _tools(body: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Schema of the arguments by the tool's name."""
    if body.get("tool_choice") == "none":
        return {}
    functions = [one.get("function") or {} for one in body.get("tools") or ()]
    return {
        function["name"]: function.get("parameters") or {}
        for function in functions
        if "name" in function
    }


def _harmless(
    tools: Mapping[str, dict[str, Any]], user_text: str
) -> tuple[str, dict[str, Any]] | None:
    """A tool that does no harm and its arguments, else the first tool."""
    by_short = {re.split(r"[.:/]|__", name)[-1].lower(): name for name in tools}
    for short in (*_SHELL, *_READ):
        if short in by_short:
            name = by_short[short]
            return name, fill(tools[name], f"echo {RAN}")
    return next(((name, fill(schema, RAN)) for name, schema in tools.items()), None)


def fill(schema: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Arguments that a schema accepts: what it requires, texts made of `text`."""
    wanted = schema.get("required") or []
    fields = schema.get("properties") or {}
    return {name: _value(fields.get(name) or {}, name, text, schema) for name in wanted}


def _value(schema: Mapping[str, Any], name: str, text: str, root: Mapping[str, Any]) -> Any:
    if "$ref" in schema:
        result: Any = root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            result = result.get(step, {})
        schema = result
    if schema.get("enum"):
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    for one in ("anyOf", "oneOf", "allOf"):
        if schema.get(one):
            return _value(schema[one][0], name, text, root)
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "array":
        least = max(1, int(schema.get("minItems", 1)))
        return [_value(schema.get("items") or {}, name, text, root) for _ in range(least)]
    if kind == "object":
        fields = schema.get("properties") or {}
        wanted = schema.get("required") or []
        return {key: _value(fields.get(key) or {}, key, text, root) for key in wanted}
    if kind in ("integer", "number"):
        return max(1, schema.get("minimum", 1))
    if kind == "boolean":
        return False
    if kind == "null":
        return None
    return str(Path.cwd() / "README.md") if "path" in name.lower() else text


def _call(name: str, at: int, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {"id": f"chatcmpl-tool-{name[:14]}{at:02d}", "type": "function", "function": function}


# --- by hand ------------------------------------------------------------------------------------


def agent_swarm(**options: Any) -> ScriptedSwarm:
    """The server; arguments as `ScriptedSwarm` takes them. Its batch is never full."""
    swarm = ScriptedSwarm(**({"batch": 4096, "repeat": 4, "slots": 1024} | options))
    swarm.answer = play
    swarm.model = "agent-swarm"
    return swarm


def prepare(home: Path) -> Path:
    """Write settings and the sleeping reward function into a home; gives the hooks' folder."""
    hooks = home / "hooks"
    hooks.mkdir(parents=True, exist_ok=True)
    (hooks / "on_compute_relative_reward.py").write_text(HOOK)
    (home / "config.yaml").write_text(CONFIG)
    return hooks


async def _main(args: argparse.Namespace) -> int:
    async with agent_swarm(repeat=args.repeat) as swarm:
        swarm.delay = args.delay
        swarm.streaming = args.streaming
        print(f"swarm {swarm.url}", flush=True)
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        child = _proxy(args, swarm.url) if args.proxy is not None else None
        written = 0
        while not stop.is_set() and (child is None or child.poll() is None):
            if args.log:
                written = _write(args.log, swarm, written)
            try:
                await asyncio.wait_for(stop.wait(), 0.5)
            except TimeoutError:
                continue
        if child is not None:
            child.terminate()
            await asyncio.to_thread(child.wait, 20)
        print(f"rewards {len(swarm.rewards)} claimed {len(swarm.claimed())}", flush=True)
        return 0


def _proxy(args: argparse.Namespace, swarm_url: str) -> subprocess.Popen[bytes]:
    home = args.home or Path(tempfile.mkdtemp(prefix="agent-swarm-"))
    hooks = prepare(home)
    command = [sys.executable, "-m", "console", "run", "proxy", "--home", str(home)]
    command += ["--swarm-url", swarm_url, "--port", str(args.proxy), "--hooks", str(hooks)]
    if args.key:
        command += ["--api-key", args.key]
    print(f"home {home}", flush=True)
    return subprocess.Popen(command, env=dict(os.environ))


def _write(path: Path, swarm: ScriptedSwarm, written: int) -> int:
    """The policy's requests, one a line, for the examination of a client."""
    with path.open("a") as out:
        for name, body, headers in swarm.chats[written:]:
            result = {"episode": name, "body": body, "headers": headers}
            out.write(json.dumps(result) + "\n")
    return len(swarm.chats)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeat", type=int, default=4, help="candidates of a group")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds each answer takes")
    parser.add_argument(
        "--streaming", default="three", choices=("three", "keepalive", "tokens", "whole")
    )
    parser.add_argument("--log", type=Path, help="write each chat request to this file")
    parser.add_argument("--proxy", type=int, help="start our proxy too, on this port")
    parser.add_argument("--home", type=Path, help="its home; else a temporary folder")
    parser.add_argument("--key", default="", help="the key it asks for")
    raise SystemExit(asyncio.run(_main(parser.parse_args())))
