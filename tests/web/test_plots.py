"""Panels and histograms of the app's own pages."""

from agent2.web.plots import PlotValue, histogram, panel


def test_a_panel_breaks_its_line_at_a_missing_value_and_bins_hold_every_value():
    values = [PlotValue(0, 1.0), PlotValue(1, None), PlotValue(2, float("nan")), PlotValue(3, 3.0, (2.0, 4.0))]
    drawing = panel("p", values, marks=[(2.0, "here")])
    assert len(drawing.points) == 2 and drawing.path.count("M") == 2 and "L" not in drawing.path
    assert drawing.points[1].arm[0] > drawing.points[1].y > drawing.points[1].arm[1], "up is more"
    assert drawing.points[0].x < drawing.marks[0][0] < drawing.points[1].x
    assert panel("none", []).points == () and len(panel("one", [PlotValue(5, 0.0)]).y_ticks) >= 2
    many = panel("many", [PlotValue(place, place) for place in range(5_001)])
    assert len(many.points) <= 402 and many.points[-1].tooltip.startswith("5000")
    tenths = histogram([place / 10 for place in range(25)])
    assert [tenth_bin.n for tenth_bin in tenths] == [2] * 11 + [3], "a value on an edge is in the range that it begins"
    bins = histogram([place / 7 for place in range(100)])
    assert (
        sum(seventh_bin.n for seventh_bin in bins) == 100
        and len(bins) == 12
        and max(seventh_bin.share for seventh_bin in bins) == 100
    )
