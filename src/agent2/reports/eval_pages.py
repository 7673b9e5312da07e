"""The report of a suite evaluation.

What the pages of a suite evaluation show: rows of clean text, the same for HTML and Markdown.

No number is computed here; rates are told in percent and points, lengths and counts in percent of the old value.
Nothing that differs between two runs over equal cards (times, paths) is shown. Texts of models and of strangers'
files pass `clean`. Of hidden items only ids are shown: no question, reference, answer or reason of a fault.

The report of a suite evaluation: report.yaml and report.json in the known fields, report.md and report.html.

The YAML and JSON files hold the same: `agent2 decide` reads either and comes to the same decision on a machine
without torch. Equal cards give equal bytes in every file: no times, no paths of the machine. The HTML page is one
file without scripts that asks the network for nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent2.benchmarks import BENCHMARKS, READS_FILES
from agent2.cards.card import CardSummary
from agent2.contract.changes import tell_change
from agent2.contract.evidence import MetricEvidence
from agent2.contract.findings import Finding, GateState
from agent2.contract.gates import RELEASE, TrainingAction
from agent2.contract.metrics import MetricSpec, Unit
from agent2.contract.report_write import report_dict, write_report
from agent2.evaluation.outcome import AttemptMetrics, BenchmarkOutcome, SuiteOutcome, evaluation_section
from agent2.evaluation.suite_plan import BASELINE, CHECKPOINT, SIDES
from agent2.records import HIDDEN_SPLITS, Split
from agent2.reports.charts import change_kind, change_svg, standalone
from agent2.reports.pages import render, write_text
from agent2.reports.text import DASH, clean, clean_lines, p_words, percent


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


MAX_ITEMS = 20
MAX_TEXT = 3000
"""Characters of a question or an answer."""
FOLD_LINES, FOLD_CHARACTERS = 12, 600
"""What of a longer text is shown before it is unfolded."""
LONG = 1000
NO_ANSWER = "(no answer)"

Row = tuple[str, ...]
VERDICT_OF_STATE = {
    GateState.PASSED: "pass",
    GateState.FIRED: "fail",
    GateState.INCONCLUSIVE: "partial",
    GateState.NOT_EVALUATED: "unknown",
}
METRIC_NAMES = (
    "metric",
    "role",
    "old -> new (change)",
    "95% interval over items",
    "p",
    "verdict",
    "items",
    "missing",
    "noise",
)
COST_NAMES = ("benchmark", "side", "rollouts", "turns", "retries", "prompt tokens", "completion tokens", "per item")
ATTEMPT_NAMES = ("benchmark", "side", "k", "pass@1", "pass@k", "pass^k", "majority@k", "best-of-n", "search costs")
DROP_NAMES = ("benchmark", "side", "item", "attempt", "fault", "counted", "reason")
PROTOCOL_NAMES = ("benchmark", "protocol digest", "how it was played")


@dataclass(frozen=True, slots=True)
class GateView:
    """One gate that was looked at."""

    name: str
    verdict: str
    """pass, fail, partial or unknown."""
    state: str
    what: str
    rule: str
    evidence: str
    effects: str
    would_change: str


@dataclass(frozen=True, slots=True)
class TextView:
    """A question, a reference or an answer."""

    name: str
    shown: str
    folded: str
    """What follows `shown` in a long text."""


@dataclass(frozen=True, slots=True)
class ItemView:
    """One item; a hidden one has no texts."""

    name: str
    texts: tuple[TextView, ...]


@dataclass(frozen=True, slots=True)
class ItemsView:
    """Items of one benchmark that were lost or won."""

    benchmark: str
    words: str
    n_lost: int
    n_won: int
    lost: tuple[ItemView, ...]
    """The first of them."""
    won: tuple[ItemView, ...]


@dataclass(frozen=True, slots=True)
class EvalView:
    """All texts of an evaluation's pages."""

    title: str
    subtitle: str
    release: str
    passes: bool
    tiles: tuple[Row, ...]
    reasons: tuple[str, ...]
    would_change: tuple[str, ...]
    also: tuple[str, ...]
    questions: tuple[Row, ...]
    metrics: tuple[Row, ...]
    basis: str
    gates: tuple[GateView, ...]
    problems: tuple[str, ...]
    badcases: tuple[Row, ...]
    """(class, cases, attributed to, where to look)."""
    examples: tuple[tuple[str, tuple[ItemView, ...]], ...]
    """Class of bad cases -> items that show it; empty where the items are hidden."""
    items: tuple[ItemsView, ...]
    items_note: str
    attempts: tuple[Row, ...]
    attempt_gaps: tuple[str, ...]
    cost: tuple[Row, ...]
    drops: tuple[Row, ...]
    n_drops: int
    skipped: tuple[str, ...]
    protocols: tuple[Row, ...]
    provenance: tuple[Row, ...]
    cards: tuple[Row, ...]
    notes: tuple[str, ...]
    limits: tuple[str, ...]
    """What the numbers do not cover."""


