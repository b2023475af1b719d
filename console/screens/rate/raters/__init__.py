"""Several raters, and how far votes agree: with each other, and with the automatic rewards.

`model.py` computes who is here, at what pace and with which agreement; `text.py` turns that into
lines, for the command line and for two dialogs of Rate: `r` (the raters, with the disagreements to
settle) and `j` (votes against automatic rewards).
"""
