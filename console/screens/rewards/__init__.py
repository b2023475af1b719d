"""Rewards: the source, what each part of it decided in the last groups, its faults, other weights.

`model.py` summarizes each group once (`Digest`) and combines the last ones (`figures`); it also
finds the last fault. `text.py` and `judges.py` turn that into lines, `charts.py` draws one part.
None of them knows Textual, and the command line prints the same lines. `screen.py` paints them: a
row is a part, Enter shows its values. `actions.py` has what keys and palette do.

`whatif.py` shows the effect of other weights, which `console/session/what_if.py` computes. A new
figure of a part is a field of `PartFigures` and a column of the table in `text.py`; a new chart is
an entry of `charts.CHARTS`.
"""
