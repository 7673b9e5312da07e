"""Rules that join several parts of a suite: names that exist, one primary metric, no circular requirements.

A single part is checked where it is defined; whether gates and metrics fit each other is checked by
`contract.gates.check_gates`. The other rules are here; a refusal names the line of the mistake in the file.

A track is a template for the parts that a shorthand suite may leave out, one YAML file in `tracks` for each kind of
loop. It has the keys `track` (its name), `match` (names of suites that belong to it), `keys` (a suite without a name
belongs to it if it has all of them), `metric_names` (short metric name -> metrics that it may mean) and `suite` (the
parts to fill in). `contract.suite_files` says how they are used.

Does NOT look at installed benchmarks: a suite may be checked where they are not installed.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError
from importlib import resources
from types import MappingProxyType
from typing import Any

from agent2.config import Location, YamlText, read_yaml_text
from agent2.contract.gates import DangerousActionGate, check_gates
from agent2.contract.measure_rules import STEP_VIEWS, parse_measure
from agent2.contract.metrics import Direction, MetricSpec, Role, Unit, metrics_by_name
from agent2.contract.suite import (
    ComparingJudge,
    EvaluationRole,
    ScorerTier,
    SplitRules,
    StepJudging,
    SuccessCriterion,
    Suite,
    Visibility,
)
from agent2.errors import ConfigError, nearest_name, unknown_name
from agent2.llm.thoughts import CUT_OFF
from agent2.records import ScorerOutput, Split
from agent2.scorers import declared, follows_rules, own_labels

SPLITS = tuple(split.value for split in Split)
Spot = Callable[[Location], str]
"""Where a location of the suite was written: `file:line`."""


@dataclass(frozen=True, slots=True)
class Track:
    """One template."""

    name: str
    text: YamlText
    """Its file, for the line that a part is filled in from."""

    @property
    def suite(self) -> dict[str, Any]:
        """The parts that can be filled in."""
        suite: dict[str, Any] = self.text.data["suite"]
        return suite

    @property
    def metric_names(self) -> Mapping[str, list[str]]:
        """Short name -> metrics of the template."""
        names: Mapping[str, list[str]] = self.text.data["metric_names"]
        return names

    def fits(self, suite_name: str | None, keys: set[str]) -> bool:
        """Whether a suite that names no track belongs here, by its name or, without one, by its keys."""
        if suite_name is not None:
            return suite_name in self.text.data["match"]
        required = set(self.text.data["keys"])
        return bool(required) and required <= keys


@cache
def load_tracks() -> Mapping[str, Track]:
    """Every packaged template by name; read once: copy before changing anything."""
    tracks = {}
    for entry in sorted((resources.files("agent2.contract") / "tracks").iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".yaml"):
            text = read_yaml_text(entry.read_text(encoding="utf-8"), f"tracks/{entry.name}")
            tracks[text.data["track"]] = Track(text.data["track"], text)
    return MappingProxyType(tracks)


def check_suite(suite: Suite, spot: Spot) -> None:
    """Refuse a suite whose parts do not fit. Raises ConfigError with file, line and, for a name, the nearest one."""
    _check_names(suite, spot)
    _check_metrics(suite, spot)
    _check_benchmarks(suite, spot)
    _check_roles(suite, spot)
    check_gates(suite.metrics, suite.gates, spot(("gates",)))
    check_emitted(suite, {entry.name: declared(entry.scorer.name) for entry in suite.benchmarks}, spot)
    _check_success(suite, spot)
    if (suite.protocol.tools is None) != (suite.agent is None):
        missing = "agent" if suite.agent is None else "protocol.tools"
        raise ConfigError(
            f"{spot((missing.split('.')[0],))}: an agent suite has both protocol.tools and agent, this one lacks "
            f"{missing}; add it, or set both to null"
        )


def remarks(suite: Suite) -> list[str]:
    """What is allowed but worth knowing, one sentence each."""
    sentences = [
        f"production task {task.name!r} has no benchmark in this suite; a regression on it will not be seen"
        for task in suite.task_distribution.production_tasks
        if not task.benchmarks
    ]
    used = {name for task in suite.task_distribution.production_tasks for name in task.benchmarks}
    sentences += [
        f"benchmark {entry.name!r} represents no production task"
        for entry in suite.benchmarks
        if entry.name not in used
    ]
    if suite.control_group.checkpoint is None:
        sentences.append("the control group is named when the suite is run (--baseline)")
    judged = [entry.name for entry in suite.benchmarks if entry.scorer.tier is ScorerTier.JUDGE]
    if not suite.cadence.candidate.spot_check:
        scored = f", above all of the verdicts of a judge ({', '.join(judged)})" if judged else ""
        sentences.append(
            f"cadence.candidate.spot_check is false; a release needs a human spot check all the same{scored}"
        )
    sentences += [
        f"benchmark {name!r} is of the tier judge, and its scorer {scorer!r} follows rules and asks no model"
        for name, scorer in _judged_by_rules(suite)
    ]
    if suite.protocol.judge is not None and not judged:
        sentences.append("protocol.judge is not used: no benchmark is scored by a judge")
    unknown = [entry.scorer.name for entry in suite.benchmarks if declared(entry.scorer.name) is None]
    if unknown:
        names = ", ".join(dict.fromkeys(unknown))
        sentences.append(f"scorers that are not packaged ({names}): their views and badcase classes are not checked")
    return sentences + _weaker_scorers(suite)


def _judged_by_rules(suite: Suite) -> list[tuple[str, str]]:
    """Benchmarks of the tier judge whose packaged scorer asks no model."""
    judged = [entry for entry in suite.benchmarks if entry.scorer.tier is ScorerTier.JUDGE]
    return [(entry.name, entry.scorer.name) for entry in judged if follows_rules(entry.scorer.name)]


def check_emitted(suite: Suite, emitted: Mapping[str, ScorerOutput | None], spot: Spot) -> None:
    """Whether scorers give the views and badcase classes that metrics and gates read.

    emitted: benchmark -> the declared output of its scorer; None: not declared, so nothing about it is refused.
    Raises ConfigError for a view or a badcase class that no rollout of the suite can ever have.
    """
    for index, metric in enumerate(suite.metrics):
        rule = parse_measure(metric.measure, step_rules=suite.step_rules)
        outputs = [emitted.get(metric.benchmark)] if metric.benchmark is not None else list(emitted.values())
        declared_outputs = [output for output in outputs if output is not None]
        if len(declared_outputs) < len(outputs) or not (rule.views or rule.label):
            continue
        if rule.label is not None:
            kind, names = "badcase class", {label for output in declared_outputs for label in output.labels}
            names |= _other_names(suite, metric.benchmark)
            missing = [] if rule.label in (*names, CUT_OFF) else [rule.label]
        else:
            kind, names = "view", {view for output in declared_outputs for view in output.views}
            # One scorer has to give all of them: a ratio is taken within a rollout.
            missing = min(
                ([view for view in rule.views if not output.has_view(view)] for output in declared_outputs), key=len
            )
        if missing:
            where = f"{spot(('metrics', index, 'measure'))}: metric {metric.name!r}: no scorer of this suite gives"
            raise ConfigError(
                f"{where} {kind} {missing[0]!r}{_nearest(missing[0], names)}; a metric that only reports contain has "
                "measure: reported"
            )
    _check_dangers(suite, list(emitted.values()), spot)


def _other_names(suite: Suite, benchmark: str | None) -> set[str]:
    """Classes as scorers name them after the suite's benchmarks, and as they named them there before."""
    entries = [entry for entry in suite.benchmarks if benchmark is None or entry.name == benchmark]
    renamed = [own_labels(entry.scorer.name, entry.name, is_packaged=entry.source is None) for entry in entries]
    return {label for labels in renamed for pair in labels.items() for label in pair}


