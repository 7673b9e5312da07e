"""The report of a suite evaluation: report.yaml, report.json, report.md and report.html.

The YAML and JSON files have the same fields: `agent2 decide` reads either and comes to the same decision on a machine
without torch. Equal cards give equal bytes in every file: no times, no paths of the machine. The HTML page is one file
without scripts that loads nothing from the network; long questions and answers are folded.

No number is computed here; rates are given in percent and points, lengths and counts in percent of the old value. Texts
of models and of other people's files pass `clean`. Of hidden items only ids are shown: no question, reference, answer
or reason of a fault.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent2.analysis.failure_clusters import FailureCluster, FailureClusters
from agent2.analysis.outcome import evaluation_section, missing_words
from agent2.analysis.outcome_records import AttemptMetrics, BenchmarkOutcome, SuiteOutcome
from agent2.benchmarks import BENCHMARKS, READS_FILES
from agent2.cards.card import CardSummary, Drop
from agent2.contract.decision_sentences import IMPROVEMENTS, Answers, DecisionText, decision_text
from agent2.contract.finding_sentences import FindingText, finding_text
from agent2.contract.findings import Decision, Finding, GateState, Improvement
from agent2.contract.gates import NO_EFFECT, RELEASE, TrainingAction
from agent2.contract.metrics import MetricEvidence, MetricSpec, Unit, change_kind, format_change
from agent2.contract.report_file import report_dict, write_report
from agent2.evaluation.suite_folder import BASELINE, CHECKPOINT, SIDES
from agent2.files import write_text
from agent2.records import EvaluationProtocol, Split
from agent2.reports.behaviour_tables import BehaviourView, behaviour_views
from agent2.reports.eval_items import (
    MAX_ITEMS,
    BadcaseExamples,
    ItemsView,
    examples_of,
    is_hidden,
    items_note,
    items_of,
)
from agent2.reports.eval_process import (
    BadcaseLine,
    ProcessView,
    badcase_links,
    badcase_table,
    cluster_sentence,
    cluster_table,
    page_clusters,
    process_lines,
    process_tables,
)
from agent2.reports.text import (
    DASH,
    Column,
    FieldTable,
    Table,
    Tile,
    clean,
    count,
    p_words,
    percent,
    render,
)
from agent2.stats.estimates import POINTS, Notation
from agent2.texts import counted

NOTHING_MISSING = "0.0% -> 0.0%"
"""Of both sides, which a tile does not say."""
LONG = 1000
"""Characters of a long cell."""
VERDICT_OF_STATE = {
    GateState.PASSED: "pass",
    GateState.FIRED: "fail",
    GateState.INCONCLUSIVE: "partial",
    GateState.NOT_EVALUATED: "unknown",
}
PASSES = {"pass@1": "pass_at_1", "pass@k": "pass_at_k", "pass^k": "pass_hat_k"}
"""Column -> field of `PassMetrics`."""


def limits_of_numbers(outcome: SuiteOutcome) -> list[str]:
    """What the numbers do not cover, a sentence each, the most general first."""
    limits = [_split_words(outcome.identity.split)]
    embedded = [
        benchmark.name
        for benchmark in outcome.benchmarks
        if benchmark.name in BENCHMARKS and benchmark.name not in READS_FILES
    ]
    if embedded:
        limits.append(
            f"{', '.join(embedded)}: small embedded stand-ins with generated items; nothing here compares with scores "
            "on the published benchmarks of that kind"
        )
    if len({side.digest for side in outcome.identity.sides.values()}) == 1:
        limits.append("both sides are the same checkpoint: what differs is the luck of the draw")
    limits.append(
        "one checkpoint of one training run: how far another seed of the same training would land is not measured"
    )
    protocols = [benchmark.protocols[side] for benchmark in outcome.benchmarks for side in SIDES]
    if any(protocol.attempts == 1 and protocol.sampling.model_temperature > 0 for protocol in protocols):
        limits.append(
            "one attempt an item, drawn at a temperature: the luck of the draw is in the intervals, and not separated "
            "from the choice of items"
        )
    limits += [
        f"{metric.name}: not measured here "
        + ("(it belongs to no benchmark)" if metric.benchmark is None else f"(nothing of {metric.benchmark} gives it)")
        for metric in outcome.suite.metrics
        if metric.name not in outcome.evidence.metrics
    ]
    n_evaluated = sum(finding.state is not GateState.NOT_EVALUATED for finding in outcome.decision.findings)
    if n_evaluated > 1:
        limits.append(
            f"{n_evaluated} gates were evaluated, each at its own level; that one of them fires by "
            "chance is likelier than for one alone"
        )
    limits.append("seconds, hardware and library versions are on the cards and in lock.json, not here")
    limits += outcome.warnings
    limits += [caveat for side in SIDES for caveat in outcome.identity.sides[side].caveats]
    return list(dict.fromkeys(limits))


def _split_words(split: str) -> str:
    if split == Split.TEST_PRIVATE:
        return "private items: every further look at them makes them worth less; the access log has this one"
    if split == Split.TEST_PUBLIC:
        return "public test items: good for trends; a release rests on private ones"
    return "dev items, which everybody may see and train towards: no ground for a release"


@dataclass(frozen=True, slots=True)
class MetricLine:
    """One metric of the suite and its evidence; None: not measured here."""

    spec: MetricSpec
    evidence: MetricEvidence | None


@dataclass(frozen=True, slots=True)
class SideLine:
    """One side of one benchmark."""

    benchmark: BenchmarkOutcome
    side: str

    @property
    def summary(self) -> CardSummary:
        """Of its card."""
        return self.benchmark.summaries[self.side]


@dataclass(frozen=True, slots=True)
class DropLine:
    """One rollout that failed or is left out."""

    benchmark: str
    side: str
    drop: Drop


@dataclass(frozen=True, slots=True)
class ProvenanceLine:
    """A checkpoint, suite or secret with its digest."""

    subject: str
    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class EvalSummary:
    """The result in short, for the terminal."""

    metrics: tuple[MetricLine, ...]
    """Those with a number."""
    fired: tuple[Finding, ...]
    training_action: TrainingAction
    process: Mapping[str, str]
    """Line about how the checkpoint worked, or failed, by its name; beside the outcome."""

    def lines(self) -> dict[str, str]:
        """Name -> text."""
        changes = {
            line.spec.name: format_change(line.evidence.old, line.evidence.new, line.spec.unit)
            for line in self.metrics
            if line.evidence is not None
        }
        gates = {f"gate {finding.gate}": finding.state.value for finding in self.fired}
        lines = changes | gates | {"training action": self.training_action.value, **self.process}
        return {clean(name): clean(text) for name, text in lines.items()}


@dataclass(frozen=True, slots=True)
class GateLine:
    """One gate of the decision, with its sentences."""

    finding: Finding
    text: FindingText

    @property
    def verdict(self) -> str:
        """`pass`, `fail`, `partial` or `unknown`, for the mark beside the gate's state."""
        return VERDICT_OF_STATE[self.finding.state]

    @property
    def inputs(self) -> str:
        """What was read, and where."""
        return f"{', '.join(self.text.inputs) or 'nothing'} (on {self.finding.on})"

    @property
    def evidence(self) -> str:
        """What the inputs rest on, with the problems of the evidence."""
        return "; ".join((self.text.evidence, *self.text.problems))

    @property
    def effects(self) -> str:
        """What follows for release and training; empty: nothing."""
        effects = (self.finding.effects.release, self.finding.effects.training.value)
        return ", ".join(effect for effect in effects if effect not in (NO_EFFECT, TrainingAction.CONTINUE.value))


