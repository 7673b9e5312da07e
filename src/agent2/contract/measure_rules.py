"""What a measure reads from one scored rollout, by its name.

    score                  the counted score (reporting rule applied)
    pass_at:<k>            chance that one of k attempts is right (scores 0 or 1)
    view:<name>            a further number of the scorer
    any:<name>             1 if that number is above 0, else 0: a rate out of a count
    not:<name>             1 minus that number
    label_rate:<label>     1 if the scorer gave the badcase class, else 0
    detected:<class>       1 if a detector finds the class in the text (`scorers.failure_detectors`), else 0
    ratio:<name>/<name>    sum of one view over sum of another
    completion_tokens, prompt_tokens, tokens, turns, retries
    <measure>_successful   the same over rollouts that succeeded (score 1); `tool_calls_successful` reads a view
    process:<name>         a statistic of the way of working (`scorers.process`), or 1 if that step rule is broken
    process:<verdicts>     what a step judge's verdicts say: step_points, judged_waste or any_harmful_step
    win_rate               share of the pairs in which a judge prefers the checkpoint's answer to the baseline's
    win_rate:length_controlled   the same, if both answers were equally long
    cost_to_success        all tokens over the number of successes
    reported               no rollout has it: only a report can give it

A number that a rollout lacks is None; a rollout with a fault that is not the model's has no numbers at all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent2.errors import ConfigError, Fault, nearest_name, unknown_name
from agent2.records import ScoredRollout
from agent2.scorers.failure_detectors import DETECTORS, is_detected
from agent2.scorers.process.rules import STATISTICS, StepRule

RolloutNumber = Callable[[ScoredRollout, float | None], float | None]
"""The rollout and its counted score -> a number, None if it has none."""
SUCCESS = 1.0
"""Score of a rollout that succeeded; a lower one is no success."""
SUCCESSFUL = "_successful"
REPORTED = "reported"
STEP_VIEWS = ("step_points", "judged_waste", "any_harmful_step")
"""Measures of the process that rest on a step judge: views of the same names (`evaluation.step_judging`)."""
WIN_RATE, LENGTH_CONTROLLED = "win_rate", "win_rate:length_controlled"


def _count(n: int | None) -> float | None:
    return None if n is None else float(n)


PLAIN_MEASURES: dict[str, RolloutNumber] = {
    "score": lambda record, score: score,
    "completion_tokens": lambda record, score: _count(record.rollout.usage.completion_tokens),
    "prompt_tokens": lambda record, score: _count(record.rollout.usage.prompt_tokens),
    "tokens": lambda record, score: _count(record.rollout.usage.tokens),
    "turns": lambda record, score: float(len(record.rollout.turns)),
    "retries": lambda record, score: float(record.rollout.retries),
}
PROCESS = "process"
DETECTED = "detected"
PREFIXES = ("view", "any", "not", "label_rate", DETECTED, "ratio", "pass_at", PROCESS)


@dataclass(frozen=True, slots=True)
class MeasureRule:
    """How rollouts become one number."""

    name: str
    number: RolloutNumber
    whole: RolloutNumber | None = None
    """With it, the value is sum of numbers over sum of wholes; without, the mean over items of means over attempts."""
    only_successful: bool = False
    attempts: int | None = None
    """k of pass_at."""
    views: tuple[str, ...] = ()
    """Names that scores must carry for the measure to exist."""
    label: str | None = None
    of_process: str | None = None
    """Statistic or step rule of the way of working, which `contract.measures` knows how to compute, or one of
    `STEP_VIEWS`."""
    is_reported: bool = False
    """No rollout has the number; only a report can give it."""
    is_preference: bool = False
    """It is of a judgement of both sides (`contract.preferences`)."""
    is_length_controlled: bool = False

    @property
    def is_paired(self) -> bool:
        """Every item has a value of its own on each side, so differences are taken item by item."""
        return self.whole is None and not self.only_successful


def parse_measure(name: str, where: str = "", step_rules: Sequence[StepRule] | None = None) -> MeasureRule:
    """The rule behind a name. Raises ConfigError naming the nearest known one.

    step_rules: those of the suite, among which a measure of the process has to be; None: any name is taken.
    """
    prefix, colon, argument = name.partition(":")
    if prefix == PROCESS and argument:
        return _of_process(name, argument, where, step_rules)
    if colon and prefix in PREFIXES and argument:
        return _prefixed(name, prefix, argument, where)
    if name == "cost_to_success":
        return MeasureRule(name, PLAIN_MEASURES["tokens"], whole=_verdict)
    if name in PLAIN_MEASURES:
        return MeasureRule(name, PLAIN_MEASURES[name])
    if name == REPORTED:
        return MeasureRule(name, lambda record, score: None, is_reported=True)
    if name in (WIN_RATE, LENGTH_CONTROLLED):
        is_controlled = name == LENGTH_CONTROLLED
        return MeasureRule(name, lambda record, score: None, is_preference=True, is_length_controlled=is_controlled)
    inner = name.removesuffix(SUCCESSFUL)
    if inner != name and inner in PLAIN_MEASURES:
        return MeasureRule(name, PLAIN_MEASURES[inner], only_successful=True)
    if inner != name and inner == "tool_calls":
        return MeasureRule(name, _view(inner), only_successful=True, views=(inner,))
    names = [
        *PLAIN_MEASURES,
        REPORTED,
        WIN_RATE,
        LENGTH_CONTROLLED,
        "cost_to_success",
        f"tool_calls{SUCCESSFUL}",
        *(f"{prefix}:<name>" for prefix in PREFIXES),
    ]
    raise unknown_name("measure", name, names, where)


def number_of(rule: MeasureRule, record: ScoredRollout, score: float | None) -> tuple[float, float] | None:
    """(number, whole) of one rollout that did not break; whole is 1 for a mean. None: it has no such number.

    score: as counted under the card's reporting rule.
    """
    number = rule.number(record, score)
    whole = 1.0 if rule.whole is None else rule.whole(record, score)
    return None if number is None or whole is None else (number, whole)


def is_left_out(rule: MeasureRule, score: float | None) -> bool:
    """Whether a measure skips a rollout with that score: it failed, and only successes are measured."""
    return rule.only_successful and score is not None and score < SUCCESS


def is_broken(record: ScoredRollout) -> bool:
    """Whether a fault other than the model's occurred: environment, judge, infrastructure or submitter."""
    return any(fault not in (None, Fault.MODEL) for fault in (record.rollout.fault, record.score.fault))