def eval_view(outcome: SuiteOutcome) -> EvalView:
    """The texts of an evaluation's pages."""
    decision, identity = outcome.decision, outcome.identity
    drops = _drops(outcome.benchmarks, is_hidden=is_hidden(outcome))
    return EvalView(
        title=clean(f"{decision.checkpoint} against {decision.baseline}"),
        subtitle=clean(
            f"suite {outcome.suite.id} ({outcome.suite.digest[:12]}) · role {identity.role} · split {identity.split} · "
            f"seed {identity.seed}"
        ),
        release=clean(decision.release),
        passes=decision.passes,
        tiles=_tiles(outcome),
        reasons=_clean_all(decision.reasons),
        would_change=_clean_all(decision.would_change),
        also=_clean_all(decision.also),
        questions=_questions(outcome),
        metrics=tuple(_metric_row(spec, outcome.evidence.metrics.get(spec.name)) for spec in outcome.suite.metrics),
        basis=clean(decision.basis, LONG),
        gates=tuple(_gate(finding) for finding in decision.findings),
        problems=_clean_all(decision.problems),
        badcases=_badcases(outcome),
        examples=_examples(outcome),
        items=tuple(_items(one) for one in outcome.benchmarks),
        items_note=_items_note(outcome),
        attempts=tuple(
            _attempt_row(one.name, side, one.attempts[side]) for one, side in _sides(outcome, attempts=True)
        ),
        attempt_gaps=_clean_all(
            dict.fromkeys(
                f"{one.name}: {gap}" for one, side in _sides(outcome, attempts=True) for gap in one.attempts[side].gaps
            )
        ),
        cost=tuple(_cost_row(one.name, side, one.summaries[side]) for one, side in _sides(outcome)),
        drops=drops[:MAX_ITEMS],
        n_drops=len(drops),
        skipped=_clean_all(outcome.skipped),
        protocols=tuple(_protocol_row(one) for one in outcome.benchmarks),
        provenance=_provenance(outcome),
        cards=tuple((one.name, side, one.cards[side]) for one, side in _sides(outcome)),
        notes=_clean_all(decision.notes),
        limits=_clean_all(limits_of_numbers(outcome)),
    )


def summary_rows(outcome: SuiteOutcome) -> list[tuple[str, str]]:
    """The result in rows of (name, value), for the terminal."""
    rows = [
        (metric.name, tell_change(found.old, found.new, metric.unit))
        for metric in outcome.suite.metrics
        if (found := outcome.evidence.metrics.get(metric.name)) is not None
    ]
    rows += [(f"gate {finding.gate}", finding.state.value) for finding in outcome.decision.findings if finding.fired]
    rows.append(("training action", outcome.decision.training_action.value))
    return [(clean(name), clean(value)) for name, value in rows]


