"""Admission: what happens to a request from its arrival to its group.

The path of a request through `Admission.admit` (`admit`), without a wait and without a claim:

1. The same bytes from the same sender as an open group: it joins that group. As an answer that its
   client did not receive: it gets that answer again (`replay_cache`).
2. A refusal by the state of its server, by a full queue, or by its content.
3. Its dataset row, and what keeps it from being trained on: a held-out prompt, a pause.
4. Its session, which the client names or its messages continue (`conversations`); whether it is a
   helper call of an agent, such as a title (`helper_calls`).
5. The bounds of its API key and its session (`limits`).
6. A new group, which `Groups` (`registry`) runs until its last reward.

Example: an agent asks for the third time in its session. Its messages continue a conversation, so
it is turn 3 of that session; while eight requests of the session are open it gets a 429, else a
group of its own.
"""
