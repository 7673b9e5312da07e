"""Equal rollouts in another order, as an interrupted evaluation leaves them, give the same evidence to the last bit."""

import random

import msgspec

from agent2.analysis.regress import regress
from agent2.cards.comparability import find_cards
from agent2.contract.measures import CardPaths, evidence_from_cards
from agent2.contract.metrics import MetricSpec, Role, Unit
from contract_card_builders import make_scored, write_card

METRICS = [
    MetricSpec(name="score", benchmark="b", role=Role.PRIMARY),
    MetricSpec(name="quality", benchmark="b", measure="view:quality", unit=Unit.NUMBER),
    MetricSpec(name="share", benchmark="b", measure="ratio:part/quality", unit=Unit.NUMBER),
    MetricSpec(name="calls", benchmark="b", measure="tool_calls_successful", unit=Unit.COUNT),
]


def records(seed):
    chance = random.Random(seed)
    return [
        make_scored(
            f"i{item:02}",
            float(chance.random() < 0.5),
            attempt=attempt,
            text=f"answer {attempt}",
            views={"quality": chance.random(), "part": chance.random(), "tool_calls": chance.random()},
        )
        for item in range(30)
        for attempt in range(3)
    ]


def read(folder, seed, *, shuffled):
    sides = []
    for name in ("old", "new"):
        rows = records(f"{name}{seed}")
        if shuffled:
            random.Random(seed + 1).shuffle(rows)
        sides.append(write_card(folder / name / "b", rows, name, attempts=3))
    evidence = evidence_from_cards(METRICS, CardPaths({"b": sides[0]}, {"b": sides[1]}))
    return msgspec.json.encode([evidence, regress(find_cards(sides[0]), find_cards(sides[1]))])


def test_the_order_in_which_rollouts_finished_changes_nothing(tmp_path):
    for seed in range(5):
        as_planned = read(tmp_path / f"planned-{seed}", seed, shuffled=False)
        assert read(tmp_path / f"shuffled-{seed}", seed, shuffled=True) == as_planned
