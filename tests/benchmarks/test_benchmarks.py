import pytest

from agent2.benchmarks import BENCHMARKS, load_benchmark
from agent2.errors import ConfigError


@pytest.mark.parametrize("name", list(BENCHMARKS))
def test_every_name_in_the_table_loads_a_benchmark_of_that_name(name):
    assert load_benchmark(name).name == name


def test_an_unknown_name_is_refused_with_the_nearest_one():
    with pytest.raises(ConfigError, match=r"unknown benchmark 'arithmetics'; did you mean 'arithmetic'\?"):
        load_benchmark("arithmetics")
