"""The kinds of parts that come with the program.

A kind is a `PartKind`: a factory with checked settings, whose parts have a method `score`. Most are
a function of the group, or of one answer, and the settings by their names:

    def polite(reading: Reading, word: str) -> PartValue:
        return PartValue(float(word in reading.text), "polite")

    POLITE = PartKind(
        each_by(polite),
        "1 for an answer that says please",
        {"word": Setting("text", "please", "the word")},
    )

A value of None means that the part does not apply; the other parts then share its weight.
`proxy.rewards.part` has the interface, and names the module of each kind. `expected_answer` reads
what a query calls for; `patterns` bounds the expressions of `format` and of its JSON `schema`.
"""
