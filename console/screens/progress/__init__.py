"""Progress: is the policy better than its baseline, by which part, on which prompts.

`model.py` says what the looks at the probe set show, in sentences and figures; command line, MCP
and other screens use it too. `text.py` turns that into lines, `chart.py` draws the looks,
`summary.py` is the line on the overview. `screen.py` paints them and opens the answers to one
prompt; `pair.py` takes votes on blind pairs.

`tries.py` sends a prompt to the policy, and shows its answer beside those of earlier steps.
"""
