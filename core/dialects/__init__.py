"""The API formats of chats: what proxy and engine share to read requests and to write answers.

A chat completion is the common form. A reader checks the body of a request (`fields.py`: a struct
for each shape, errors in vLLM's words) and returns the fields of a chat completion: for messages
`messages/input.py`, for responses `responses/input.py` and `tools.py`. An answer becomes a
`PublicAnswer`, and a `Writer` (`writer.py`) sends its deltas in the events of the format. For
example `POST /v1/messages`:

    {"max_tokens": 9, "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}
    -> {"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}     the chat completion
    <- {"content": "Hello"}                                                   its message
    -> content_block_start, content_block_delta, content_block_stop, message_delta, message_stop
"""
