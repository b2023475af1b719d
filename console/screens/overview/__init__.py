"""The first screen: is the policy better, what needs the operator, what happens now.

`sections.py` has its sections (engines, alerts, pace, mock user, the start) as functions of the
session and the room; `text.py` has the newest groups as rows of a `Table`. `widgets.py` adds a
cursor to alerts and groups, `screen.py` arranges them and opens what is chosen.
"""
