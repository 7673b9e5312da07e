import pytest

from agent2.errors import ConfigError
from agent2.llm.gateway.settings import load_prices
from agent2.llm.records import TokenCounts

FILE = """\
date: 2026-01-01
models:
  m: {input: 1, output: 10, cached_input: 0.1, cache_write: 1.25, cache_write_1h: 2, source: here}
  m-mini: {input: 0.5, output: 2, source: here, read: 2025-05-05}
  long: {input: 1, output: 2, source: here, long: {above: 1000, input: 2, output: 3, cached_input: 0.5}}
"""


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "prices.yaml"
    path.write_text(FILE)
    return load_prices(path)


def test_each_kind_of_token_has_its_price(table):
    tokens = TokenCounts(input=1000, output=100, cached_input=200, cache_write=300, cache_write_1h=100, reasoning=50)
    assert table.cost("m", tokens) == pytest.approx((400 * 1 + 200 * 0.1 + 300 * 1.25 + 100 * 2 + 100 * 10) / 1e6)
    assert table.cost("m-mini", tokens) == pytest.approx((1000 * 0.5 + 100 * 2) / 1e6)


def test_a_provider_that_counts_more_cached_tokens_than_tokens_gives_no_money_back(table):
    assert table.cost("m", TokenCounts(input=10, cached_input=1000)) == pytest.approx(1000 * 0.1 / 1e6)


def test_a_long_call_has_the_rates_of_long_calls_from_its_first_token(table):
    assert table.cost("long", TokenCounts(input=1000, output=10)) == pytest.approx((1000 + 20) / 1e6)
    tokens = TokenCounts(input=1001, output=10, cached_input=1)
    assert table.cost("long", tokens) == pytest.approx((2000 + 0.5 + 30) / 1e6)


def test_a_dated_name_has_the_price_of_its_model_and_another_model_has_none(table):
    assert table.find("m-20260101") is table.find("m-2026-01-01") is table.find("m-latest") is table.find("m")
    assert table.find("models/m") is table.find("m")
    assert table.find("m-mini") is not table.find("m")
    assert table.cost("m-large", TokenCounts(input=1)) is None
    assert table.cost("org/m", TokenCounts(input=1)) is None


def test_every_packaged_price_says_where_it_was_read_and_is_plausible():
    (packaged,) = load_prices().files
    assert packaged.models
    for name, price in packaged.models.items():
        assert price.source, name
        assert 0 < price.input < price.output < 1000, name
        assert price.cached_input is None or price.cached_input < price.input, name
        assert price.cache_write is None or price.cache_write > price.input, name
        assert price.long is None or price.long.input > price.input, name


def test_a_bad_price_file_is_refused_with_its_line(tmp_path):
    path = tmp_path / "prices.yaml"
    path.write_text(FILE.replace("cached_input: 0.1", "cached: 0.1"))
    with pytest.raises(ConfigError, match=r"prices\.yaml:3.*did you mean 'cached_input'"):
        load_prices(path)
