import pytest

from agent2.arena.analysis.stages import read_design
from builders import DESIGN


def test_a_complete_design_names_its_algorithm():
    design, problems = read_design({**DESIGN, "algorithm": "SFT warm-up, then GRPO/DPO", "notes": "own key"})
    assert problems == ()
    assert [a.name for a in design.named_algorithms()] == ["SFT", "GRPO", "DPO"]
    warmed = design.model_copy(update={"algorithm": "GRPO, online over episodes, after a short SFT warm-up"})
    assert [a.name for a in warmed.named_algorithms()] == ["SFT", "GRPO"]


@pytest.mark.parametrize("part", sorted(DESIGN))
def test_each_part_is_required(part):
    design, problems = read_design({key: value for key, value in DESIGN.items() if key != part})
    assert design is None and problems == (f"{part} is missing",)


@pytest.mark.parametrize(("part", "empty"), [("algorithm", "  "), ("hyperparameters", {}), ("data_preprocessing", [])])
def test_an_empty_part_says_nothing(part, empty):
    design, problems = read_design({**DESIGN, part: empty})
    assert design is None and part in problems[0]


def test_a_part_of_the_wrong_kind_is_named():
    _, problems = read_design({**DESIGN, "hyperparameters": "lr 1e-4"})
    assert problems == ("hyperparameters is a str that cannot be read",)


def test_no_design_is_said():
    assert "missing" in read_design(None)[1][0]