def _nearest(name: str, names: Collection[str]) -> str:
    near = nearest_name(name, names)
    return f" (did you mean {near!r}?)" if near is not None else ""


def _check_dangers(suite: Suite, emitted: Sequence[ScorerOutput | None], spot: Spot) -> None:
    outputs = [output for output in emitted if output is not None]
    if len(outputs) < len(emitted):
        return
    labels = {label for output in outputs for label in output.labels}
    for index, gate in enumerate(suite.gates):
        if not isinstance(gate, DangerousActionGate):
            continue
        for number, action in enumerate(gate.actions):
            if action not in labels:
                raise ConfigError(
                    f"{spot(('gates', index, 'actions', number))}: gate {gate.name!r}: badcase class {action!r} comes "
                    f"from no scorer of this suite{_nearest(action, labels)}"
                )
        if not any(map(gate.is_dangerous, labels)):
            raise ConfigError(
                f"{spot(('gates', index))}: gate {gate.name!r}: no scorer of this suite reports dangerous actions; "
                "remove the gate"
            )


def _weaker_scorers(suite: Suite) -> list[str]:
    """Benchmarks scored by a weaker tier than a template uses for the same benchmark."""
    order = list(ScorerTier)
    best: dict[str, ScorerTier] = {}
    for track in load_tracks().values():
        for entry in track.suite["benchmarks"]:
            tier = ScorerTier(entry["scorer"]["tier"])
            best[entry["name"]] = min(tier, best.get(entry["name"], tier), key=order.index)
    return [
        f"benchmark {entry.name!r} is scored by {entry.scorer.tier}; {best[entry.name]} is possible and stronger"
        for entry in suite.benchmarks
        if entry.name in best and order.index(entry.scorer.tier) > order.index(best[entry.name])
    ]


