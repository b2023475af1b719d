"""A language model as a judge of answers: the part of kind `judge`.

`part` owns the connection and its health. `modes` turns a group into questions (one for each
answer, one for the group, or two for each pair), and replies into values; `prompt` writes a
question and reads its reply strictly. `question` answers each from a cache or by calls of the
endpoint, within the retries of the group, the cost of a run, and a circuit breaker.
A question without a usable reply makes the whole group abstain: no value is ever made up. What
cannot be used is a `JudgeFault` of `settings`, from a missing key to a refused call.
"""
