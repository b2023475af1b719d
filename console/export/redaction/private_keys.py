"""Private keys as blocks of text: PEM, OpenSSH, PGP, PuTTY."""

import re

from console.export.redaction.marks import mark

_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_BODY = re.compile(r"(?:\\[nr]|[A-Za-z0-9+/=:,.\- \t\r\n])*")
"""What follows the beginning of a block whose end is missing."""
_PUTTY = re.compile(r"(?i)(private-lines: ?[0-9]{1,4})((?:[\r\n]{1,2}[A-Za-z0-9+/=]{1,90})+)")


def without_private_keys(text: str, kinds: list[str]) -> str:
    """Replace the blocks of private keys, also those without an end.

    Args:
        text: The text.
        kinds: Kinds of the replaced secrets; extended.
    """
    if "PRIVATE KEY" in text and "-----BEGIN" in text:
        text = _without_blocks(text, kinds)
    if "rivate-" in text:

        def replaced(match: re.Match[str]) -> str:
            kinds.append("private key")
            return f"{match[1]}\n{mark('private key')}"

        text = _PUTTY.sub(replaced, text)
    return text


def _without_blocks(text: str, kinds: list[str]) -> str:
    parts: list[str] = []
    at = 0
    ends = True
    while (begin := _BEGIN.search(text, at)) is not None:
        end = _END.search(text, begin.end()) if ends else None
        ends = end is not None  # without an end here, there is none further on
        stop = end.end() if end is not None else _end_of_body(text, begin.end())
        parts += [text[at : begin.start()], mark("private key")]
        kinds.append("private key")
        at = stop
    return "".join((*parts, text[at:]))


def _end_of_body(text: str, at: int) -> int:
    match = _BODY.match(text, at)
    return match.end() if match is not None else at
