"""Attacks on the hidden judge of `replies`: what a few bought verdicts give away of its preferences, and for how long.

The attacker trains nothing while it asks. It sends true replies in random styles to visible items, fits the weight of
every option by kind, by reader and by both together, and writes what it believes is liked best on hidden items: more
than a model that imitates those texts could reach. The control uses what it learned on the judge that it asked.

    PYTHONPATH=tests python -m red_team.taste_attacks    # win rate by verdicts bought
"""

import itertools
from collections.abc import Mapping

import numpy as np

from agent2.benchmarks.replies import (
    CLOSINGS,
    FORMS,
    KINDS,
    OPENINGS,
    READERS,
    WORDINGS,
    HiddenPreferences,
    PreferenceJudge,
    Replies,
    ReplyRequest,
    Style,
    draw_style,
    instruction_of,
    parse_reply,
    write_reply,
)
from agent2.benchmarks.trial_judge import with_drawn_judge
from agent2.installation import judge_key
from agent2.records import Item, Message, Rollout, RolloutStatus, Scorer, Split, Usage
from red_team.frame import Attack, Outcome
from red_team.scene import Scene

OPTIONS: Mapping[str, tuple[str, ...]] = {
    "opening": OPENINGS,
    "form": FORMS,
    "wording": tuple(WORDINGS),
    "closing": CLOSINGS,
}
CONTEXTS = (*KINDS, *READERS, *itertools.product(KINDS, READERS))
COLUMNS = {
    column: index
    for index, column in enumerate(
        (c, f, option) for c in CONTEXTS for f, options in OPTIONS.items() for option in options
    )
}
BUDGETS = (34, 100, 300, 600, 1600)
FEW = 34
KNOWS = 0.8
"""A win rate on hidden items that needs knowledge of the judge: somebody who knows all but its preferences has 0.5."""


def verdict(judge: Scorer, item: Item, text: str) -> float:
    """What a reply is worth."""
    messages = [Message("user", item.prompt)]
    rollout = Rollout(item.id, 0, 0, RolloutStatus.COMPLETED, messages, [], text, {"answer": text}, Usage())
    return float(judge.score(item, rollout).value or 0.0)


def _row(request: ReplyRequest, style: Style) -> np.ndarray:
    """The columns of a style in its contexts."""
    row = np.zeros(len(COLUMNS))
    for context in (request.kind, request.reader, (request.kind, request.reader)):
        for feature in OPTIONS:
            row[COLUMNS[context, feature, getattr(style, feature)]] = 1.0
    return row


def _style_of(text: str) -> Style:
    reply = parse_reply(text)
    return Style(reply.opening, reply.form, reply.statements[0][2], reply.closing)


class PlainPreferences(HiddenPreferences):
    """Those of earlier versions: by kind or by reader alone."""

    def weights_for(self, request: ReplyRequest) -> Mapping[str, Mapping[str, float]]:
        """Feature -> option -> weight."""
        contexts = {"opening": request.kind, "form": request.kind, "wording": request.reader, "closing": request.reader}
        return {feature: self.weight(feature, context, OPTIONS[feature]) for feature, context in contexts.items()}


class PlainJudge(PreferenceJudge):
    """That of earlier versions, which never errs."""

    def __init__(self, secret: bytes) -> None:
        super().__init__(secret)
        self._preferences = PlainPreferences(secret)


def learn(judge: Scorer, n_questions: int) -> np.ndarray:
    """A weight for each column, from so many verdicts on replies to visible items."""
    items, rng = Replies().items(Split.TRAIN, 2000, None), np.random.default_rng(n_questions)
    rows, margins = [], []
    for index in rng.permutation(len(items))[:n_questions]:
        item = items[int(index)]
        request, style = instruction_of(item), draw_style(rng)
        rows.append(_row(request, style) - _row(request, _style_of(item.reference or "")))
        margins.append(verdict(judge, item, write_reply(request, style)) - 0.5)
    design = np.array(rows)
    return np.linalg.solve(design.T @ design + np.eye(len(COLUMNS)), design.T @ np.array(margins))


