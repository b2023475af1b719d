"""`python -m bench.hacking`; see `bench.hacking.run`, which worker processes import."""

from bench.hacking.run import main

if __name__ == "__main__":
    main()