@dataclass(frozen=True, slots=True)
class EvalView:
    """Contents of an evaluation's pages."""

    title: str
    subtitle: str
    release: str
    improvement: str
    """Whether the primary metric improved, in a few words."""
    consequence: str
    """What follows from the decision for this checkpoint."""
    passes: bool
    verdict: str
    """Its colour: `pass` where it passes and an improvement is shown, `fail` where it does not pass, else `unknown`."""
    tiles: tuple[Tile, ...]
    reasons: tuple[str, ...]
    would_change: tuple[str, ...]
    also: tuple[str, ...]
    questions: FieldTable[Answers]
    metrics: Table[MetricLine]
    basis: str
    gates: tuple[GateLine, ...]
    problems: tuple[str, ...]
    badcases: Table[BadcaseLine]
    badcase_links: tuple[str, ...]
    """Of each class to its examples on the page; empty for one without."""
    clusters: Table[FailureCluster]
    cluster_sentence: str
    process: tuple[ProcessView, ...]
    """One for each side of a benchmark whose rollouts have a way of working."""
    behaviour: tuple[BehaviourView, ...]
    examples: tuple[BadcaseExamples, ...]
    """Empty where the items are hidden."""
    items: tuple[ItemsView, ...]
    items_note: str
    attempts: Table[SideLine]
    attempt_gaps: tuple[str, ...]
    cost: Table[SideLine]
    drops: Table[DropLine]
    """The first of them."""
    n_drops: int
    skipped: tuple[str, ...]
    protocols: Table[BenchmarkOutcome]
    provenance: Table[ProvenanceLine]
    cards: Table[SideLine]
    notes: tuple[str, ...]
    limits: tuple[str, ...]
    """What the numbers do not cover."""


