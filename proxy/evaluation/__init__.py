"""Measurement of the policy on held-out prompts (the probe set), and what follows from it.

`MeasurementService` decides when one is due (`service.py`). It opens a sampler of the present
weights (`sampling.py`: a snapshot of the embedded engine, or eval episodes, which give way to
users), scores the answers with the present reward (`scoring.py`), and concludes: mean, verdict
against the baseline, figures by part (`measurement.py`). The first measurement is the baseline; a
changed reward scores its stored samples again, other prompts or weights need another one.

    sampler = await open_sampler(server, facts, user_waits)
    measured = await take_samples(attempt, sampler, scorer, on_progress, clock)
    await conclude(attempt, measured, scorer, baseline)
    attempt.ended  # LookEnded: mean, verdict, figures by part

`Reaction` raises alerts, pauses and rewinds (`reaction.py`); `saved_weights.py` knows where the
weights of a step are. `PairRating` shows a rater pairs of stored answers (`pairs.py`). Events,
files and screens call a measurement a *look*.
"""
