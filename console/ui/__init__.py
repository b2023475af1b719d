"""Parts from which every screen is built. They know no subject of the program.

`plot` draws values over an axis with braille dots; a caller names the ends of its axes, draws its
series, and takes the lines:

    axis = Axis.around(0.12, 0.87)
    plot = Plot(40, 8, ends=(1, 12))  # 40 by 8 cells over the steps 1 to 12
    plot.line([(1, 0.12), (12, 0.87)], axis, "$curve")
    lines = [*plot.lines(axis), plot.foot("step 1", "12")]

`table` has a title, width, text and tone for each column, and a rank that says which columns are
left out where there is no room:

    table = Table((Column("step", 5, step_text), Column("clip", 6, clip_text, "$muted", rank=1)))
    lines = [table.head(width), *(table.row(step, width) for step in steps)]
"""
