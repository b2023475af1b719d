"""The reasoning that a model writes before its answer, where the server does not separate it.

The templates of many models contain the beginning of the thought, so that only its end is written.
"""

import re

THOUGHT_END = re.compile(r"</(?:think|thinking|thought|reasoning)\s*>|\[/THINK\]", re.IGNORECASE)
"""The end of a thought; what precedes it is not part of the answer."""
