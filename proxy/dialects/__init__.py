"""The HTTP API formats that clients use: a request parser and a response writer each.

A chat completion is the common form. `RequestReader` (`common.py`) turns the bytes of a request
into a `ChatRequest` (`request.py`): the dialect's function checks the body (`fields.py`: a struct
for each shape; `validation.py`: what all dialects share) and returns the chat completion that goes
upstream. An upstream's completion becomes a `PublicAnswer`, and a `Writer` (`writer.py`) sends its
deltas in the events of the dialect. For example `POST /v1/messages`:

    {"max_tokens": 9, "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}
    -> {"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}     to the upstream
    <- {"content": "Hello"}                                                   its message
    -> content_block_start, content_block_delta, content_block_stop, message_delta, message_stop

`tests/data/dialects/requests.jsonl` has the upstream's form of many more requests.
"""