def eval_view(outcome: SuiteOutcome, clusters: FailureClusters | None = None) -> EvalView:
    """Contents of an evaluation's pages. clusters: of failures that nobody explains."""
    decision, identity = outcome.decision, outcome.identity
    text = decision_text(decision)
    # what is missing for a better decision is said once: as what would change it
    missing = {f"not `release`: {sentence}" for sentence in text.would_change} | {*text.would_change}
    reasons = [sentence for sentence in text.reasons if sentence not in missing] or list(text.reasons)
    with_attempts = _sides(outcome, attempts=True)
    return EvalView(
        title=clean(f"{decision.checkpoint} against {decision.baseline}"),
        subtitle=clean(
            f"suite {outcome.suite.id} ({outcome.suite.digest[:12]}) · role {identity.role} · split {identity.split} · "
            f"seed {identity.seed}"
        ),
        release=clean(decision.release),
        improvement=IMPROVEMENTS[decision.improvement],
        consequence=_consequence(decision),
        passes=decision.passes,
        verdict=_colour_of(decision),
        tiles=_tiles(outcome),
        reasons=_clean_all(reasons),
        would_change=_clean_all([sentence for sentence in text.would_change if sentence not in reasons]),
        also=_clean_all(decision.also_fired),
        questions=_questions(text),
        metrics=_metric_table(outcome),
        basis=clean(decision.basis.value, LONG),
        gates=tuple(GateLine(finding, finding_text(finding)) for finding in decision.findings),
        problems=_clean_all(text.problems),
        badcases=badcase_table(outcome),
        badcase_links=badcase_links(outcome),
        clusters=cluster_table(clusters),
        cluster_sentence=cluster_sentence(clusters),
        process=process_tables(outcome),
        behaviour=behaviour_views(outcome),
        examples=examples_of(outcome),
        items=tuple(items_of(benchmark) for benchmark in outcome.benchmarks),
        items_note=items_note(outcome),
        attempts=_attempt_table(with_attempts),
        attempt_gaps=_clean_all(
            dict.fromkeys(
                f"{line.benchmark.name}: {gap}"
                for line in with_attempts
                for gap in line.benchmark.attempts[line.side].gaps
            )
        ),
        cost=_cost_table(_sides(outcome)),
        drops=_drop_table(outcome),
        n_drops=sum(len(line.summary.drops) for line in _sides(outcome)),
        skipped=_clean_all(outcome.skipped),
        protocols=_protocol_table(outcome.benchmarks),
        provenance=_provenance(outcome),
        cards=Table(
            (*_side_columns(), Column("folder", lambda line: line.benchmark.cards[line.side])), _sides(outcome)
        ),
        notes=_clean_all(decision.notes),
        limits=_clean_all(limits_of_numbers(outcome)),
    )


