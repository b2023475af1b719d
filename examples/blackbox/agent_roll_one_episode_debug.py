"""Run one episode and print its trace: every call, its tokens, the reward, or the traceback.

    python agent_roll_one_episode_debug.py --item 3

The episode is not trained on unless `--train` is given. `ajet-console run episode --watch` does
the same after each change of a file here; the server keeps running.
"""

import sys
from pathlib import Path

from ajet_swarm.debug import main

if __name__ == "__main__":
    sys.exit(main([str(Path(__file__).resolve().parent), *sys.argv[1:]]))
