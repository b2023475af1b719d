"""Every request, newest on top, with the rewards of its candidates.

`model.py` has the rows (`RowModel`: filter, order, the groups in memory and below them those of the
journal) and the completion of the filter line; `text.py` turns them into lines. `widgets.py` paints
them: `GroupList` moves the cursor and reads the pages of the journal that come into sight,
`FilterLine` parses while the operator types. The keys belong to areas around the list, from the
inside out: `GroupKeys` (`console/screens/group/`) for the group under the cursor, `ListKeys`
(`screen.py`) for the list. `marked.py` acts on all marked groups, `export.py` writes groups to a
file.

A column is a row of `TABLE` in `text.py`, an order one of `ORDERS` in `model.py`, a term of the
filter one of the tables in `console/session/filters.py`.
"""
