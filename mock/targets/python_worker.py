"""The process in which a target's function runs: a question a line in, an answer a line out.

    python -m mock.targets.python_worker FUNCTION

What the function prints goes to standard error, so that it cannot be taken for an answer.
"""

import asyncio
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
    """Answer until there are no more questions."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        ask, wants = load(function)
    except Exception as error:  # noqa: BLE001 - whatever a module raises is told
        _tell(out, {"broken": _where(error, function)})
        return 0
    _tell(out, {"ready": True})
    for line in sys.stdin:
        told = json.loads(line)
        os.environ.update(told.pop("environ"))
        try:
            found = ask(told["query"], told) if wants else ask(told["query"])
            if inspect.isawaitable(found):
                found = asyncio.run(_awaited(found))
        except Exception as error:  # noqa: BLE001 - the function's own errors are told
            _tell(out, {"error": _where(error, function)})
            continue
        if not isinstance(found, str):
            _tell(out, {"error": f"it returned {type(found).__name__}, not text"})
        else:
            _tell(out, {"answer": found})
    return 0


def load(function: str) -> tuple[Callable[..., Any], bool]:
    """The function, and whether it takes the second argument too."""
    name, _, attribute = function.rpartition(":")
    module = _from_file(Path(name)) if name.endswith(".py") else importlib.import_module(name)
    ask = getattr(module, attribute)
    if not callable(ask):
        raise TypeError(f"`{attribute}` is no function")
    try:
        inspect.signature(ask).bind("query", {})
    except TypeError:
        inspect.signature(ask).bind("query")
        return ask, False
    return ask, True


def _from_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


async def _awaited(found: Any) -> Any:
    return await found


def _where(error: BaseException, function: str) -> str:
    """An error with the last line that is not ours."""
    here = [one for one in traceback.extract_tb(error.__traceback__) if one.filename != __file__]
    own = [one for one in here if "importlib" not in one.filename]
    at = f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
    if isinstance(error, SyntaxError) and error.filename:
        at = f" ({Path(error.filename).name}:{error.lineno})"
    return f"{function}: {type(error).__name__}: {error}{at}"


def _tell(out: Any, told: dict[str, Any]) -> None:
    out.write(json.dumps(told) + "\n")
    out.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
