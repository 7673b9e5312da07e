"""Panels and histograms of the app's own pages."""

from agent2.web.plots import PlotValue, histogram, overlay, panel, spark


def test_a_panel_breaks_its_line_at_a_missing_value_and_bins_hold_every_value():
    values = [PlotValue(0, 1.0), PlotValue(1, None), PlotValue(2, float("nan")), PlotValue(3, 3.0, (2.0, 4.0))]
    drawing = panel("p", values, marks=[(2.0, "here")])
    (line,) = drawing.lines
    assert len(line.points) == 2 and line.path.count("M") == 2 and "L" not in line.path
    assert line.points[1].arm[0] > line.points[1].y > line.points[1].arm[1], "up is more"
    assert line.points[0].x < drawing.marks[0][0] < line.points[1].x
    steady = panel("learning_rate", [PlotValue(1, 5e-4), PlotValue(2, 5e-4)])
    assert "0.0005" in [label for _, label in steady.y_ticks], "a value that stays is not drawn as 0"
    for value in (-3.0, 1e-12, 1e-300, 1e12):
        assert len(panel("steady", [PlotValue(1, value), PlotValue(2, value)]).y_ticks) >= 2
    assert panel("none", []).lines[0].points == () and len(panel("one", [PlotValue(5, 0.0)]).y_ticks) >= 2
    many = panel("many", [PlotValue(place, place) for place in range(5_001)])
    assert len(many.lines[0].points) <= 402 and many.lines[0].points[-1].tooltip.startswith("5000")
    tenths = histogram([place / 10 for place in range(25)])
    assert [tenth_bin.n for tenth_bin in tenths] == [2] * 11 + [3], "a value on an edge is in the range that it begins"
    bins = histogram([place / 7 for place in range(100)])
    assert (
        sum(seventh_bin.n for seventh_bin in bins) == 100
        and len(bins) == 12
        and max(seventh_bin.share for seventh_bin in bins) == 100
    )


def test_runs_in_one_figure_share_its_axes_and_keep_their_tone_where_one_is_empty():
    short, long = [PlotValue(0, 1.0), PlotValue(10, 2.0)], [PlotValue(0, 5.0), PlotValue(100, 9.0)]
    drawing = overlay("reward", {"a": short, "nothing": [], "b": long}, is_wide=True)
    a, nothing, b = drawing.lines
    assert (a.tone, nothing.tone, b.tone) == (0, 1, 2) and nothing.path == ""
    assert a.points[-1].x < b.points[-1].x, "one axis of steps, whatever the length of a run"
    assert a.points[0].y > b.points[0].y and a.points[-1].tooltip == "a, 10: 2"
    assert drawing.width > panel("one", short).width and "b, 2 values, 5 first, 9 last" in drawing.description


def test_numbers_at_an_axis_have_the_room_that_they_need():
    small = panel("learning_rate", [PlotValue(1, 0.00015), PlotValue(2, 0.00035)])
    longest = max(len(label) for _, label in small.y_ticks)
    assert longest >= 6 and small.axis_x - 4 >= 7 * longest, "a digit is at most 7 units wide"
    assert small.lines[0].points[0].x > small.axis_x
    assert panel("reward", [PlotValue(1, 0.0), PlotValue(2, 1.0)]).axis_x == 44


def test_a_sparkline_shows_the_course_of_two_values_or_more_and_none_of_fewer():
    assert spark([]) == spark([1.0]) == spark([1.0, None, float("nan")]) == ""
    assert spark([0.0, None, 1.0]) == "M1.0 19.0 L83.0 1.0", "up is more; what is missing is left out"
    assert spark([2.0, 2.0]) == "M1.0 10.0 L83.0 10.0", "no change is a level line"
    assert spark([float(n) for n in range(1_000)]).endswith("L83.0 1.0"), "the last value is always drawn"
