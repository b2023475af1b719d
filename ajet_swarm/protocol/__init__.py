"""What is sent and received: types, errors, and the job of a training run.

`schemas` are the server's JSON, `task` and `claim_models` the objects of scripts, with the
methods of AgentJet's models (`model_methods`), and `errors` all errors in a tree.

A job is a tree of AgentJet's keys (`job`). One table (`job_schema`) has for each key its argument
of `AgentJetJob`, its default and its bounds. `job_validation` checks a job with the line of each
key, `job_secrets` masks secrets in it, and `server_job` adds what an AgentJet server never starts
without:

    Key("rollout.num_repeat", "num_repeat", 4, sent=True, least=1)
"""
