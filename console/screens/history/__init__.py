"""History: the engine runs, two of them compared, the screens as of the time of one.

`model.py` says in words what a run was and how two differ, and builds the command of a replay;
`text.py` turns that into the table, the details and the comparison, which the command line prints
too. `screen.py` lists the runs, changes the one under the cursor and shows a comparison.
"""