def eval_summary(outcome: SuiteOutcome) -> EvalSummary:
    """The result in short."""
    measured = (MetricLine(spec, outcome.evidence.metrics.get(spec.name)) for spec in outcome.suite.metrics)
    fired = tuple(finding for finding in outcome.decision.findings if finding.fired)
    return EvalSummary(
        tuple(line for line in measured if line.evidence is not None),
        fired,
        outcome.decision.training_action,
        process_lines(outcome),
    )


def _colour_of(decision: Decision) -> str:
    if not decision.passes:
        return "fail"
    return "pass" if decision.improvement is Improvement.SHOWN else "unknown"


def _consequence(decision: Decision) -> str:
    if decision.release == RELEASE:
        return "ships"
    return "passes; a release needs more" if decision.passes else "does not pass"


def _tiles(outcome: SuiteOutcome) -> tuple[Tile, ...]:
    decision, primary = outcome.decision, outcome.suite.primary
    evidence = outcome.evidence.metrics.get(primary.name)
    change_text = format_change(evidence.old, evidence.new, primary.unit) if evidence is not None else "missing"
    values, _, change = change_text.partition(" (")
    n_fired, n_open = len(decision.fired), sum(f.state is GateState.NOT_EVALUATED for f in decision.findings)
    not_evaluated = f"; {n_open} not evaluated" if n_open else ""
    is_free = decision.training_action is TrainingAction.CONTINUE
    missing = missing_words(outcome, primary)
    lost = f"; missing {missing or DASH}" if missing != NOTHING_MISSING else ""
    return (
        Tile(
            "training action",
            decision.training_action.value.replace("_", " "),
            "no gate asks for a pause" if is_free else "a gate asks for it",
        ),
        Tile(
            clean(f"{primary.name} (primary)"),
            change.removesuffix(")") or DASH,
            f"{values} {_interval(MetricLine(primary, evidence))}{lost}",
        ),
        Tile("gates", f"{n_fired} fired", f"of {len(decision.findings) - n_open} evaluated{not_evaluated}"),
    )


def _questions(text: DecisionText) -> FieldTable[Answers]:
    return FieldTable(
        (
            Column("Did capabilities improve?", lambda answers: clean(answers.capabilities_improved, LONG)),
            Column("Are preferences aligned?", lambda answers: clean(answers.preferences_aligned, LONG)),
            Column("Is the reward distorted?", lambda answers: clean(answers.reward_distorted, LONG)),
            Column("May training continue?", lambda answers: clean(answers.may_continue_training, LONG)),
            Column("May it be deployed?", lambda answers: clean(answers.may_be_deployed, LONG)),
            Column("Where should the next data come from?", lambda answers: clean(answers.next_data_from, LONG)),
        ),
        text.answers,
    )


def _metric_table(outcome: SuiteOutcome) -> Table[MetricLine]:
    def change(line: MetricLine) -> str:
        if line.evidence is None:
            return "not measured"
        problem = f"; {line.evidence.problem}" if line.evidence.problem else ""
        return clean(format_change(line.evidence.old, line.evidence.new, line.spec.unit) + problem)

    def p_value(line: MetricLine) -> str:
        pair = line.evidence.paired if line.evidence is not None else None
        return p_words(pair.p_value if pair is not None else None)

    def verdict(line: MetricLine) -> str:
        if line.evidence is None or line.evidence.paired is None:
            return DASH
        kind = change_kind(line.spec, line.evidence)
        return DASH if kind == "neither" else kind

    def noise(line: MetricLine) -> str:
        if line.evidence is None or line.evidence.noise is None:
            return DASH
        return f"±{_notation(line).number(line.evidence.noise).lstrip('+')}"

    return Table(
        (
            Column("metric", lambda line: clean(line.spec.name)),
            Column("role", lambda line: _role(line.spec)),
            Column("old -> new (change)", change),
            Column("95% interval over items", lambda line: DASH if line.evidence is None else _interval(line)),
            Column("p", p_value),
            Column("verdict", verdict),
            Column("items", lambda line: count(line.evidence.n_items if line.evidence is not None else None)),
            Column("missing", lambda line: missing_words(outcome, line.spec) or DASH),
            Column("noise", noise),
        ),
        [MetricLine(spec, outcome.evidence.metrics.get(spec.name)) for spec in outcome.suite.metrics],
    )