def _tiles(outcome: SuiteOutcome) -> tuple[Row, ...]:
    decision, primary = outcome.decision, outcome.suite.primary
    found = outcome.evidence.metrics.get(primary.name)
    told = tell_change(found.old, found.new, primary.unit) if found is not None else "missing"
    values, _, change = told.partition(" (")
    n_fired, n_open = len(decision.fired), sum(f.state is GateState.NOT_EVALUATED for f in decision.findings)
    open_words = f"; {n_open} not evaluated" if n_open else ""
    return (
        ("release decision", clean(decision.release), "ships" if decision.release == RELEASE else _passes(outcome)),
        ("training action", decision.training_action.value.replace("_", " "), _training_words(outcome)),
        (clean(f"{primary.name} (primary)"), change.removesuffix(")") or DASH, f"{values} {_interval(primary, found)}"),
        ("gates", f"{n_fired} fired", f"of {len(decision.findings) - n_open} evaluated{open_words}"),
    )


def _passes(outcome: SuiteOutcome) -> str:
    return "passes; a release needs more" if outcome.decision.passes else "does not pass"


def _training_words(outcome: SuiteOutcome) -> str:
    is_free = outcome.decision.training_action is TrainingAction.CONTINUE
    return "no gate asks for a pause" if is_free else "a gate asks for it"


def _questions(outcome: SuiteOutcome) -> tuple[Row, ...]:
    answers = outcome.decision.answers
    return tuple(
        (question, clean(answer, LONG))
        for question, answer in (
            ("Did capabilities improve?", answers.capabilities_improved),
            ("Are preferences aligned?", answers.preferences_aligned),
            ("Is the reward distorted?", answers.reward_distorted),
            ("May training go on?", answers.may_continue_training),
            ("May it be deployed?", answers.may_be_deployed),
            ("Where should the next data come from?", answers.next_data_from),
        )
    )


def _metric_row(spec: MetricSpec, found: MetricEvidence | None) -> Row:
    if found is None:
        return (clean(spec.name), _role(spec), "not measured", DASH, DASH, DASH, DASH, DASH, DASH)
    pair, n_missing = found.paired, found.n_missing_old + found.n_missing_new
    return (
        clean(spec.name),
        _role(spec),
        clean(tell_change(found.old, found.new, spec.unit) + (f"; {found.problem}" if found.problem else "")),
        _interval(spec, found),
        p_words(pair.p_value) if pair is not None else DASH,
        DASH if pair is None or (kind := change_kind(spec, found)) == "neither" else kind,
        str(found.n_items) if found.n_items is not None else DASH,
        str(n_missing) if found.n_items is not None else DASH,
        DASH if found.noise is None else f"±{_amount(spec, found.noise, found.old).lstrip('+')}",
    )


def _role(spec: MetricSpec) -> str:
    words = spec.role.value.replace("_", " ")
    return f"{words}, safety" if spec.is_safety else f"{words} of {spec.scope}" if spec.scope else words


def _interval(spec: MetricSpec, found: MetricEvidence | None) -> str:
    if found is None or found.paired is None:
        return "no pairs"
    pair = found.paired
    return f"[{_amount(spec, pair.low, found.old)}, {_amount(spec, pair.high, found.old)}]"


def _amount(spec: MetricSpec, amount: float, old: float | None) -> str:
    """A difference with sign: points for rates, percent of the old value for the rest."""
    if spec.unit is Unit.RATE:
        return f"{100 * amount + 0.0:+.1f}"
    return f"{100 * amount / abs(old):+.1f}%" if old else f"{amount:+.3g}"


def _gate(finding: Finding) -> GateView:
    effects = [finding.effects.release, finding.effects.training.value] if finding.fired else []
    return GateView(
        name=clean(finding.gate),
        verdict=VERDICT_OF_STATE[finding.state],
        state=finding.state.value,
        what=clean(f"{', '.join(finding.inputs) or 'nothing'} (on {finding.on})", LONG),
        rule=clean(finding.rule, LONG),
        evidence=clean("; ".join((finding.evidence, *finding.problems)), LONG),
        effects=clean(", ".join(effect for effect in effects if effect not in ("none", "continue"))),
        would_change=clean(finding.would_change, LONG),
    )


