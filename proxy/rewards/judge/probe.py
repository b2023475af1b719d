"""What a look at a judge found, and what its operator can do about it."""

import msgspec

from proxy.rewards.judge.http import JudgeFault
from proxy.rewards.judge.settings import Options, is_near


class Probe(msgspec.Struct, frozen=True):
    """What a dry look at a judge found."""

    ok: bool
    said: str
    """One line: what is there, or what is wrong."""
    todo: str = ""
    url: str = ""
    model: str = ""
    field: str = ""
    """The setting to mend, where it is one."""
    again: bool = False
    """It may be well later by itself."""


def todo_of(fault: JudgeFault, options: Options) -> str:
    """What to do about a judge that could not be asked."""
    if fault.status in (401, 403):
        named = options.key_env or options.key_file
        if named is None and not is_near(options.url):
            return "It wants a key: name the variable that holds it with key_env"
        return f"See that the key is right ({named})" if named else "Name its key with key_env"
    if fault.status in (400, 404):
        return "See that url and model are right"
    return "See that it runs and that url is right"
