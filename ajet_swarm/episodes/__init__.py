"""Episodes of one server, from the claim to the end.

`claim` says how a group gets its episodes and `queue` in which order groups claim. What is claimed
is a `Holding` (`holdings`). `ends` says how a reward is sent for it, or it is given back, once; and
how episodes whose claim had no answer are found. Library and proxy use the same classes. Example:

    claimed = await claimer.claim_group(4)
    holding = claimer.ends.holdings.by_uuid[claimed[0].episode_uuid]
    outcome = await claimer.ends.end(holding, task_id, WireOutput(reward=1.0))
"""