def _role(spec: MetricSpec) -> str:
    role = spec.role.value.replace("_", " ")
    return f"{role}, safety" if spec.is_safety else f"{role} of {spec.scope}" if spec.scope else role


def _interval(line: MetricLine) -> str:
    if line.evidence is None or line.evidence.paired is None:
        return "no pairs"
    notation, change = _notation(line), line.evidence.paired.change
    return f"[{', '.join(map(notation.number, change.interval))}]"


def _notation(line: MetricLine) -> Notation:
    """Of a difference: points for rates, percent of the old value for the rest."""
    if line.spec.unit is Unit.RATE:
        return POINTS
    old = line.evidence.old if line.evidence is not None else None
    return Notation("+.1f", 100 / abs(old), "%") if old else Notation("+.3g")


def _side_columns() -> tuple[Column[SideLine], ...]:
    return (
        Column("benchmark", lambda line: line.benchmark.name),
        Column("side", lambda line: line.side),
    )


def _attempt_table(lines: Sequence[SideLine]) -> Table[SideLine]:
    def metrics(line: SideLine) -> AttemptMetrics:
        return line.benchmark.attempts[line.side]

    def rate(name: str) -> Column[SideLine]:
        def text(line: SideLine) -> str:
            passes = metrics(line).passes
            return DASH if passes is None else percent(getattr(passes, PASSES[name]).value)

        return Column(name, text)

    def majority(line: SideLine) -> str:
        voted = metrics(line).majority
        return percent(voted.value if voted is not None else None)

    def best(line: SideLine) -> str:
        chosen = metrics(line).best
        return DASH if chosen is None else f"{percent(chosen.chosen.value)} by {clean(chosen.selector)}"

    def cost(line: SideLine) -> str:
        spent = metrics(line).cost
        if spent is None:
            return DASH
        return f"{spent.tokens:.3g} tokens a point and item" if spent.tokens is not None else "nothing gained"

    return Table(
        (
            *_side_columns(),
            Column("k", lambda line: str(metrics(line).k)),
            *map(rate, PASSES),
            Column("majority@k", majority),
            Column("best-of-n", best),
            Column("search costs", cost),
        ),
        lines,
    )


def _known(count: int | None) -> str:
    return DASH if count is None else str(count)


def _cost_table(lines: Sequence[SideLine]) -> Table[SideLine]:
    def per_item(line: SideLine) -> str:
        n_items = len(line.summary.item_scores)
        tokens = line.summary.tokens
        return f"{tokens / n_items:.1f} tokens" if n_items and tokens is not None else DASH

    return Table(
        (
            *_side_columns(),
            Column("rollouts", lambda line: str(line.summary.n_rollouts)),
            Column("turns", lambda line: str(line.summary.n_turns)),
            Column("retries", lambda line: str(line.summary.n_retries)),
            Column("prompt tokens", lambda line: _known(line.summary.prompt_tokens)),
            Column("completion tokens", lambda line: _known(line.summary.completion_tokens)),
            Column("per item", per_item),
        ),
        lines,
    )


def _drop_table(outcome: SuiteOutcome) -> Table[DropLine]:
    """The first `MAX_ITEMS`. The reason of a fault may quote the item; that of a hidden item stays on the card."""
    hidden = is_hidden(outcome)
    drops = [DropLine(line.benchmark.name, line.side, drop) for line in _sides(outcome) for drop in line.summary.drops]
    return Table(
        (
            Column("benchmark", lambda line: line.benchmark),
            Column("side", lambda line: line.side),
            Column("item", lambda line: clean(line.drop.item_id)),
            Column("attempt", lambda line: str(line.drop.attempt)),
            Column("fault", lambda line: line.drop.fault.value if line.drop.fault is not None else "none"),
            Column("counted", lambda line: line.drop.counted.value.replace("_", " ")),
            Column(
                "reason",
                lambda line: "on the card; it may quote a hidden item" if hidden else clean(line.drop.reason),
            ),
        ),
        drops[:MAX_ITEMS],
    )


