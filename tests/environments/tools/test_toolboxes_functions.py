import numpy as np
import pytest

from agent2.benchmarks.mini.tool_questions import draw_arguments
from agent2.environments.tools.toolboxes import FUNCTIONS
from agent2.environments.tools.world import ToolRefusal


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_gives_one_result_for_arguments_that_fit(name):
    function = FUNCTIONS[name]
    rng = np.random.default_rng(0)
    for _ in range(30):
        arguments = draw_arguments(rng, name)
        assert function.spec.problem_with(arguments) is None
        complete = function.spec.with_defaults(arguments)
        assert function.run(complete) == function.run(complete)


def test_distance_and_area_do_not_mind_the_order_of_their_arguments():
    distance, area = FUNCTIONS["distance"].run, FUNCTIONS["area"].run
    assert distance({"start": "Oslo", "end": "Rome"}) == distance({"start": "Rome", "end": "Oslo"}) == 8
    assert area({"width": 3, "height": 7}) == area({"width": 7, "height": 3}) == 21


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("price", {"item": "sofa", "count": 1}),
        ("weather", {"city": "Oslo", "day": "never"}),
        ("hour", {"city": "Ur", "later": 1}),
    ],
)
def test_an_unknown_entity_is_refused(name, arguments):
    with pytest.raises(ToolRefusal, match="no "):
        FUNCTIONS[name].run(arguments)
