"""A scripted model for the untrained players: a tiny OpenAI-compatible server.

    python -m examples.werewolves.static --port 8100

It keeps nothing and knows only the prompt it is sent. Equal prompts get equal answers. It plays a
plain game: believe what was checked, suspect whom others accuse and who accuses nobody.
"""

import argparse
import json
import os
import re
import sys
import threading
import time
import zlib
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from examples.werewolves.prompts import accused

LARGEST = 256_000
"""Maximum size of a request in bytes."""
ACCUSED, SILENT, KNOWN = 2, 3, 100
"""Weights of suspicion: an accusation, a speech without one, a check."""
_ME = re.compile(r"You are player (\d)")
_PACK = re.compile(r"The pack: ([\d ]+)\.")
_ALIVE = re.compile(r"Alive: ([\d ]+)\.")
_SPEECH = re.compile(r'^(\d): "(.*)"$', re.MULTILINE)
_CHECKED = re.compile(r"(\d) (no )?werewolf")
_NAMED = re.compile(r"Named tonight: (.*)\.")


def answer(system: str, user: str) -> str:
    """Return the scripted player's answer."""
    asked = user.rsplit("\n", 1)[-1]
    targets = _players(asked.rsplit("?", 1)[-1])
    known = {int(who): not no for who, no in _CHECKED.findall(user)}
    if "Heal" in asked:
        return "heal"
    if "poison" in asked.lower():
        sure = [one for one in targets if suspicion(system, user)[one] >= 2 * SILENT]
        return f"poison {_pick(sure, user)}" if sure else "pass"
    if "kill" in asked:
        named = Counter(int(one) for one in re.findall(r">(\d)", _first(_NAMED, user)))
        return str(max(targets, key=lambda one: (named[one], one), default=0))
    if "check" in asked:
        return str(_pick([one for one in targets if one not in known] or targets, user))
    if not targets:
        return "pass"
    against = suspicion(system, user)
    worst = max(against[one] for one in targets)
    whom = _pick([one for one in targets if against[one] == worst], user)
    if "Speak" in asked:
        wolf = next((who for who in targets if known.get(who)), None)
        return f"I am the seer: {wolf} is a werewolf." if wolf else f"I suspect {whom}."
    return str(whom)


def suspicion(system: str, user: str) -> Counter[int]:
    """Return the suspicion of each living player, from this player's view."""
    alive = _players(_first(_ALIVE, user))
    against: Counter[int] = Counter({one: 0 for one in alive})
    for who, text in _SPEECH.findall(user):
        whom = accused(text, tuple(one for one in alive if one != int(who)))
        against[whom or int(who)] += ACCUSED if whom else SILENT
        if "seer" in text and whom:
            against[whom] += 2 * ACCUSED
    for who, no in _CHECKED.findall(user):
        against[int(who)] += -KNOWN if no else KNOWN
    for friend in (*_players(_first(_PACK, system)), int(_first(_ME, system) or 0)):
        against[friend] -= 2 * KNOWN
    return against


def _players(text: str) -> list[int]:
    return [int(one) for one in re.findall(r"\d", text)]


def _first(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match.group(1) if match else ""


def _pick(among: list[int], user: str) -> int:
    """Choose one of several by a hash of the prompt, without state or randomness."""
    return among[zlib.crc32(user.encode()) % len(among)]


class Handler(BaseHTTPRequestHandler):
    """Request handler of `POST /v1/chat/completions`, and of `GET /v1/models` as a health check."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Send the list of models: one."""
        self._reply(200, {"object": "list", "data": [{"id": "scripted", "object": "model"}]})

    def do_POST(self) -> None:
        """Send one answer."""
        size = int(self.headers.get("content-length") or 0)
        if not self.path.endswith("/chat/completions") or not 0 < size <= LARGEST:
            self.close_connection = True
            self._reply(404, {"error": {"message": "POST /v1/chat/completions"}})
            return
        try:
            asked: Any = json.loads(self.rfile.read(size))
            texts = {one["role"]: str(one["content"]) for one in asked["messages"]}
            text = answer(texts.get("system", ""), texts["user"])
        except (ValueError, LookupError, TypeError) as error:
            self._reply(400, {"error": {"message": f"not a prompt of this game: {error!r}"}})
            return
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        self._reply(200, {"object": "chat.completion", "model": "scripted", "choices": [choice]})

    def _reply(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Do not log requests."""


class Server(ThreadingHTTPServer):
    """Server with daemon threads and a queue for all games at once."""

    daemon_threads = True
    request_queue_size = 256


def _watch(server: Server, parent: int) -> None:
    """Exit with the parent process, even when it is killed."""
    while os.getppid() == parent:
        time.sleep(1)
    server.shutdown()


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.werewolves.static")
    parser.add_argument("--port", type=int, default=8100)
    parser.add_argument("--with-parent", action="store_true", help="end when who started it ends")
    args = parser.parse_args()
    server = Server(("127.0.0.1", args.port), Handler)
    if args.with_parent:
        threading.Thread(target=_watch, args=(server, os.getppid()), daemon=True).start()
    sys.stdout.write(f"http://127.0.0.1:{server.server_port}/v1\n")
    sys.stdout.flush()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


if __name__ == "__main__":
    main()
