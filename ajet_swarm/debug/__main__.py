"""`python -m ajet_swarm.debug`."""

import sys

from ajet_swarm.debug import main

if __name__ == "__main__":
    sys.exit(main())
