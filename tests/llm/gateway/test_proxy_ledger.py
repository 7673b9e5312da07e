import pytest

from agent2.llm.gateway.proxy import Charge, Ledger
from agent2.llm.gateway.settings import PriceTable, load_prices
from agent2.llm.records import TokenCounts
from gateway_fakes import PRICES

EMPTY = PriceTable(())


def tokens(n_input: int, n_output: int = 0) -> TokenCounts:
    return TokenCounts(input=n_input, output=n_output)


def test_what_is_reserved_cannot_be_taken_again_until_it_is_given_back():
    ledger = Ledger(1000, None, EMPTY)
    first = Charge(tokens(300, 300), None)
    assert ledger.refusal(first, alone=False) is None
    ledger.reserve(1, first)
    assert "600 are used" in ledger.refusal(first, alone=False)
    assert ledger.refusal(first, alone=True) is None
    ledger.settle(1, Charge(tokens(100, 100), None))
    assert ledger.refusal(first, alone=False) is None
    ledger.add(Charge(tokens(201), None))
    assert "401 are used, and this call may need 600" in ledger.refusal(first, alone=True)


def test_a_call_that_needed_more_than_reserved_is_charged_what_it_needed():
    ledger = Ledger(1000, None, EMPTY)
    ledger.reserve(1, Charge(tokens(10), None))
    ledger.settle(1, Charge(tokens(990), None))
    assert ledger.refusal(Charge(tokens(11), None), alone=True) is not None
    assert ledger.refusal(Charge(tokens(10), None), alone=True) is None


def test_the_first_estimate_is_half_a_token_a_byte_and_later_ones_follow_what_was_seen():
    ledger = Ledger(None, None, EMPTY)
    assert ledger.estimate("m", 10_000, 50).tokens == tokens(5_000, 50)
    ledger.learn(8_000, 2_000)
    assert ledger.estimate("m", 10_000, 50).tokens == tokens(3_750, 50)
    ledger.learn(8_000, 1_000)
    assert ledger.estimate("m", 10_000, 50).tokens == tokens(3_750, 50), "the most that was seen counts"
    ledger.learn(100, 100)
    assert ledger.estimate("m", 10_000, 50).tokens == tokens(3_750, 50), "small requests say nothing"
    ledger.learn(8_000, 7_900)
    assert ledger.estimate("m", 10_000, 50).tokens == tokens(10_000, 50), "never more than a token a byte"


def test_dollars_are_reserved_and_charged(tmp_path):
    (tmp_path / "p.yaml").write_text(PRICES)
    ledger = Ledger(None, 0.02, load_prices(tmp_path / "p.yaml"))
    charge = ledger.estimate("priced", 2_000, 1_000)
    assert charge.dollars == pytest.approx(0.011)
    ledger.reserve(1, charge)
    assert "$0.0110 are used" in ledger.refusal(charge, alone=False)
    ledger.settle(1, Charge(tokens(0), 0.001))
    assert ledger.refusal(charge, alone=False) is None