def _badcases(outcome: SuiteOutcome) -> tuple[Row, ...]:
    counts = sorted((outcome.evidence.badcases or {}).items(), key=lambda pair: (-pair[1], pair[0]))
    causes = outcome.suite.failure_taxonomy
    return tuple(
        (
            clean(name),
            str(n),
            causes[name].value if name in causes else "not in the suite's taxonomy",
            clean(", ".join(f"{one.item_id} ({one.benchmark})" for one in outcome.examples.get(name, ())), LONG),
        )
        for name, n in counts
        if n > 0
    )


def is_hidden(outcome: SuiteOutcome) -> bool:
    """Whether the evaluation played items that nobody may see."""
    return Split(outcome.identity.split) in HIDDEN_SPLITS


def _items_note(outcome: SuiteOutcome) -> str:
    shown = f"At most {MAX_ITEMS} lost and won items of each benchmark are shown; `agent2 regress` lists all."
    if is_hidden(outcome):
        return (
            f"{shown} The items are hidden ({outcome.identity.split}): their ids are shown, their questions, reference "
            "answers, the models' answers and the reasons of faults are left out."
        )
    return f"{shown} `agent2 cards show CARD --id ITEM` shows every turn of a rollout."


def _items(one: BenchmarkOutcome) -> ItemsView:
    digests = {one.protocols[side].digest for side in SIDES}
    unknown = f", {len(one.unknown)} solved before and without a score now" if one.unknown else ""
    words = f"{len(one.lost)} lost, {len(one.won)} won, of {one.summaries[BASELINE].n_items} items{unknown}"
    return ItemsView(
        benchmark=one.name,
        words=words if len(digests) == 1 else "not compared: the protocols of the two sides differ",
        n_lost=len(one.lost),
        n_won=len(one.won),
        lost=tuple(
            _item(one, change.item_id, (change.old_answer, change.new_answer)) for change in one.lost[:MAX_ITEMS]
        ),
        won=tuple(_item(one, change.item_id, (change.old_answer, change.new_answer)) for change in one.won[:MAX_ITEMS]),
    )


def _item(one: BenchmarkOutcome, item_id: str, answers: tuple[str | None, str | None]) -> ItemView:
    """answers: of the baseline and of the checkpoint; shown only where the item's text may be."""
    text = one.texts.get(item_id)
    if text is None:
        return ItemView(clean(item_id), ())
    texts = (("question", text.question), ("reference answer", text.reference or "(none is kept for this item)"))
    answered = (("baseline answered", answers[0] or NO_ANSWER), ("checkpoint answered", answers[1] or NO_ANSWER))
    return ItemView(clean(item_id), tuple(_text(name, value) for name, value in (*texts, *answered)))


def _text(name: str, value: str) -> TextView:
    text = clean_lines(value, MAX_TEXT)
    lines = text.split("\n")
    if len(lines) <= FOLD_LINES and len(text) <= FOLD_CHARACTERS:
        return TextView(name, text, "")
    head = "\n".join(lines[:FOLD_LINES])[:FOLD_CHARACTERS]
    return TextView(name, head, text[len(head) :].removeprefix("\n"))


def _examples(outcome: SuiteOutcome) -> tuple[tuple[str, tuple[ItemView, ...]], ...]:
    if is_hidden(outcome):
        return ()
    benchmarks = {one.name: one for one in outcome.benchmarks}
    found = []
    for label, examples in outcome.examples.items():
        items = []
        for each in examples:
            one = benchmarks[each.benchmark]
            text = one.texts[each.item_id]
            baseline, checkpoint = (text.answers[side] for side in SIDES)
            answers = (baseline.get(each.attempt, ""), checkpoint.get(each.attempt, ""))
            items.append(_item(one, each.item_id, answers))
        found.append((clean(label), tuple(items)))
    return tuple(found)


