"""Readers of tasks and of datasets, also for the mock user.

`readers` has AgentJet's names. `files` chooses the reader of a format and reads its rows in
sequence; `records` is the interface of all, and has the readers of JSON lines, JSON and CSV;
`tables` reads Parquet and Arrow.

A row is read with its place (`path:line`), so that the error for an unusable one names it. A reader
of another source defines one method:

    class Mine(BaseTaskReader):
        def generate_training_tasks(self):
            yield Task(task_id="1", main_query="What is 2 + 2?")
"""
