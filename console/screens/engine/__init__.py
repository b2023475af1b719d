"""Engine: the swarm servers with their steps, what each holds inside, the job it starts with.

`screen.py` lists a panel for each server; its commands are those of the palette, sent by
`action_send`. `panel.py` builds a panel, `steps.py` its table and its curves, `widgets.py` has the
panel of the checkpoints, whose keys work while it has the focus.

`reading.py` reads what servers report, second by second, and `text.py` turns that into lines:
`inside.py` for one server, the screen Servers for all of them. `job.py` edits the job of a server.
"""
