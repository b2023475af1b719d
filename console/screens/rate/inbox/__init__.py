"""The inbox: groups that ended before their vote, as a list and as a queue of late votes.

`model.py` has both (order, filter, which one follows), `text.py` their lines. `screen.py` lists the
items; Enter opens one on the rating screen of `rating.py`, which is that of the open groups with
another queue. The reducer keeps the items, `core.state.inbox`; their texts are read ahead.
"""
