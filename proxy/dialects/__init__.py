"""The HTTP API formats that clients use: a request parser and a response writer each.

`RequestReader` (`common.py`) turns the bytes of a request into a `ChatRequest` (`request.py`): the
dialect's function checks the body as vLLM does and returns the chat completion that goes upstream.
The readers of messages and responses and the writers of all but chat are in `core.dialects`, whose
`__init__.py` has an example. `tests/data/dialects/requests.jsonl` has the upstream's form of many
requests.
"""
