"""The journal: every event, in one SQLite file from which all state is rebuilt.

`writer.Journal` queues events; one thread writes them, each as a row of `rows`, in shared commits.
A row leaves out what the first event of its group says, and is compressed; the view `events` has
the whole JSON of each. A commit survives a kill. A second thread syncs commits to the disk and
empties the log: what is synced survives a loss of power too. An event waits for the one or the
other, so a slow disk delays rewards and nothing else.

A request is stored without its messages: `messages` has each message once, under the hash of the
message before it and its own content, and the request names its last one. `reader` puts them back
together. `prune` deletes the oldest groups, `damage` copies a damaged file, `read_only` opens a
journal for commands and replays, `stats` counts. Everything can be read while the proxy writes:

    sqlite3 journal.db "select json from events where kind = 'group_sealed'" | jq .rewards
    sqlite3 journal.db "select sqlar_uncompress(zlib, size) from messages where id = 7" | jq .
"""
