"""Hooks: a folder of the operator's functions, run in a process of its own.

`part` is the part of kind `hook`: it watches the folder and replaces the process after a save.
`child` is the proxy's side of one process: it sends calls, enforces their limits and finds out
which call ended the process. `host` is the process, `protocol` their messages, `check` what hooks
may return. `tutorial_api` and `tutorial_loggers` stand in for packages that they import.

    def on_compute_relative_reward(valid_results, all_answers):
        return [float("please" in answer["content"]) for answer in all_answers]
"""
