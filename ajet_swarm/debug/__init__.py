"""Run one episode of a black-box agent's folder and print its trace, for debugging.

    python -m ajet_swarm.debug FOLDER --item 3

The folder has `get_training_dataset_item_list.py` and `run_episode_once.py` with functions of those
names. The episode is not trained on, unless `--train` is given.

This process holds the episode and relays the agent's calls, which `trace` records. The folder's
code runs in a process of its own (`agent`): it may call `os._exit`, crash in a library or hang, and
the episode is given back all the same.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from ajet_swarm.client.episode import Episode
from ajet_swarm.client.synchronous import SwarmClient
from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.secrets import redact
from ajet_swarm.common.text import one_line, plain, signal_name
from ajet_swarm.debug.agent import RUN, run_folder
from ajet_swarm.debug.trace import RecordedCall, RecordingRelay
from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.models import WorkflowOutput

WIDTH = 2000
"""Largest number of characters printed of one message."""
GRACE = 2.0
"""Seconds that the agent's process has to end by itself, and then after SIGTERM."""


@dataclass(slots=True)
class Trace:
    """The trace of one episode."""

    episode: str = ""
    item: str = ""
    server: str = ""
    step: int = 0
    calls: list[RecordedCall] = field(default_factory=list)
    tokens: list[list[str]] = field(default_factory=list)
    """Sampled tokens of each answer; empty unless the server is the embedded engine."""
    output: WorkflowOutput | None = None
    trouble: str = ""
    """Traceback of the agent or of its reward function."""
    seconds: float = 0.0


