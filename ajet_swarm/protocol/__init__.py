"""What is sent and received: types and errors.

`schemas` are the server's JSON, `task` and `claim_models` the objects of scripts, with the
methods of AgentJet's models (`model_methods`), and `errors` all errors in a tree. `job_secrets`
masks the secrets of a job (`ajet_swarm/job`).
"""
