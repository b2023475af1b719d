"""Hooks: a folder of the operator's functions, run in a process of its own.

`part` is the part of kind `hook`: it watches the folder and replaces the process after a save.
`child` is the proxy's side of one process: it sends calls, enforces their limits and finds out
which call ended the process. `host` is the process and `protocol` their messages. `functions`
imports the operator's functions, checks what they return and cuts their tracebacks; `tutorials` has
what they import of AgentJet, and stand-ins for its loggers.

    def on_compute_relative_reward(valid_results, all_answers):
        return [float("please" in answer["content"]) for answer in all_answers]
"""
