"""An application as small as can be: a command line that asks an OpenAI-compatible server.

    python small_app.py WORDS
    python small_app.py --misbehave KIND WORDS

It knows nothing of rows, sessions or training. With `--misbehave` it does what real ones do now
and then.
"""

import argparse
import getpass
import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

MISBEHAVIOURS = ("hang", "binary", "fail", "password", "flood", "silent", "crash", "leave-child")


def ask(words: str) -> str:
    """One chat completion, with words of the application's own around."""
    base_url = os.environ["OPENAI_BASE_URL"]
    body = {
        "model": os.environ.get("SMALL_MODEL", "whatever"),
        "messages": [
            {"role": "system", "content": "You are a small application."},
            {"role": "user", "content": f"The user says: {words}"},
        ],
    }
    request = urllib.request.Request(
        f"{base_url}/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json", "authorization": "Bearer any-key"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=120) as answer:
        return str(json.load(answer)["choices"][0]["message"]["content"])


def misbehave(kind: str) -> int:
    """Anything but an answer."""
    if note := os.environ.get("SMALL_PID"):
        Path(note).write_text(str(os.getpid()))
    if kind == "hang":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        if note:
            Path(note).write_text(f"{os.getpid()} {child.pid}")
        time.sleep(600)
    elif kind == "binary":
        sys.stdout.buffer.write(bytes(range(128, 256)))
    elif kind == "fail":
        print("no such model, the key is", os.environ.get("SMALL_KEY"), file=sys.stderr)
        return 1
    elif kind == "password":
        print(getpass.getpass("Password: "))
    elif kind == "flood":
        while True:
            sys.stdout.write("y" * 65536)
    elif kind == "crash":
        os.kill(os.getpid(), 11)
    elif kind == "leave-child":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print("answered all the same")
    return 0


def main() -> int:
    """Ask, and print the answer below a line of chatter."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--misbehave", choices=MISBEHAVIOURS)
    parser.add_argument("words")
    parse_args = parser.parse_args()
    if parse_args.misbehave:
        return misbehave(parse_args.misbehave)
    print("\x1b[2mthinking...\x1b[0m")
    print(ask(parse_args.words))
    return 0


if __name__ == "__main__":
    sys.exit(main())
