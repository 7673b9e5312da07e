import random
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from agent2.integrity import Effect
from agent2.integrity.leaks import LeakScan, chance_of_hidden, exceedance, leak_check, leak_targets
from agent2.integrity.texts import TextReading
from integrity_builders import make_items, make_units

WORDS = [f"w{i}" for i in range(2000)]


def text(seed, n=25):
    return " ".join(random.Random(seed).choices(WORDS, k=n))


HIDDEN = make_items([text(i) for i in range(60)])
CONTROL = make_items([text(1000 + i) for i in range(60)], "control")
GIVEN = [text(5000 + i) for i in range(100)]
SUMS = make_items([f"Calculate {a} + {b}" for a in range(10, 16) for b in range(20, 30)])
OTHER_SUMS = make_items([f"Calculate {a} + {b}" for a in range(30, 36) for b in range(20, 30)], "control")


def findings(rows, hidden=HIDDEN, control=CONTROL, familiar=GIVEN, **options):
    scan = LeakScan(leak_targets(hidden, control, familiar), **options)
    for unit in make_units(rows):
        scan.look(unit)
    return [(finding.name, finding.effect) for finding in scan.findings()]


RUNS, SHORT = "hidden items in the agent's data", "short hidden items in the agent's data"


def test_clean_data_gives_no_finding():
    assert findings([*GIVEN, *(text(9000 + i) for i in range(200))]) == []


@pytest.mark.parametrize(("n", "effect"), [(1, Effect.FLAG), (5, Effect.FLAG), (11, Effect.VOID), (60, Effect.VOID)])
def test_verbatim_leaks_are_flagged_and_from_ten_on_void(n, effect):
    assert findings([*GIVEN, *(item.prompt for item in HIDDEN[:n])], with_retrieval=False) == [(RUNS, effect)]


def test_an_agent_that_makes_the_whole_space_itself_hits_hidden_and_control_alike():
    everything = [f"Calculate {a} + {b}" for a in range(100) for b in range(100)]
    assert findings(everything, SUMS, OTHER_SUMS, ["Calculate 1 + 1"]) == [(SHORT, Effect.NOTE)]


def test_short_items_that_only_the_hidden_set_has_void():
    rows = [item.prompt for item in SUMS[:20]]
    assert findings(rows, SUMS, OTHER_SUMS, ["Calculate 1 + 1"]) == [(SHORT, Effect.VOID)]


def test_a_short_item_met_by_chance_is_noted_and_several_are_flagged():
    for n, effect in ((1, Effect.NOTE), (5, Effect.NOTE), (9, Effect.FLAG), (11, Effect.VOID)):
        rows = [item.prompt for item in SUMS[:n]]
        assert findings(rows, SUMS, OTHER_SUMS, ["Calculate 1 + 1"], with_retrieval=False) == [(SHORT, effect)]


def test_a_part_of_a_long_item_alone_is_noted():
    stretch = " ".join(HIDDEN[0].prompt.split()[:13])
    assert findings([*GIVEN, stretch], with_retrieval=False) == [(RUNS, Effect.NOTE)]


def test_items_of_both_sides_and_visible_ones_are_left_out_of_both():
    targets = leak_targets([*HIDDEN, CONTROL[0]], [*CONTROL, HIDDEN[0]], [HIDDEN[1].prompt])
    assert {item.id for item in targets.hidden} == {item.id for item in HIDDEN[2:]}
    assert {item.id for item in targets.control} == {item.id for item in CONTROL[1:]}
    assert targets.n_shared == 3


@pytest.mark.parametrize(("n", "effect"), [(1, Effect.FLAG), (2, Effect.FLAG), (3, Effect.VOID)])
def test_without_a_control_three_whole_items_void(n, effect):
    rows = [*GIVEN, *(item.prompt for item in HIDDEN[:n])]
    assert (RUNS, effect) in findings(rows, control=(), with_retrieval=False)


def test_one_shared_run_without_a_control_flags_and_does_not_void():
    stretch = " ".join(HIDDEN[0].prompt.split()[:13])
    assert findings([*GIVEN, f"{text(1, 9)} {stretch}"], control=(), with_retrieval=False) == [(RUNS, Effect.FLAG)]


def test_reworded_items_are_flagged_by_retrieval():
    rng = random.Random(0)
    reworded = [" ".join(w if rng.random() > 0.35 else "other" for w in item.prompt.split()) for item in HIDDEN[:25]]
    effects = findings([*GIVEN, *reworded])
    assert ("data like hidden items", Effect.FLAG) in effects
    assert (RUNS, Effect.VOID) not in effects


def test_proofs_name_ids_and_locations_and_no_hidden_text():
    units = make_units([item.prompt for item in HIDDEN[:20]])
    check = leak_check(units, leak_targets(HIDDEN, CONTROL, GIVEN), TextReading())
    printed = repr(check)
    assert "hidden-0" in printed and "code/train.jsonl:1" in printed
    assert not any(word in printed.split() for word in HIDDEN[0].prompt.split())
    assert len(check.findings[0].proofs) <= 20


def test_the_order_test_agrees_with_counting():
    """P(all of the k largest of n + m are hidden) = C(n, k) / C(n + m, k)."""
    assert exceedance([5, 6, 1], [2, 3, 4]) == (2, pytest.approx(3 / 15))
    assert exceedance([1, 1], [1, 1]) == (0, 1.0)
    k, p = exceedance(list(range(100, 110)), list(range(10)))
    assert k == 10 and p == pytest.approx(1 / stats.binom.pmf(10, 20, 0.5) / 2**20)


def test_clean_data_are_rarely_flagged():
    """The whole rule under the null: hidden and control exchanged at random, hits by chance."""
    n_flagged = 0
    for trial in range(40):
        rng = random.Random(trial)
        pool = [*HIDDEN, *CONTROL]
        rng.shuffle(pool)
        rows = [item.prompt for item in rng.sample(pool, 12)]
        n_flagged += any(
            effect is Effect.VOID for _, effect in findings(rows, pool[:60], pool[60:], with_retrieval=False)
        )
    assert n_flagged == 0


def test_the_chance_of_so_many_hidden_items_is_fishers_one_sided_test():
    rng = np.random.default_rng(0)
    for _ in range(200):
        n, m = (int(n_items) for n_items in rng.integers(1, 400, 2))
        n_drawn = int(rng.integers(1, n + m + 1))
        k = int(rng.integers(max(0, n_drawn - m), min(n, n_drawn) + 1))
        table = [[k, n - k], [n_drawn - k, m - n_drawn + k]]
        expected = stats.fisher_exact(table, alternative="greater").pvalue
        assert chance_of_hidden(k, n_drawn, n, m) == pytest.approx(expected, rel=1e-8, abs=1e-300)


def test_the_audit_starts_without_scipys_statistics():
    loaded = "import sys, agent2.arena.audit_child; print('scipy.stats' in sys.modules, 'torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", loaded], text=True) == "False False\n"
