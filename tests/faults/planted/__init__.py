"""Faults planted on purpose: behaviours that users are promised, each broken by one replacement.

They show that a changed suite of tests still notices what the suite noticed before. Each package of
the product has a file PACKAGE.toml with tables of the form

    [[fault]]
    name = "retry-does-not-grow"
    promise = "The pause between tries doubles (docs/library/running.md)."
    file = "ajet_swarm/runs/executors.py"
    old = "text that occurs exactly once in the file"
    new = "text in its place"

`tests/guards/test_planted_faults.py` checks that each fault still fits the code.
"""
