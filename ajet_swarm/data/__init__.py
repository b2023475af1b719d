"""Readers of tasks: `readers` has AgentJet's names, `files` reads the formats row by row.

A row is read with its place (`path:line`), so that the error for an unusable one names it. A reader
of another source defines one method:

    class Mine(BaseTaskReader):
        def generate_training_tasks(self):
            yield Task(task_id="1", main_query="What is 2 + 2?")
"""
