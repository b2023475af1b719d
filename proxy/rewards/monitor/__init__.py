"""The watch over rewards that were sent.

`watcher` reads each sealed group a little later, outside the path of the answers, and publishes
alerts: `hacking` when rewards follow a trait that does not make an answer good, `outliers` for a
reward or a scale that is out of the ordinary, and for equal rewards, which teach nothing.
`unscored` counts groups that have no automatic reward at all.
"""
