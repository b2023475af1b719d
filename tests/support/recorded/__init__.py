"""Runs that the program recorded: the events of a journal, and what the reducer makes of them.

    python -m tests.support.recorded                  # rewrite the stored views
    python -m tests.support.recorded add NAME HOME    # record the journal of a home as NAME

`tests/data/recorded/NAME.events.jsonl.xz` has the events of a journal in the form of `ajet-console
watch --json`, without paths of the machine. They are what earlier versions wrote and are never
edited; `MAPPED` brings them into their present form. `NAME.views.jsonl.xz` has the state as JSON
after every 250th event, after the first one of each kind, and at the end; each line has the records
that differ from the line before. Read the fields that the first command prints before you commit
new views: there the state says something else than before.

    training   Embedded engine, proxy and mock user: rating in all modes and by several raters,
               undo, aborts, weight syncs, looks, pairs, a rewind, trials, hooks with faults, a
               judge, and kill -9 of proxy, engine and mock user.
    servers    Two servers that fail, freeze, stop and take episodes away; then one of them,
               watched only; then an upstream that is observed.
"""
