"""The kinds of parts that come with the program.

A kind is a `PartKind`: a factory with checked settings, whose parts have a method `score`. A part
that looks at one answer at a time is a function:

    def polite(word: str) -> EachAnswer:
        return EachAnswer(lambda reading: PartValue(float(word in reading.text), "polite"))

    POLITE = PartKind(
        lambda name, settings, where: polite(settings["word"]),
        "1 for an answer that says please",
        {"word": Setting("text", "please", "the word")},
    )

A value of None means that the part does not apply; the other parts then share its weight.
`proxy.rewards.part` has the interface, and names the module of each kind.
"""
