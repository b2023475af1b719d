"""Whether rewards teach the embedded policy.

BLAS threads are set here, before a module of this folder imports numpy.
"""

from engine.training import threads

threads.prepare()
