"""Parts from which every screen is built. They know no subject of the program.

`plot` draws values over an axis with braille dots; a caller names the ends of its axes, draws its
series, and takes the lines:

    axis = Axis.around(0.12, 0.87)
    plot = Plot(40, 8, ends=(1, 12))  # 40 by 8 cells over the steps 1 to 12
    plot.line([(1, 0.12), (12, 0.87)], axis, "$curve")
    lines = [*plot.lines(axis), plot.foot("step 1", "12")]
"""
