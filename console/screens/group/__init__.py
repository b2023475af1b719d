"""One group of answers: its detail, and what every screen that shows a group shares.

`GroupKeys` in `actions.py` has the keys for one group (accept, abort, mark, copy and so on). It is
a container: a screen puts its widgets into it and gives it a `GroupTarget`, the group that the keys
apply to.

    class Listed(GroupTarget):
        @property
        def group(self): ...          # the group under the cursor

    def compose_body(self):
        with GroupKeys(Listed(self)):
            yield GroupList()

`card.py` has a candidate as a card, `text.py` the head above them, `widgets.py` both on screen
(`Candidates`, `GroupDetail`), `request.py` the request as entries.

The target is also told which command has succeeded. `DetailKeys` adds the whole request behind
`i`, which `conversation.py` shows. `rater.py` asks for the rater's name before the first vote and
whether a vote overrides another rater's. `screen.py` is the detail.
"""
