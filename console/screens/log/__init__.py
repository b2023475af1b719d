"""The logs of the processes: filtered, searched, with folds.

`model.py` has the lines on screen (`LogBook`: which rows they take while some are folded, the
cursor, the search). `widgets.py` paints the visible rows, moves the cursor and follows the newest
line. `screen.py` chooses the lines: source, level, only those that match. What the processes write
comes from `console/session/logs.py`.
"""