def _check_names(suite: Suite, spot: Spot) -> None:
    for key, names in (
        ("benchmarks", [entry.name for entry in suite.benchmarks]),
        ("metrics", [name for metric in suite.metrics for name in (metric.name, *metric.alias)]),
        ("gates", [gate.name for gate in suite.gates]),
    ):
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise ConfigError(f"{spot((key,))}: {key}: name {twice[0]!r} appears twice; give each a unique name")


def _check_metrics(suite: Suite, spot: Spot) -> None:
    benchmarks = [entry.name for entry in suite.benchmarks]
    for index, metric in enumerate(suite.metrics):
        if metric.benchmark is not None and metric.benchmark not in benchmarks:
            raise unknown_name("benchmark", metric.benchmark, benchmarks, spot(("metrics", index, "benchmark")))
        if metric.split is not None and metric.split not in SPLITS:
            raise unknown_name("split", metric.split, SPLITS, spot(("metrics", index, "split")))
        where = spot(("metrics", index, "measure"))
        rule = parse_measure(metric.measure, f"{where}: metric {metric.name!r}", suite.step_rules)
        if rule.of_process is not None and metric.role is Role.PRIMARY:
            raise ConfigError(
                f"{where}: metric {metric.name!r} measures the process and is the primary one; the final state "
                "decides: make it diagnostic, and an outcome primary"
            )
        if rule.is_preference:
            _check_preference(suite, metric, where)
        if rule.of_process in STEP_VIEWS:
            _check_step_judge(suite, metric, where)
    _check_attempts(suite, spot)
    primary = [metric.name for metric in suite.metrics if metric.role is Role.PRIMARY]
    if len(primary) != 1:
        raise ConfigError(
            f"{spot(('metrics',))}: exactly one metric has the role 'primary', here it is "
            f"{' and '.join(primary) or 'none'}; a suite has no weighted total, choose one: "
            "metrics: [{name: NAME, benchmark: BENCHMARK, role: primary}]"
        )


def _check_step_judge(suite: Suite, metric: MetricSpec, where: str) -> None:
    """What rests on verdicts of single steps needs somebody who gives them, on every benchmark of the metric."""
    without = [
        entry.name for entry in suite.benchmarks if entry.step_judge is None and metric.benchmark in (None, entry.name)
    ]
    if without:
        raise ConfigError(
            f"{where}: metric {metric.name!r} rests on a step judge, and {without[0]} names none; add to its entry: "
            "step_judge: {model: MODEL}"
        )
    _check_roles_of_judge(
        metric, where, [entry.step_judge for entry in suite.benchmarks if metric.benchmark in (None, entry.name)]
    )


def _check_roles_of_judge(
    metric: MetricSpec, where: str, judges: Sequence[ComparingJudge | StepJudging | None]
) -> None:
    """Where a judge is not asked in each role, what rests on it is not there in the others."""
    if metric.is_required and any(judge is not None and judge.roles is not None for judge in judges):
        raise ConfigError(
            f"{where}: metric {metric.name!r} rests on a judge that is not asked in each role; where it is not, the "
            "metric has no number: add is_required: false"
        )


