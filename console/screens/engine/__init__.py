"""Engine: the swarm servers with their steps, what each holds inside, the job it starts with.

`screen.py` lists a panel for each server; its commands are those of the palette, sent by
`action_send`. `panel.py` builds a panel, `steps.py` its table and its curves, `widgets.py` has the
panel of the checkpoints, whose keys work while it has the focus.

`inside.py` reads what one server reports, second by second, and `text.py` turns that into lines;
the screen Servers shows the same for all of them. `job.py` edits the job of a server.
"""
