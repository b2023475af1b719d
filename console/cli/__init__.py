"""The command line: one parser; only the modules of the chosen command are imported.

Exit codes: 0 success, 1 failure, 2 wrong use, 130 interrupted; `progress` also has 3 and 4.
"""

import gc
import io
import logging
import os
import sys
from collections.abc import Sequence

import click

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import did_you_mean
from console.cli.output import Declined, Output, opened
from console.cli.tree import NAME, parse

_COLLECTIONS = (50_000, 20, 20)
"""Thresholds of the garbage collector, as of `core.runtime.gc_tuning`, whose import would cost what
they save. With Python's own, collections take an eighth of the engine's start: they scan imported
modules, which stay."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; an error becomes one message on standard error.

    Args:
        argv: Arguments without the program's name; the process's own when left out.

    Returns:
        The exit code.
    """
    gc.set_threshold(*_COLLECTIONS)
    _replace_what_cannot_be_shown()
    _spare_command_line_of_httpx()
    words = sys.argv[1:] if argv is None else argv
    with opened(words) as printed:
        try:
            return _run(words, printed)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0


def _run(words: Sequence[str], printed: Output) -> int:
    """Run one command, print its result, and return the exit code."""
    failure: AjetError | None = None
    try:
        if "_AJET_CONSOLE_COMPLETE" in os.environ:
            from console.cli.system.shell import complete

            return complete()
        args = parse(words)
        printed.configure(args)
        code: int = args.handler(args)
    except click.exceptions.Exit as done:  # help or version
        return done.exit_code
    except click.UsageError as error:
        failure = _refused(error, printed)
        code = failure.exit_code
    except BrokenPipeError:
        raise
    except Declined as no:
        printed.say(str(no))
        code = 1
    except KeyboardInterrupt:
        failure, code = AjetError("interrupted"), 130
    except SystemExit as leaving:  # a signal ended the setup
        return leaving.code if isinstance(leaving.code, int) else 0
    except Exception as error:  # noqa: BLE001 - the outermost boundary: one line, no traceback
        failure = _failed(error)
        code = failure.exit_code
    printed.close(code, failure)
    sys.stdout.flush()
    return code


def _refused(error: click.UsageError, printed: Output) -> UsageError:
    """Write wrong use to standard error, with a pointer to the help."""
    command = error.ctx.command_path if error.ctx is not None else NAME
    what, hint = error.format_message().rstrip("."), f"See `{command} --help`"
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        known = [name for param in error.ctx.command.get_params(error.ctx) for name in param.opts]
        what = f"there is no option {error.option_name}"
        what = f"{what}. {did_you_mean(error.option_name, known)}".removesuffix(". ")
    printed.verb = command.partition(" ")[2]
    sys.stderr.write(f"{command}: {what.rstrip('.')}{'' if what.endswith('?') else '.'} {hint}\n")
    return UsageError(what, todo=hint)


def _replace_what_cannot_be_shown() -> None:
    """Write `?` for a character that the encoding of the terminal does not have."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() not in (
            "utf-8",
            "utf8",
        ):
            stream.reconfigure(errors="replace")


def _spare_command_line_of_httpx() -> None:
    """Let httpx be imported without its own command line, which is half of its import."""
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # None: not importable


def _failed(error: Exception) -> AjetError:
    """Write an error to standard error and return it: of concurrent work, the first of ours."""
    if isinstance(error, ExceptionGroup):
        error = error.subgroup(AjetError) or error
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
    if isinstance(error, AjetError):
        sys.stderr.write(f"ajet-console: {error}\n")
        return error
    what = " ".join(f"internal error, {type(error).__name__}: {error}".split())
    shown = AjetError(what, todo="AJET_CONSOLE_DEBUG=1 shows where")
    if os.environ.get("AJET_CONSOLE_DEBUG") == "1":
        logging.getLogger("ajet-console").error("internal error", exc_info=error)
    else:
        sys.stderr.write(f"ajet-console: {shown}\n")
    return shown
