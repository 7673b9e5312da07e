import re
import xml.etree.ElementTree as ET

from agent2.reports.charts import PAGE_COLOURS, curves_svg, trajectory_svg
from builders import START, make_evidence, make_metrics, make_rejected, make_submission


def texts(svg):
    return " ".join("".join(node.itertext()) for node in ET.fromstring(svg).iter() if node.tag.endswith("}text"))


def test_the_trajectory_names_everything_it_shows():
    submissions = [
        make_submission(1, at=60, score=0.4),
        make_submission(2, at=90, score=0.3, is_base_copy=True),
        make_rejected(3, "empty folder", at=120),
        make_submission(4, at=140, score=0.6),
    ]
    shown = texts(trajectory_svg(make_evidence(submissions=submissions, final_submission=4)))
    for label in ("base model", "submission", "copy of the base", "refused or failed", "final on private", "deadline"):
        assert label in shown


def test_a_trial_without_submissions_still_has_a_figure():
    shown = texts(trajectory_svg(make_evidence(submissions=[])))
    assert "base model" in shown and "base on private items" in shown and "final" not in shown


def test_figures_take_their_colours_from_the_page_and_stand_alone():
    svg = trajectory_svg(make_evidence())
    assert "var(--ink, #" in svg and "var(--blue, #" in svg
    assert not any(stand_in in svg for stand_in in PAGE_COLOURS)
    assert 'xmlns="http://www.w3.org/2000/svg"' in svg
    assert "<metadata" not in svg


def test_equal_evidence_gives_equal_bytes():
    assert trajectory_svg(make_evidence()) == trajectory_svg(make_evidence())


def test_ids_of_two_figures_do_not_collide():
    evidence = make_evidence()
    ids = [set(re.findall(r'\bid="([^"]+)"', svg)) for svg in (trajectory_svg(evidence), curves_svg(evidence))]
    assert ids[0] and ids[1] and not ids[0] & ids[1]
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', trajectory_svg(evidence)))
    assert used <= ids[0]


def test_a_hostile_file_name_is_text_in_the_curve():
    metrics = make_metrics("<script>alert(1)</script>$x_{2}$.jsonl", [{"reward": 0.1}, {"reward": 0.2}])
    svg = curves_svg(make_evidence(metrics=metrics))
    assert "<script" not in svg
    assert "<script>alert(1)</script>$x_{2}$" in texts(svg)


def test_without_training_metrics_there_is_no_curve():
    assert curves_svg(make_evidence(metrics=[])) is None


def test_a_trainers_second_copy_of_a_log_is_not_drawn():
    rows = [{"reward": 0.1}, {"reward": 0.2}]
    metrics = make_metrics("out/train_log.jsonl", rows) + make_metrics("out/trainer_state.json", rows)
    shown = texts(curves_svg(make_evidence(metrics=metrics)))
    assert "train_log.jsonl" in shown and "trainer_state" not in shown
    assert "trainer_state" in texts(curves_svg(make_evidence(metrics=make_metrics("out/trainer_state.json", rows))))


def test_a_deadline_that_is_far_off_is_told_in_words():
    assert "deadline at 10 minutes" in texts(trajectory_svg(make_evidence()))  # 150 of 600 seconds were used
    assert "deadline at" not in texts(trajectory_svg(make_evidence(ended_at=START + 500)))


def test_a_short_trial_is_told_in_seconds_and_its_deadline_in_minutes():
    shown = texts(trajectory_svg(make_evidence()))  # 150 of 600 seconds were used
    assert "seconds since the agent started" in shown and "deadline at 10 minutes" in shown
    long = texts(trajectory_svg(make_evidence(ended_at=START + 590)))
    assert "minutes since the agent started" in long