def _attempt_row(benchmark: str, side: str, found: AttemptMetrics) -> Row:
    passes, cost = found.passes, found.cost
    rates = (passes.pass_at_1, passes.pass_at_k, passes.pass_hat_k) if passes is not None else (None,) * 3
    tokens = DASH
    if cost is not None:
        tokens = f"{cost.tokens:.3g} tokens a point and item" if cost.tokens is not None else "nothing gained"
    return (
        benchmark,
        side,
        str(found.k),
        *(percent(rate.value) if rate is not None else DASH for rate in (*rates, found.majority)),
        f"{percent(found.best.chosen.value)} by {clean(found.best.selector)}" if found.best is not None else DASH,
        tokens,
    )


def _cost_row(benchmark: str, side: str, summary: CardSummary) -> Row:
    n_items = len(summary.item_scores)
    return (
        benchmark,
        side,
        str(summary.n_rollouts),
        str(summary.n_turns),
        str(summary.n_retries),
        str(summary.prompt_tokens),
        str(summary.completion_tokens),
        f"{summary.tokens / n_items:.1f} tokens" if n_items else DASH,
    )


def _drops(benchmarks: Iterable[BenchmarkOutcome], *, is_hidden: bool) -> tuple[Row, ...]:
    """The reason of a fault may quote the item, so that of a hidden one stays on the card."""
    return tuple(
        (
            one.name,
            side,
            clean(drop.item_id),
            str(drop.attempt),
            drop.fault.value if drop.fault is not None else "none",
            drop.counted.value.replace("_", " "),
            "on the card; it may quote a hidden item" if is_hidden else clean(drop.reason),
        )
        for one in benchmarks
        for side in SIDES
        for drop in one.summaries[side].drops
    )


def _protocol_row(one: BenchmarkOutcome) -> Row:
    old, new = (one.protocols[side] for side in SIDES)
    digests = new.digest[:16] if old.digest == new.digest else f"{old.digest[:16]} and {new.digest[:16]}: incomparable"
    drawn = new.sampling
    time = "" if new.max_wall_time_s is None else f", {new.max_wall_time_s:g} s a rollout"
    context = "" if new.context_length is None else f", context {new.context_length}"
    tools = ", ".join(f"{key} {value}" for key, value in new.tools.items())
    words = (
        f"{new.benchmark}, {new.split.value}, items {new.items_digest[:12]}; temperature {drawn.temperature:g}, "
        f"top-p {drawn.top_p:g}, {drawn.max_tokens} new tokens, {new.attempts} attempt(s){context}; at most "
        f"{new.max_turns} turn(s){time}, {new.retries} retry(s); {new.environment}, {new.scorer}; {new.dtype}, "
        f"chat template {new.chat_template_digest[:12]}" + (f"; tools: {tools}" if tools else "")
    )
    return (one.name, digests, clean(words, LONG))


def _provenance(outcome: SuiteOutcome) -> tuple[Row, ...]:
    rows = [
        (side, clean(f"{own.name} ({own.kind})"), own.digest)
        for side, own in ((name, outcome.identity.sides[name]) for name in (CHECKPOINT, BASELINE))
    ]
    rows.append(("suite", clean(outcome.suite.id), outcome.suite.digest))
    if outcome.identity.secret_digest is not None:
        rows.append(("installation secret", "hidden items derive from it", outcome.identity.secret_digest))
    return tuple(rows)


def _sides(outcome: SuiteOutcome, *, attempts: bool = False) -> list[tuple[BenchmarkOutcome, str]]:
    return [(one, side) for one in outcome.benchmarks for side in SIDES if not attempts or side in one.attempts]


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
    report: dict[str, Any] = report_dict(outcome.suite.metrics, outcome.evidence, outcome.decision)
    report["evaluation"] = evaluation_section(outcome)
    figure = change_svg(outcome.suite.metrics, outcome.evidence)
    fields = {
        "view": eval_view(outcome),
        "figure": figure,
        "metric_names": METRIC_NAMES,
        "cost_names": COST_NAMES,
        "attempt_names": ATTEMPT_NAMES,
        "drop_names": DROP_NAMES,
        "protocol_names": PROTOCOL_NAMES,
    }
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
