"""The figure of an agent's LLM calls: when each ran, and how many tokens had been used by then."""

from collections.abc import Sequence

from agent2.arena.evidence import LlmCall, TrialEvidence
from agent2.arena.gateway.read import Outcome
from agent2.reports.charts import BLUE, GREEN, ORANGE, as_svg, drawing, time_unit

MAX_CALLS = 2_000


def llm_svg(evidence: TrialEvidence) -> str | None:
    """Calls as bars over time, those that failed in another colour, and tokens so far; None without a call."""
    calls = evidence.llm.calls[:MAX_CALLS] if evidence.llm is not None else ()
    if not calls:
        return None
    with drawing(8.2, 2.6) as figure:
        axes = figure.subplots()
        axes.patch.set_alpha(0)
        unit, unit_name = time_unit(evidence.ended_at - evidence.started_at)
        start = evidence.started_at
        for colour, label, chosen in _groups(calls):
            if chosen:
                begins = [(call.t - start) / unit for call in chosen]
                lengths = [(call.seconds or 0.0) / unit for call in chosen]
                axes.barh([call.number for call in chosen], lengths, left=begins, color=colour, height=0.8, label=label)
                axes.plot(begins, [call.number for call in chosen], "|", color=colour, markersize=9)
        axes.set_ylabel("call")
        axes.set_xlabel(f"{unit_name} since the agent started")
        axes.set_xlim(left=0)
        tokens = axes.twinx()
        sums, total = [], 0
        for call in calls:
            total += call.tokens.total
            sums.append(total)
        ends = [(call.t + (call.seconds or 0.0) - start) / unit for call in calls]
        tokens.step(ends, sums, where="post", color=GREEN, linewidth=1.6, label="tokens so far")
        tokens.set_ylabel("tokens")
        tokens.set_ylim(bottom=0)
        tokens.spines["right"].set_visible(True)
        pairs = [axis.get_legend_handles_labels() for axis in (axes, tokens)]
        figure.legend(
            pairs[0][0] + pairs[1][0], pairs[0][1] + pairs[1][1], loc="outside upper left", ncols=3, fontsize=9
        )
        return as_svg(figure, "llm", f"{len(calls)} LLM calls over time, {total} tokens")


def _groups(calls: Sequence[LlmCall]) -> tuple[tuple[str, str, list[LlmCall]], ...]:
    good = [call for call in calls if call.outcome == Outcome.OK]
    return ((BLUE, "answered", good), (ORANGE, "not answered in full", [c for c in calls if c.outcome != Outcome.OK]))
