from dataclasses import replace
from itertools import combinations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

import monitor_builders
from agent2.contract.suite_files import load_suite
from agent2.monitor.readers import read_log
from agent2.monitor.signals import Danger, MonitoredRun, MonitorSettings, Signal
from agent2.monitor.watch import Rules, verdict, watch
from agent2.reports.monitor_pages import draw_panel, monitor_svg, panel_svgs, write_monitor_report
from agent2.reports.style import drawing


def watched(tmp_path, rows):
    log = read_log(monitor_builders.write_jsonl(tmp_path / "log.jsonl", rows))
    return watch(MonitoredRun(log, MonitorSettings(), ["gsm8k_exact_match"]))


def overlaps(figure):
    """Pairs of labels whose boxes share more than a sliver, as drawn."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    labels = [t for t in figure.findobj(Text) if t.get_text().strip() and t.get_visible()]
    boxes = [(label.get_text(), label.get_window_extent(renderer).padded(-1)) for label in labels]
    inside = [(text, box) for text, box in boxes if figure.bbox.overlaps(box)]
    return [(a, b) for (a, box_a), (b, box_b) in combinations(inside, 2) if box_a.overlaps(box_b)]


def crowd(series):
    """Four dangers of one series, raised at steps so close that marks beside their lines would cover each other."""
    names = (Danger.REWARD_BENCHMARK_DIVERGENCE, Danger.LOOPHOLE, Danger.WIN_RATE_AT_A_PRICE, Danger.KL_SPIKE)
    return [Signal(danger, 200 + 2 * k, [series], "seen", "look") for k, danger in enumerate(names)]


@pytest.mark.parametrize("rows", ["kl_spike", "entropy_collapse", "length_inflation", "reward_up_benchmark_down"])
def test_no_label_of_a_panel_covers_another_or_the_curve(tmp_path, rows):
    run_watch = watched(tmp_path, getattr(monitor_builders, rows)())
    assert run_watch.signals
    crowded = replace(run_watch, signals=crowd("reward"))
    for shown_watch, name in ((run_watch, run_watch.signals[0].series[0]), (crowded, "reward")):
        with drawing(3.3, 2.6) as figure:
            axes = figure.subplots()
            draw_panel(axes, shown_watch.log.series[name], shown_watch)
            assert overlaps(figure) == []
            labels = list(axes.texts)
            assert len(labels) == sum(name in signal.series for signal in shown_watch.signals)
            plot = axes.get_window_extent()
            assert all(label.get_window_extent().y0 >= plot.y1 for label in labels), "names stand above the curve"


def test_the_overlap_check_sees_labels_that_cover_each_other():
    with drawing(3.3, 2.0) as figure:
        axes = figure.subplots()
        axes.text(0.5, 0.5, "kl spike")
        axes.text(0.52, 0.5, "loophole")
        assert overlaps(figure) == [("kl spike", "loophole")]


def test_the_page_has_one_figure_for_each_series_and_names_each_danger_with_its_step(tmp_path):
    run_watch = watched(tmp_path, monitor_builders.entropy_collapse())
    rules_of = load_suite("llm_core_regression_v1")
    rules = Rules(rules_of.metrics, rules_of.gates, MonitorSettings())
    paths = write_monitor_report(
        run_watch, verdict(run_watch.log, run_watch.signals, rules), None, "suite", tmp_path / "out"
    )
    html = paths.html.read_text()
    assert html.count("<svg") == len(run_watch.log.series) == len(panel_svgs(run_watch))
    (signal,) = run_watch.signals
    assert f"{signal.step}: entropy collapse" in html
    assert "var(" not in paths.figure.read_text() and "entropy collapse" in monitor_svg(run_watch)
