"""The job of a training run: a tree of AgentJet's keys below `ajet`, as YAML.

One table (`schema`) has for each key its argument of `AgentJetJob`, its default and its bounds, and
whether an AgentJet server needs it. `tree` reads a job and checks it, with the line of each key;
`server` completes it for an AgentJet server; `agentjet` is the object with AgentJet's arguments:

    Key("rollout.num_repeat", "num_repeat", 4, sent=True, least=1)

AgentJet servers merge a job over their defaults; the embedded engine reads the same paths (section
10 of the protocol).
"""