def _check_preference(suite: Suite, metric: MetricSpec, where: str) -> None:
    """A win rate needs a judge, and is compared with one half, not with a score of the baseline."""
    judges = {entry.name: entry.pair_judge for entry in suite.benchmarks}
    if metric.role is Role.PRIMARY:
        raise ConfigError(
            f"{where}: metric {metric.name!r} is a win rate and the primary one; history and release of a suite rest "
            "on a score of its own: make it a regression_gate or hard_gate"
        )
    if metric.benchmark is None or judges.get(metric.benchmark) is None:
        raise ConfigError(
            f"{where}: metric {metric.name!r} is a win rate, and {metric.benchmark or 'no benchmark'} names no judge; "
            "add to the benchmark: pair_judge: {scorer: pair_judge, settings: {model: MODEL}}"
        )
    if metric.unit is not Unit.RATE or metric.direction is not Direction.HIGHER:
        raise ConfigError(f"{where}: metric {metric.name!r} is a win rate: unit rate, direction higher")
    _check_roles_of_judge(metric, where, [judges[metric.benchmark]])


def _check_attempts(suite: Suite, spot: Spot) -> None:
    """Chances with several attempts need that many, and are shown beside the chance with one."""
    single = {
        metric.benchmark
        for metric in suite.metrics
        if (rule := parse_measure(metric.measure)).name == "score" or rule.attempts == 1
    }
    for index, metric in enumerate(suite.metrics):
        k = parse_measure(metric.measure).attempts
        where = spot(("metrics", index, "measure"))
        if k is not None and k > suite.protocol.sampling.n:
            raise ConfigError(
                f"{where}: metric {metric.name!r} needs {k} attempts, protocol.sampling.n is "
                f"{suite.protocol.sampling.n}; raise n or lower k"
            )
        if k is not None and k > 1 and metric.benchmark not in single:
            raise ConfigError(
                f"{where}: metric {metric.name!r} is the chance with {k} attempts and no metric of "
                f"{metric.benchmark} is the chance with one; add one (measure: score), a product gives one answer"
            )


def _check_benchmarks(suite: Suite, spot: Spot) -> None:
    benchmarks = [entry.name for entry in suite.benchmarks]
    metrics = metrics_by_name(suite.metrics)
    for index, entry in enumerate(suite.benchmarks):
        where: Sequence[int | str] = ("benchmarks", index, "metric")
        if entry.metric not in metrics:
            raise unknown_name("metric", entry.metric, metrics, spot(where))
        if metrics[entry.metric].benchmark != entry.name:
            raise ConfigError(
                f"{spot(where)}: metric {entry.metric!r} belongs to benchmark {metrics[entry.metric].benchmark!r}, "
                f"not to {entry.name!r}; name one of its own"
            )
        for number, need in enumerate(entry.requires):
            if need.benchmark not in benchmarks:
                at = spot(("benchmarks", index, "requires", number, "benchmark"))
                raise unknown_name("benchmark prerequisite", need.benchmark, benchmarks, at)
    for index, task in enumerate(suite.task_distribution.production_tasks):
        for name in task.benchmarks:
            if name not in benchmarks:
                at = spot(("task_distribution", "production_tasks", index, "benchmarks"))
                raise unknown_name("benchmark", name, benchmarks, at)
    try:
        suite.in_order()
    except CycleError as error:
        circle = " -> ".join(error.args[1])
        raise ConfigError(
            f"{spot(('benchmarks',))}: benchmarks require each other in a circle ({circle}); remove one prerequisite"
        ) from error


def visibility_problem(splits: SplitRules, role: EvaluationRole, split: Split) -> str:
    """Why an evaluation of that role may not play a split, as the suite's `splits` say; empty: it may."""
    visibility = Visibility(getattr(splits, split.value))
    allowed = {
        EvaluationRole.DEV: (Visibility.TRAINING, Visibility.ITERATION),
        EvaluationRole.NIGHTLY: (Visibility.TRAINING, Visibility.ITERATION, Visibility.EVERY_NIGHT),
        EvaluationRole.CANDIDATE: tuple(Visibility),
    }[role]
    return "" if visibility in allowed else f"the suite's splits say {visibility.value}"


