"""First steps: the purpose of the program, its loop, and a key for each way to start.

`steps.py` says which steps work from here, and has their texts. `widgets.py` shows them on the
overview before the first request, later in a dialog, and sends what a key starts.
"""
