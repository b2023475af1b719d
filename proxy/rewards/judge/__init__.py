"""A language model as a judge of answers: the part of kind `judge`.

`part` owns the connection and its health. `modes` turns a group into questions (one for each
answer, one for the group, or two for each pair), whose prompts are in `prompt`; `question` answers
each from `cache` or by calls of `endpoint`, within the retries of the group, the limit of `spend`
and the circuit breaker of `breaker`; `reply` reads a reply strictly. A question without a usable
reply makes the whole group abstain: no value is ever made up.
"""
