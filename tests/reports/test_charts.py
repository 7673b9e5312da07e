import re
import xml.etree.ElementTree as ET

import pytest
from matplotlib.font_manager import fontManager, get_font
from matplotlib.text import Text

from agent2.reports.charts import curves_svg, trajectory_svg
from agent2.reports.style import PAGE_COLOURS, choose_fonts, drawing, standalone
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
    labels_drawn = texts(trajectory_svg(make_evidence(submissions=submissions, final_submission=4)))
    for label in ("base model", "submission", "copy of the base", "refused or failed", "final on private", "deadline"):
        assert label in labels_drawn


def test_a_trial_without_submissions_still_has_a_figure():
    labels = texts(trajectory_svg(make_evidence(submissions=[])))
    assert "base model" in labels and "base on private items" in labels and "final" not in labels


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
    labels = texts(curves_svg(make_evidence(metrics=metrics)))
    assert "train_log.jsonl" in labels and "trainer_state" not in labels
    assert "trainer_state" in texts(curves_svg(make_evidence(metrics=make_metrics("out/trainer_state.json", rows))))


def test_a_deadline_that_is_far_off_is_told_in_words():
    assert "deadline at 10 minutes" in texts(trajectory_svg(make_evidence()))  # 150 of 600 seconds were used
    assert "deadline at" not in texts(trajectory_svg(make_evidence(ended_at=START + 500)))


def test_a_short_trial_is_told_in_seconds_and_its_deadline_in_minutes():
    labels = texts(trajectory_svg(make_evidence()))  # 150 of 600 seconds were used
    assert "seconds since the agent started" in labels and "deadline at 10 minutes" in labels
    long = texts(trajectory_svg(make_evidence(ended_at=START + 590)))
    assert "minutes since the agent started" in long


def test_a_figure_in_a_file_is_dark_on_white_whatever_the_viewer_prefers():
    svg = standalone(trajectory_svg(make_evidence()))
    assert "var(" not in svg and "background: #ffffff" in svg and "#1b1f24" in svg
    ET.fromstring(svg)


def logged_as(name):
    return make_evidence(metrics=make_metrics(name, [{"reward": 0.1}, {"reward": 0.2}]))


def installed_with(character):
    fonts = [font for font in fontManager.ttflist if not font.name.startswith("Last Resort")]
    return [font.name for font in fonts if ord(character) in get_font(font.fname).get_charmap()]


@pytest.mark.filterwarnings("error")
def test_a_label_in_any_script_is_drawn_without_a_warning_and_stays_text():
    """A character that no font has at all (an unassigned one) is named under the figure, and once."""
    svg = curves_svg(logged_as("训练/报告 학습 \U0003fffd.jsonl"))
    assert "训练/报告 학습 \U0003fffd.jsonl" in texts(svg)
    (note,) = re.findall(r"Drawn without a font for [^:]*:", texts(svg))
    assert "\U0003fffd" in note
    for character in "训학":
        assert (character in note) is not bool(installed_with(character))
    assert "Drawn without" not in texts(curves_svg(logged_as("logs/métrique ß.jsonl")))


def test_a_label_gets_an_installed_font_that_has_its_characters():
    """U+1D81 is in STIX, which matplotlib brings, and not in DejaVu Sans."""
    with drawing(3, 2) as figure:
        label = figure.text(0, 0, "run \u1d81")
        plain_label = figure.text(0, 0, "run é")
        before = plain_label.get_fontfamily()
        choose_fonts(figure)
        family = label.get_fontfamily()
        assert family[0] == "DejaVu Sans" and family[1] in installed_with("\u1d81")
        assert plain_label.get_fontfamily() == before
        assert len(figure.findobj(Text)) == 2, "nothing is lacking, so nothing is said"
