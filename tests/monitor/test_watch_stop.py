from agent2.monitor.signals import Danger
from agent2.monitor.watch import stop_at
from monitor.test_detectors_episodes import healthy, signals, with_change


def collapsing():
    return with_change("unterminated_share", lambda value, since: min(0.6, value + 0.05 * since))


def first_stop(stop, rows):
    return next(((row["step"], reason) for row in rows if (reason := stop(row)) is not None), None)


def test_a_run_is_stopped_where_the_log_shows_the_danger_first():
    signal = signals(collapsing())[Danger.FORMAT_COLLAPSE]
    rows = [{**row, "phase": "grpo"} for row in collapsing()]
    assert first_stop(stop_at(Danger.FORMAT_COLLAPSE), rows) == (
        signal.step,
        f"format_collapse: {signal.evidence}",
    )


def test_only_the_dangers_that_were_named_stop_a_run():
    assert first_stop(stop_at(Danger.POLICY_DRIFT), collapsing()) is None


def test_a_healthy_run_is_not_stopped():
    assert first_stop(stop_at(*Danger), healthy()) is None


def test_each_watch_knows_only_its_own_run():
    before, after = collapsing()[:15], collapsing()[30:]
    assert first_stop(stop_at(Danger.FORMAT_COLLAPSE), after) is None
    assert first_stop(stop_at(Danger.FORMAT_COLLAPSE), before + after) is not None