def nearest_view(name: str, views: list[str]) -> str:
    """A clause about a view that no rollout has: the nearest of its views, else all of them."""
    near = nearest_name(name, views)
    return (
        f"did you mean {near!r}?" if near is not None else f"its scores have {', '.join(sorted(views)) or 'no views'}"
    )


def _prefixed(name: str, prefix: str, argument: str, where: str) -> MeasureRule:
    if prefix == "label_rate":
        return MeasureRule(name, lambda record, score: float(argument in record.score.labels), label=argument)
    if prefix == DETECTED:
        if argument not in DETECTORS:
            raise unknown_name("measure", name, [f"{DETECTED}:{failure}" for failure in DETECTORS], where)
        return MeasureRule(name, lambda record, score: float(is_detected(argument, record)))
    if prefix == "pass_at":
        if not argument.isdigit() or int(argument) < 1:
            raise ConfigError(f"{where or 'measure'}: {name!r}: k must be a whole number from 1 up, pass_at:8")
        return MeasureRule(name, _verdict, attempts=int(argument))
    if prefix == "ratio":
        part, slash, whole = argument.partition("/")
        if not (part and slash and whole):
            raise ConfigError(f"{where or 'measure'}: {name!r}: write it as ratio:<view>/<view>")
        return MeasureRule(name, _view(part), whole=_view(whole), views=(part, whole))
    view = _view(argument)
    if prefix == "any":
        return MeasureRule(name, _applied(view, lambda value: float(value > 0)), views=(argument,))
    if prefix == "not":
        return MeasureRule(name, _applied(view, lambda value: 1.0 - value), views=(argument,))
    return MeasureRule(name, view, views=(argument,))


def _of_process(name: str, argument: str, where: str, step_rules: Sequence[StepRule] | None) -> MeasureRule:
    if step_rules is not None:
        names = [*STATISTICS, *STEP_VIEWS, *(rule.name for rule in step_rules)]
        if argument not in names:
            raise unknown_name("measure", name, [f"{PROCESS}:{statistic}" for statistic in names], where)
    if argument in STEP_VIEWS:
        return MeasureRule(name, _view(argument), of_process=argument)
    return MeasureRule(name, lambda record, score: None, of_process=argument)


def _view(name: str) -> RolloutNumber:
    return lambda record, score: record.score.views.get(name)


def _applied(number: RolloutNumber, change: Callable[[float], float]) -> RolloutNumber:
    def changed(record: ScoredRollout, score: float | None) -> float | None:
        value = number(record, score)
        return None if value is None else change(value)

    return changed


def _verdict(record: ScoredRollout, score: float | None) -> float | None:
    return None if score is None else float(score >= SUCCESS)