class AgentProcess:
    """The process that runs the folder's code; see `ajet_swarm.debug.agent` for the messages.

    Args:
        words: Command-line arguments.
    """

    def __init__(self, words: Sequence[str]) -> None:
        ours, theirs = socket.socketpair()
        # It must find the same modules as this process.
        python = [sys.executable, "-P"] if sys.flags.safe_path else [sys.executable]
        number = theirs.fileno()
        command = [*python, "-m", "ajet_swarm.debug", *words, "--channel", str(number)]
        with theirs, ours:
            self._process = subprocess.Popen(command, pass_fds=[number])
            self._lines = ours.makefile("rw")

    def send(self, **message: object) -> None:
        """Send a message."""
        self._lines.write(json.dumps(message) + "\n")
        self._lines.flush()

    def receive(self, when: str) -> dict[str, Any]:
        """Return the next message; one with `trouble` when the process has ended.

        Args:
            when: What the process should have done, for that text.
        """
        if (line := self._lines.readline()).endswith("\n"):
            message: dict[str, Any] = json.loads(line)
            return message
        code = self._process.wait()
        how = f"ended itself (exit code {code}, as with os._exit({code}))"
        if code < 0:
            how = f"was ended by {signal_name(-code)}"
        return {"trouble": f"the program {how} {when}\n"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._lines.close()
        if kind is not None:
            self._process.terminate()
        for end in (self._process.terminate, self._process.kill):
            try:
                self._process.wait(GRACE)
                return
            except subprocess.TimeoutExpired:
                end()
        self._process.wait()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one episode of a folder; return 0 if it has a reward."""
    words = list(sys.argv[1:] if argv is None else argv)
    args = parse_args(words)
    if args.channel is not None:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # the folder ends what it started
        return run_folder(args.folder, args.item, args.swarm_url, args.channel)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)  # gives the episode back
    began = time.monotonic()
    try:
        with AgentProcess(words) as agent:
            trace = _debug(args, agent)
    except AjetError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    trace.seconds = time.monotonic() - began
    shown = json.dumps(asdict(trace), default=str) + "\n" if args.json else text_of(trace)
    sys.stdout.write(shown)
    return 0 if trace.output is not None else 1


def parse_args(words: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m ajet_swarm.debug")
    parser.add_argument("folder", nargs="?", type=Path, default=Path.cwd())
    parser.add_argument("--item", default="0", help="place in the dataset, or id")
    parser.add_argument("--swarm-url", default="", help="else AJET_SWARM_URL")
    parser.add_argument("--train", action="store_true", help="a train episode, which counts")
    parser.add_argument("--json", action="store_true", help="the trace as JSON")
    parser.add_argument("--channel", type=int, help=argparse.SUPPRESS)
    return parser.parse_args(words)


def _interrupt(*_: object) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # a second signal must not interrupt the clean-up
    raise KeyboardInterrupt


def _debug(args: argparse.Namespace, agent: AgentProcess) -> Trace:
    folder = agent.receive("before an episode began")
    if "error" in folder:
        error = AjetError(folder["error"])
        error.exit_code = folder["code"]
        raise error
    if "trouble" in folder:
        return Trace(trouble=folder["trouble"])
    url = args.swarm_url or os.environ.get("AJET_SWARM_URL") or folder["server"]
    with SwarmClient(url, patience=5, name="debug") as client:
        state, more = client.get_engine_status()
        if state == "ENGINE.CANNOT_CONNECT":
            raise SwarmError("no swarm server answers", client.server_url, more.get("error", ""))
        if folder["job"]:
            client.auto_sync_train_config_and_start_engine(folder["job"], timeout=600)
        trace = Trace(item=folder["item"], server=client.server_url, step=client.get_global_step())
        kind = "train" if args.train else "eval"
        with client.episode(folder["item"], episode_type=kind, timeout=600) as episode:
            _run_agent(agent, episode, trace)
    return trace


def _run_agent(agent: AgentProcess, episode: Episode, trace: Trace) -> None:
    """Let the agent run an episode, record it, and end it with the agent's output."""
    trace.episode = episode.uuid
    with RecordingRelay(episode.base_url) as relay:
        trace.calls = relay.calls
        agent.send(base_url=relay.base_url, api_key=episode.api_key, uuid=episode.uuid)
        result = agent.receive(f"instead of returning a reward from {RUN}")
        trace.trouble = result.get("trouble", "")
        if "output" in result:
            trace.tokens = _tokens(trace.server, episode.uuid)
            output = WorkflowOutput(**result["output"])
            try:
                episode.end(output)
                trace.output = output
            except SwarmError as error:
                trace.trouble = f"{plain(redact(str(error)))}\n"


def text_of(trace: Trace) -> str:
    """Return a trace as readable text."""
    if not trace.episode and trace.trouble:
        return trace.trouble
    lines = [f"episode {trace.episode}  item {trace.item}  step {trace.step}  {trace.server}"]
    for number, call in enumerate(trace.calls, 1):
        tokens = trace.tokens[number - 1] if number <= len(trace.tokens) else []
        lines += ["", *_call_lines(number, call, tokens)]
    lines.append("")
    if trace.trouble:
        lines += [trace.trouble.rstrip(), "", "no reward; the episode is given back"]
    elif trace.output is not None:
        lines.append(f"reward {trace.output.reward:g}  success {trace.output.is_success}")
        lines += [
            f"  {name}: {one_line(str(value), WIDTH)}"
            for name, value in {**trace.output.metadata, **trace.output.log_metrics}.items()
            if name != "task_id"
        ]
    lines.append(f"{len(trace.calls)} calls, {trace.seconds:.1f} s")
    return "\n".join(lines) + "\n"


def _call_lines(number: int, call: RecordedCall, tokens: Sequence[str]) -> list[str]:
    used = call.usage
    read = used.get("prompt_tokens", used.get("input_tokens", "?"))
    drawn = used.get("completion_tokens", used.get("output_tokens", "?"))
    lines = [
        f"call {number}  {one_line(call.path, 80)}  HTTP {call.status}  {call.seconds:.2f} s  "
        f"{read} + {drawn} tokens  {one_line(str(call.finish), 40)}".rstrip()
    ]
    for message in call.messages:
        role = one_line(str(message.get("role")), 9)
        lines.append(f"  {role:<10}{_shown(message.get('content') or message)}")
    if call.error or call.status >= 400:
        lines.append(f"  error     {_shown(call.error or call.answer)}")
    else:
        lines.append(f"  answer    {_shown(call.text or call.answer)}")
    if tokens:
        lines.append(f"  tokens    {one_line('|'.join(tokens), WIDTH)}")
    return lines


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return one_line(text, WIDTH)


def _tokens(server: str, episode: str) -> list[list[str]]:
    """Return the sampled tokens of each answer; none if the server does not report them."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{server}/ajetc/tokens/{episode}", timeout=10) as answer:
            log = json.load(answer)
        return [
            [str(token["text"]) for token in call["tokens"] if token["mask"]]
            for call in log["calls"]
        ]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return []
