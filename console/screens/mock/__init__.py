"""Mock user: sends the questions of a dataset through the fake vLLM.

`form.py` reads the fields of a run and shows them, `preview.py` reads a dataset in the background
and shows its first rows, `picker.py` lists the datasets. `text.py` turns a run into lines.
`screen.py` starts, pauses and stops it, and lists the rows that were sent.
"""
