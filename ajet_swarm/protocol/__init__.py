"""What is sent and received: types and errors.

`schemas` are the server's JSON, `models` the objects of scripts, and `errors` all errors in a tree.
`job_secrets` masks the secrets of a job (`ajet_swarm/job`).
"""
