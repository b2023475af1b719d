"""The process that runs a target's function: one question per line in, one answer per line out.

python -m mock.python_worker FUNCTION

The function's own output goes to standard error, so that it cannot be mistaken for an answer. Each
concurrent row starts such a process, so it imports no other module of the program.
"""

import importlib
import importlib.util
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


def main(function: str) -> int:
    """Answer questions until standard input ends."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        ask, takes_context = load_function(function)
    except Exception as error:  # noqa: BLE001 - report any error of the module
        _write_reply(out, {"broken": _error_text(error, function)})
        return 0
    _write_reply(out, {"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        os.environ.update(request.pop("environ"))
        try:
            result = ask(request["query"], request) if takes_context else ask(request["query"])
            if inspect.isawaitable(result):
                import asyncio  # it takes longer than all others, and few functions need it

                result = asyncio.run(_await_value(result))
        except Exception as error:  # noqa: BLE001 - report the function's own errors
            _write_reply(out, {"error": _error_text(error, function)})
            continue
        if not isinstance(result, str):
            _write_reply(out, {"error": f"it returned {type(result).__name__}, not text"})
        else:
            _write_reply(out, {"answer": result})
    return 0


def load_function(function: str) -> tuple[Callable[..., Any], bool]:
    """Return the function, and whether it takes a second argument."""
    name, _, attribute = function.rpartition(":")
    module = _from_file(Path(name)) if name.endswith(".py") else importlib.import_module(name)
    ask = getattr(module, attribute)
    if not callable(ask):
        raise TypeError(f"`{attribute}` is not a function")
    try:
        inspect.signature(ask).bind("query", {})
    except TypeError:
        inspect.signature(ask).bind("query")
        return ask, False
    return ask, True


def _from_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


async def _await_value(value: Any) -> Any:
    return await value


def _error_text(error: BaseException, function: str) -> str:
    """Return an error with the last line of the user's own code."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__
    ]
    user_frames = [frame for frame in frames if "importlib" not in frame.filename]
    at = f" ({Path(user_frames[-1].filename).name}:{user_frames[-1].lineno})" if user_frames else ""
    if isinstance(error, SyntaxError) and error.filename:
        at = f" ({Path(error.filename).name}:{error.lineno})"
    return f"{function}: {type(error).__name__}: {error}{at}"


def _write_reply(out: Any, reply: dict[str, Any]) -> None:
    out.write(json.dumps(reply) + "\n")
    out.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
