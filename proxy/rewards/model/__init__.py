"""The reward model: parts with weights, read from `rewards.yaml`.

`file` reads the file and names every fault with its line, `spec` has the arithmetic, `assembly` is
a model whose parts are built, and `source` is the source of rewards that the proxy asks: it loads
the file again when it is saved and keeps the old assembly until the new one can score. Its commands
change the file while it is in use.
"""
