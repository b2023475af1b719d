"""E-mail addresses."""

import re

from console.export.redaction.marks import mark

_ADDRESS = re.compile(
    r"(?<![\w.%+-])(?P<local>[\w.+-]{1,64})(?:@|%40|\s?[(\[{](?:at|AT)[)\]}]\s?)"
    r"(?P<domain>[\w-]{1,63}(?:\.[\w-]{1,63}){0,5}\.(?P<top>[^\W\d_]{2,24}))(?![\w@])"
)
_FILES = (
    "png jpg jpeg gif svg webp ico pdf js jsx ts tsx mjs py pyi json yaml yml toml css scss html"
    " xml service socket timer target mount slice scope path git lock so txt zip gz tar whl csv log"
    " conf cfg ini sql rb go java cpp hpp sh bat"
)
_SHORT_TOPS = frozenset(
    [
        "com",
        "org",
        "net",
        "io",
        "me",
        "dev",
        "co",
        "uk",
        "de",
        "fr",
        "eu",
        "us",
        "ch",
        "at",
        "nl",
        "it",
        "es",
        "jp",
        "cn",
    ]
)
"""Top domains of addresses such as `ada@x.com`, whose domain has one character."""
_NO_TOP = frozenset(_FILES.split())
"""Endings of files and units: `logo@2x.png`, `getty@tty.service`."""
_LOGINS = frozenset({"git", "hg", "svn"})
"""Users of repository addresses: `git@host:path` names no person."""


def without_addresses(text: str, kinds: list[str]) -> str:
    """Replace e-mail addresses.

    Args:
        text: The text.
        kinds: Kinds of the replaced secrets; extended.
    """
    if "@" not in text and "%40" not in text and "at)" not in text and "at]" not in text:
        return text

    def replaced(match: re.Match[str]) -> str:
        if match["top"].lower() in _NO_TOP:
            return match[0]
        if len(match["domain"]) - len(match["top"]) == 2 and (
            match["top"].lower() not in _SHORT_TOPS or text[match.end() : match.end() + 1] == "("
        ):
            return match[0]  # a product of matrices: `q@k.mean()`
        if match["local"].lower() in _LOGINS and text[match.end() : match.end() + 1] in (":", "/"):
            return match[0]
        kinds.append("e-mail address")
        return mark("e-mail address")

    return _ADDRESS.sub(replaced, text)
