import numpy as np
import pytest

from agent2.benchmarks.mini.tool_questions import careless_arguments, draw_question, right_share
from agent2.environments.tools.toolboxes import FUNCTIONS


@pytest.mark.parametrize("capability", [*sorted(FUNCTIONS), "order", "book"])
def test_a_question_names_every_argument_of_its_call(capability):
    rng = np.random.default_rng(0)
    for _ in range(20):
        question = draw_question(rng, capability)
        assert all(str(value) in question.text for value in question.arguments.values())


@pytest.mark.parametrize("capability", sorted(FUNCTIONS))
def test_careless_arguments_fit_the_function_and_are_not_the_right_ones(capability):
    rng = np.random.default_rng(1)
    for _ in range(20):
        arguments = draw_question(rng, capability).arguments
        careless = careless_arguments(arguments)
        assert careless != arguments
        FUNCTIONS[capability].run(FUNCTIONS[capability].spec.with_defaults(careless))


def test_the_share_of_a_feature_is_fixed_and_features_differ_around_the_mean():
    shares = {right_share(f"feature {index}", 0.5, 0.3) for index in range(50)}
    assert sorted(round(share, 6) for share in shares) == [0.2, 0.5, 0.8]
    assert right_share("a", 0.9, 0.3) == right_share("a", 0.9, 0.3) <= 1.0
