"""Rewards: named parts score the answers of a group, and a model weighs them.

    reward = product of the gates x sum of weight x part

`part` is what a part implements, `parts` the built-in kinds, `hooks` a folder of the operator's
code in its own process, `judge` a language model. `model` reads `rewards.yaml` and scores with its
parts; `select` chooses the file or folder that the settings name. `monitor` checks rewards that
were sent, `group rescore` gives stored groups other rewards. The smallest part:

    class Polite:
        def score(self, group: PartInput) -> list[PartValue]:
            return [PartValue(float("please" in reading.text)) for reading in group.readings]

A part that cannot score raises `PartAbstained`; the group then has no reward, and its cause, file
and line are shown. No number is ever made up.

There is no code here: the process that runs hooks imports this package at every start.
"""
