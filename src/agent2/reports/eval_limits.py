"""What the numbers of an evaluation do not cover, one sentence each, from what was and was not done."""

from agent2.benchmarks import BENCHMARKS, READS_FILES
from agent2.contract.findings import GateState
from agent2.contract.metrics import MetricSpec
from agent2.evaluation.outcome import SuiteOutcome
from agent2.evaluation.suite_folder import SIDES
from agent2.records import Split


def limits_of_numbers(outcome: SuiteOutcome) -> list[str]:
    """The sentences, the most general first."""
    found = [_split_words(outcome.identity.split)]
    embedded = [one.name for one in outcome.benchmarks if one.name in BENCHMARKS and one.name not in READS_FILES]
    if embedded:
        found.append(
            f"{', '.join(embedded)}: small embedded stand-ins with generated items; nothing here compares with scores "
            "on the published benchmarks of that kind"
        )
    if len({side.digest for side in outcome.identity.sides.values()}) == 1:
        found.append("both sides are the same checkpoint: what differs is the luck of the draw")
    found.append(
        "one checkpoint of one training run: how far another seed of the same training would land is not measured"
    )
    if any(one.protocols[side].attempts == 1 and _is_drawn(outcome) for one in outcome.benchmarks for side in SIDES):
        found.append(
            "one attempt an item, drawn at a temperature: the luck of the draw is in the intervals, and not told apart "
            "from the choice of items"
        )
    found += [
        f"{metric.name}: not measured here ({_why(metric)})"
        for metric in outcome.suite.metrics
        if metric.name not in outcome.evidence.metrics
    ]
    n_evaluated = sum(one.state is not GateState.NOT_EVALUATED for one in outcome.decision.findings)
    if n_evaluated > 1:
        found.append(
            f"{n_evaluated} gates were evaluated, each at its own level; that one of them fires by "
            "chance is likelier than for one alone"
        )
    found.append("seconds, hardware and library versions are on the cards and in lock.json, not here")
    found += [caveat for side in SIDES for caveat in outcome.identity.sides[side].caveats]
    return list(dict.fromkeys(found))


def _split_words(split: str) -> str:
    if split == Split.TEST_PRIVATE:
        return "private items: every further look at them makes them worth less; the access log has this one"
    if split == Split.TEST_PUBLIC:
        return "public test items: good for trends; a release rests on private ones"
    return "dev items, which everybody may see and train towards: no ground for a release"


def _is_drawn(outcome: SuiteOutcome) -> bool:
    return outcome.suite.protocol.sampling.temperature > 0


def _why(metric: MetricSpec) -> str:
    return "it belongs to no benchmark" if metric.benchmark is None else f"nothing of {metric.benchmark} gives it"