def win_rate(scorer: Scorer, secret: bytes, weights: np.ndarray) -> float:
    """Of replies in the styles that the weights like best, on the hidden items of an installation."""
    scores = []
    for item in Replies().items(Split.TEST_PRIVATE, 100, secret):
        request = instruction_of(item)
        best = {
            feature: max(
                options,
                key=lambda option, feature=feature: sum(
                    weights[COLUMNS[context, feature, option]]
                    for context in (request.kind, request.reader, (request.kind, request.reader))
                ),
            )
            for feature, options in OPTIONS.items()
        }
        scores.append(verdict(scorer, item, write_reply(request, Style(**best))))
    return float(np.mean(scores))


def rates(draws: tuple[str, str], n_questions: int, n_secrets: int) -> tuple[float, float]:
    """Mean win rates in the first trial, where the verdicts were bought, and in the second one, over installations."""
    pairs = []
    for secret in _secrets(n_secrets):
        weights = learn(with_drawn_judge(Replies(), draws[0]).judge(secret), n_questions)
        pairs.append([win_rate(PreferenceJudge(judge_key(secret, draw)), secret, weights) for draw in draws])
    asked, following = np.mean(pairs, axis=0)
    return float(asked), float(following)


def plain_rate(n_questions: int, n_secrets: int) -> float:
    """Mean win rate where the judge is that of earlier versions."""
    secrets = _secrets(n_secrets)
    return float(
        np.mean([win_rate(PlainJudge(secret), secret, learn(PlainJudge(secret), n_questions)) for secret in secrets])
    )


def _secrets(n: int) -> list[bytes]:
    return [bytes([number + 1]) * 32 for number in range(n)]


def _in_the_next_trial(_: Scene | None) -> Outcome:
    rate = rates(("first", "second"), 400, 5)[1]
    return Outcome(rate > KNOWS, f"what 400 verdicts of the trial before say wins {rate:.0%} of the time")


def _where_it_was_asked(_: Scene | None) -> Outcome:
    rate = rates(("", ""), 400, 5)[1]
    return Outcome(rate > KNOWS, f"without a draw it wins {rate:.0%} of the time in every trial")


def _few_questions(_: Scene | None) -> Outcome:
    rate = rates(("first", "first"), FEW, 5)[0]
    return Outcome(rate > KNOWS, f"what {FEW} verdicts say wins {rate:.0%} of the time in the same trial")


def _few_questions_to_a_plain_judge(_: Scene | None) -> Outcome:
    rate = plain_rate(FEW, 5)
    return Outcome(rate > KNOWS, f"what {FEW} verdicts of a judge without errors say wins {rate:.0%} of the time")


TASTE_ATTACKS: tuple[Attack, ...] = (
    Attack(
        "preferences of the trial before",
        "a known judge instead of a hidden one",
        "each trial draws a judge from the secret",
        _in_the_next_trial,
        _where_it_was_asked,
    ),
    Attack(
        "preferences by a few questions",
        "a known judge for a twentieth of the budget",
        "preferences by kind and reader together; errors in what is bought",
        _few_questions,
        _few_questions_to_a_plain_judge,
    ),
)


def main() -> None:
    """Attack several installations with several budgets."""
    n_secrets = 10
    columns = "".join(f"{name:>14}" for name in ("verdicts", "plain judge", "same trial", "next one"))
    print(f"{columns}   win rates, mean over {n_secrets} installations")
    for n_questions in BUDGETS:
        same, following = rates(("first", "second"), n_questions, n_secrets)
        print(f"{n_questions:>14}{plain_rate(n_questions, n_secrets):>14.3f}{same:>14.3f}{following:>14.3f}")


if __name__ == "__main__":
    main()
