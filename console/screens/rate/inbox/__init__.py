"""The inbox: groups that ended before their vote, as a list and as a queue of late votes.

`model.py` has both (order, filter, which one follows), `text.py` their lines. `screen.py` lists the
items; Enter opens one on the rating screen, whose queue then has `late` groups. `keys.py` has the
keys there, and reads the texts ahead. The reducer keeps the items, `core.state.inbox`.
"""
