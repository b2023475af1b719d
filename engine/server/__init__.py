"""Protocol state: life cycle, pool, batch rules, job; no numpy."""
