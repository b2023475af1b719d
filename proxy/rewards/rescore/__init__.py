"""The re-scorer: what other rewards would have given groups that were already scored.

The what-if of a proxy and `rewards test` use it alike. `cases` reads groups from a journal or a
file, and compares their rewards before and after; `rescorer` scores them with rewards of its own
choice. Nothing is sent, and the rewards in use do not change:

    cases = newest_cases(journal, 100)
    async with rescorer(home, settings, RewardChoice(weights={"length": 0.1})) as trial:
        results = await trial.run(cases)
    print(summary_of(results, trial.version).flips)
"""