def _check_success(suite: Suite, spot: Spot) -> None:
    """Each criterion of success is one that some benchmark's verdicts rest on."""
    tiers = {entry.scorer.tier for entry in suite.benchmarks}
    for index, criterion in enumerate(suite.agent.success_criteria if suite.agent is not None else ()):
        accepted = {
            SuccessCriterion.FINAL_ANSWER: {ScorerTier.RULES, ScorerTier.REFERENCE},
            SuccessCriterion.STATE_DIFF: {ScorerTier.STATE},
            SuccessCriterion.TEST_PASS: {ScorerTier.STATE},
            SuccessCriterion.SIMULATOR: {ScorerTier.JUDGE, ScorerTier.HUMAN},
        }[criterion]
        if not tiers & accepted:
            raise ConfigError(
                f"{spot(('agent', 'success_criteria', index))}: {criterion.value} needs a benchmark whose scorer rests "
                f"on {' or '.join(sorted(tier.value for tier in accepted))}, and none does; remove the criterion"
            )


def _check_spot_checks(suite: Suite, spot: Spot) -> None:
    """Only a release requires a spot check; nothing else would wait for one."""
    for role in (EvaluationRole.DEV, EvaluationRole.NIGHTLY):
        if suite.role_rule(role).spot_check:
            raise ConfigError(
                f"{spot(('cadence', role.value, 'spot_check'))}: cadence.{role.value} asks for a spot check, and "
                "nothing but a release waits for one; remove it (cadence.candidate has it)"
            )


def _check_played_splits(suite: Suite, spot: Spot) -> None:
    """Benchmarks and metrics may not state another split than is played: the role decides it for all of them."""
    nightly = suite.cadence.nightly.split
    for index, entry in enumerate(suite.benchmarks):
        if entry.split is not nightly:
            raise ConfigError(
                f"{spot(('benchmarks', index, 'split'))}: benchmark {entry.name!r} names {entry.split.value}, and the "
                f"nightly report plays {nightly.value} (cadence.nightly.split); change one of them"
            )
    for index, metric in enumerate(suite.metrics):
        if metric.split is not None:
            raise ConfigError(
                f"{spot(('metrics', index, 'split'))}: metric {metric.name!r} names {metric.split}; a metric is "
                "measured on the split that the evaluation's role plays: remove the key"
            )


def _check_roles(suite: Suite, spot: Spot) -> None:
    """Gates read known metrics, and a metric whose role is to be a gate is read by one."""
    for role in EvaluationRole:
        split = suite.role_rule(role).split
        problem = visibility_problem(suite.splits, role, split)
        if problem:
            where = spot(("cadence", role.value, "split"))
            raise ConfigError(f"{where}: cadence.{role.value} plays {split.value}, and {problem}; change one of them")
    _check_spot_checks(suite, spot)
    _check_played_splits(suite, spot)
    by_name = metrics_by_name(suite.metrics)
    gated: set[str] = set()
    for location, name in _names_in_gates(suite):
        if name not in by_name:
            gate = suite.gates[int(location[1])].name
            raise unknown_name("metric", name, by_name, f"{spot(location)}: gate {gate!r}")
        gated.add(by_name[name].name)
    gated |= {name for gate in suite.gates if gate.kind == "safety" for name in gate.reads(suite.metrics)}
    for index, metric in enumerate(suite.metrics):
        if metric.role in (Role.HARD_GATE, Role.REGRESSION_GATE) and metric.name not in gated:
            raise ConfigError(
                f"{spot(('metrics', index, 'role'))}: metric {metric.name!r} has the role {metric.role.value!r} and no "
                "gate reads it; name it in a gate or make it diagnostic"
            )


def _names_in_gates(suite: Suite) -> Iterator[tuple[Location, str]]:
    """Every metric that a gate names, and where."""
    for index, gate in enumerate(suite.gates):
        for key in ("metric", "success", "cost"):
            name = getattr(gate, key, None)
            if isinstance(name, str):
                yield ("gates", index, key), name
        for number, name in enumerate(getattr(gate, "metrics", ())):
            yield ("gates", index, "metrics", number), name
