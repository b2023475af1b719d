"""Rating by hand: groups that wait for a vote, one at a time, blind, by keys.

`model.py` has the queue (which group is on screen, which votes are in transit) and `ballot.py` the
vote that is being typed; `text.py` turns both into lines, `arrangement.py` says where the answers
stand. None of them knows Textual. `screen.py` paints the lines and holds no rule. Keys belong to
areas around the panes, each with the actions of one job, from the inside out:

    Voting          voting.py   type, send and undo a vote
    AnswerKeys      tools.py    select, show, compare, edit the answers; reasons
    RaterTools      tools.py    mode, guidelines, goal, earlier votes, raters, stalls
    RateGroupKeys   voting.py   what every screen does with one group

A key changes the queue and posts `Changed`, on which the screen paints itself. A vote does not wait
for that: `Voting` starts its command first. A new rating is a method of `Ballot` and a binding of
`Voting`; another way through the groups is a method of `RateQueue`. `lease.py` keeps the group from
other consoles, `raters/` compares votes, `dialogs.py` and `widgets.py` have the rest.
"""
