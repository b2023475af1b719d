"""The control API, its client, and the handlers of the commands.

`ControlApi` (`api.py`) identifies the client by its token (`permissions.py`) and answers with a
snapshot, a feed of events, or the result of a command. `CommandHandler` (`dispatch.py`) begins each
command with its plan (`core.commands.plan`) on the newest state, and calls its handler with the
validated arguments by name:

    {"group.mark": self.mark}             # a class of commands has such a table
    async def mark(self, group_id: str, marked: bool = True) -> str:  # the message, or raises

Handlers: `group_commands.py`, `engine_commands.py` with `job_commands.py`, `progress_commands.py`,
`probes.py`, `what_if.py`, `record_commands.py`. A start or a changed job is an
operation in steps (`job_operation.py`). `watch_only.py` has the proxy that changes nothing.
"""