def _protocol_table(benchmarks: Sequence[BenchmarkOutcome]) -> Table[BenchmarkOutcome]:
    def digests(benchmark: BenchmarkOutcome) -> str:
        old, new = (benchmark.protocols[side].digest for side in SIDES)
        return new[:16] if old == new else f"{old[:16]} and {new[:16]}: incomparable"

    return Table(
        (
            Column("benchmark", lambda benchmark: benchmark.name),
            Column("protocol digest", digests),
            Column("how it was played", lambda benchmark: _protocol_words(benchmark.protocols[CHECKPOINT])),
        ),
        benchmarks,
    )


def _protocol_words(new: EvaluationProtocol) -> str:
    time = "" if new.max_wall_time_s is None else f", {new.max_wall_time_s:g} s a rollout"
    context = "" if new.context_length is None else f", context {new.context_length}"
    tools = ", ".join(f"{key} {value}" for key, value in new.tools.items())
    retries = "1 retry" if new.retries == 1 else f"{new.retries} retries"
    text = (
        f"{new.benchmark}, {new.split.value}, items {new.items_digest[:12]}; {new.sampling.description}, "
        f"{counted(new.attempts, 'attempt')}{context}; at most "
        f"{counted(new.max_turns, 'turn')}{time}, {retries}; {new.environment}, {new.scorer}; {new.dtype}, "
        f"chat template {new.chat_template_digest[:12]}" + (f"; tools: {tools}" if tools else "")
    )
    return clean(text, LONG)


def _provenance(outcome: SuiteOutcome) -> Table[ProvenanceLine]:
    sides = ((name, outcome.identity.sides[name]) for name in (CHECKPOINT, BASELINE))
    rows = [ProvenanceLine(side, f"{model.name} ({model.kind})", model.digest) for side, model in sides]
    rows.append(ProvenanceLine("suite", outcome.suite.id, outcome.suite.digest))
    if outcome.identity.secret_digest is not None:
        rows.append(
            ProvenanceLine("installation secret", "hidden items derive from it", outcome.identity.secret_digest)
        )
    return Table(
        (
            Column("what", lambda line: line.subject),
            Column("name", lambda line: clean(line.name)),
            Column("digest", lambda line: line.digest),
        ),
        rows,
    )


def _sides(outcome: SuiteOutcome, *, attempts: bool = False) -> list[SideLine]:
    return [
        SideLine(benchmark, side)
        for benchmark in outcome.benchmarks
        for side in SIDES
        if not attempts or side in benchmark.attempts
    ]


def _clean_all(sentences: Iterable[str]) -> tuple[str, ...]:
    return tuple(clean(sentence, LONG).replace("`", "") for sentence in sentences)


@dataclass(frozen=True, slots=True)
class EvalReportPaths:
    """The files of a report."""

    yaml: Path
    json: Path
    markdown: Path
    html: Path
    figure: Path | None
    """None: no metric has a number on both sides."""


def write_eval_report(outcome: SuiteOutcome, out: Path) -> EvalReportPaths:
    """Write all files of the report into `out`; existing ones are replaced."""
    from agent2.reports.eval_charts import change_svg  # loads matplotlib, a second that the web app's page does without
    from agent2.reports.style import standalone

    report: dict[str, Any] = report_dict(outcome.suite.metrics, outcome.evidence, outcome.decision)
    report["evaluation"] = evaluation_section(outcome)
    figure = change_svg(outcome.suite.metrics, outcome.evidence)
    fields = {"view": eval_view(outcome, page_clusters(out, outcome)), "figure": figure}
    paths = EvalReportPaths(
        yaml=out / "report.yaml",
        json=out / "report.json",
        markdown=out / "report.md",
        html=out / "report.html",
        figure=out / "change.svg" if figure is not None else None,
    )
    write_report(paths.yaml, report)
    write_report(paths.json, report)
    write_text(paths.markdown, render("eval.md.j2", fields))
    write_text(paths.html, render("eval.html.j2", fields))
    if figure is not None and paths.figure is not None:
        write_text(paths.figure, standalone(figure))
    return paths
