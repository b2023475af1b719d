"""The tests of the policy run as the engine does: one BLAS thread, set before numpy is there."""

from engine.training import threads

threads.prepare()
