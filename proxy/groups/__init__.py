"""One group's life, from a request to its rewards.

`proxy.admission` makes a `Run` of a request (`run`; its parts are the candidates, the votes and the
answer), and `lifecycle` takes it through its phases. QUEUED: the group waits for its place among
the claims of its server. CLAIMING: it gets all its episodes or none (`claim`). GENERATING: the
model answers for each episode; what fails gets a fresh episode, what is late is given up
(`generate`). SCORING: the rewards score the answers (`score`). AWAITING_RATING: raters may vote
(`rating`) until the rules let the group go (`seal`). SUBMITTING: the rewards are on the disk first,
then one end is sent for each episode (`claim`). The user gets an answer as soon as one can be
chosen, whatever the phase (`answer`). After a kill, `recovery` ends or returns what the journal
says was held.
"""
