"""The interface of a dialect: parse its requests, write its responses. No I/O."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from core.dialects.errors import ApiError
from core.dialects.writer import Writer
from proxy.dialects.request import ChatRequest


@dataclass(frozen=True, slots=True)
class Dialect:
    """One API format: its name, request parser, response writer and error format."""

    name: str
    read: Callable[[bytes, Mapping[str, str], str], ChatRequest]
    """(raw body, headers with lower-case names, client's address) -> request; raises `ApiError`."""
    writer: Callable[[ChatRequest, str, int], Writer]
    """(request, model name in the response, Unix seconds) -> writer."""
    refusal: Callable[[ApiError], bytes]
    """Return the JSON body of an error response."""
