"""Grounding: an agent's statements and calls against its task and the results of its tools.

`claims` reads episodes and matches claims; `tool_results`, `actions` and `detectors` contain the checks, `detectors`
their table. `GroundedScorer` makes a reward of them, and `GroundingJudge` asks a model where nothing can be matched.
`agent2 cards ground CARD` prints their findings.
"""

from collections.abc import Sequence
from typing import Any

from agent2.errors import Fault
from agent2.records import Item, Rollout, Score, ScorerOutput
from agent2.scorers.grounding.detectors import DETECTORS, findings_of
from agent2.scorers.grounding.episodes import ToolEpisode, read_episode
from agent2.scorers.grounding.tool_results import GroundingFinding
from agent2.scorers.judge_model import UnreadableVerdict, read_verdict
from agent2.scorers.judges import ModelJudge, is_quoted, joined_text, joined_texts

LABEL_PREFIX = "ungrounded_"
JUDGED = "judged_result"
"""Detector name of a judge's findings."""


class GroundedScorer:
    """1.0 if no detector finds anything in a tool episode, else 0.0: fidelity to tool results as a reward.

    It does not judge whether the task was done: an agent that does nothing is grounded. Use it together with the
    benchmark's own scorer (`task_set`, or as a second card by `agent2 cards rescore`).
    """

    name = "grounded"
    version = "1.0"
    emits = ScorerOutput(
        views=frozenset({"ungrounded_findings"}), labels=frozenset(LABEL_PREFIX + name for name in DETECTORS)
    )

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict; a judge fault for a rollout without tools."""
        episode = read_episode(rollout)
        if episode is None:
            return Score(None, f"item {item.id}: no tool calls recorded or written; score it otherwise", Fault.JUDGE)
        findings = findings_of(episode, item)
        reason = (
            f"{findings[0].detector} in turn {findings[0].turn}: {findings[0].what[:100]!r}"
            if findings
            else "nothing found"
        )
        labels = sorted({LABEL_PREFIX + finding.detector for finding in findings})
        more = f"; {len(findings) - 1} more" if len(findings) > 1 else ""
        return Score(
            float(not findings),
            reason + more,
            views={"ungrounded_findings": float(len(findings))},
            labels=tuple(labels),
        )


class GroundingJudge(ModelJudge):
    """Asks a model whether the agent's messages follow from task and tool results.

    Settings: `model`, `prompt` (of kind rating, from 0 to 1), and those of `JudgeModel`.
    """

    name = "grounding_judge"
    kinds = ("rating",)

    def __init__(self, model: str = "", prompt: str = "grounding", **settings: Any) -> None:
        """Raises ConfigError and CheckpointError, see `JudgeModel` and `load_prompt`."""
        super().__init__(model, prompt, **settings)

    def findings(self, episodes: Sequence[ToolEpisode]) -> list[list[GroundingFinding] | str]:
        """The unsupported statements of each episode; a reason where the judge gave no verdict. Raises nothing.

        A verdict against an answer counts only with a quotation from it.
        """
        to_judge = [
            index
            for index, episode in enumerate(episodes)
            if any(not statement.is_thought for statement in episode.statements)
        ]
        texts = [_texts(episodes[index]) for index in to_judge]
        answers = self.judge.ask_for_verdicts([self._messages(fields) for fields in texts], joined_texts(texts))
        results: list[list[GroundingFinding] | str] = [[] for _ in episodes]
        for index, fields, answer in zip(to_judge, texts, answers, strict=True):
            try:
                verdict = read_verdict(answer.completion, joined_text(fields))
            except UnreadableVerdict as error:
                results[index] = str(error)
                continue
            results[index] = _findings_of_judge(episodes[index], verdict)
        return results


def _texts(episode: ToolEpisode) -> dict[str, str]:
    results = [
        f"turn {call.turn}: {call.name} {dict(call.arguments)} -> "
        + (str(call.result) if call.error is None else f"error {call.error} {call.detail}")
        for call in episode.calls
    ]
    results += [f"turn {turn}, the user: {text}" for turn, text in episode.responses]
    messages = [
        f"turn {statement.turn}: {statement.text}" for statement in episode.statements if not statement.is_thought
    ]
    return {
        "instruction": episode.opening,
        "reference": "\n".join(results) or "no results",
        "answer": "\n".join(messages),
    }


def _findings_of_judge(episode: ToolEpisode, verdict: Any) -> list[GroundingFinding] | str:
    points, quote = verdict.get("verdict"), str(verdict.get("quote") or "")
    if points not in (0, 1) or isinstance(points, bool):
        return f"the judge's verdict is {points!r}, not 0 or 1"
    if points == 1:
        return []
    quoting = [
        statement
        for statement in episode.statements
        if not statement.is_thought and quote.strip() and is_quoted(quote, statement.text)
    ]
    if not quoting:
        return "the judge quotes nothing of what was said"
    return [
        GroundingFinding(
            JUDGED, quoting[0].turn, quote, f"a model says: {str(verdict.get('why') or 'unsupported')[:300]}"
        )
    ]
