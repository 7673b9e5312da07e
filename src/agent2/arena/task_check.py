"""`agent2 tasks check`: proof that a task can be trusted before anybody is scored on it.

Checks the floor and the ceiling (a null player near 0, an oracle at 1, each through the real engine and
scorer), that a replay gives the same observations and verdicts, that the splits share no prompt, and that
hidden items change with the installation secret. Does not look at models: how hard the task is for one is
what its base score says.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent2 import installation
from agent2.arena.scoring import Exam
from agent2.arena.tasks import TaskSpec
from agent2.benchmarks import load_benchmark
from agent2.errors import ConfigError
from agent2.evaluation.engine import Attempt, PlaySettings, play
from agent2.models.scripted import ScriptedSampler
from agent2.records import HIDDEN_SPLITS, Item, Message, ScoredRollout, Split, digest_of

N_PLAYED = 200
"""Items of each split that the players play."""
FLOOR_AT_MOST = 0.05


@dataclass(frozen=True, slots=True)
class Finding:
    """One check and its verdict."""

    name: str
    ok: bool
    detail: str


def check_task(task: TaskSpec) -> list[Finding]:
    """Run every check on a task that questions can be played on. Needs no model and no network."""
    exam = Exam(task, load_benchmark(task.benchmark), installation.secret())
    items = {split: exam.items(split) for split in Split}
    played = [item for split in Split for item in items[split][:N_PLAYED]]
    oracle = {item.prompt: item.reference or "" for item in played}
    first = _play(exam, played, lambda messages: oracle[messages[-1].content])
    second = _play(exam, played, lambda messages: oracle[messages[-1].content])
    null = _play(exam, played, lambda messages: "")
    return [
        _bracket("ceiling: an oracle scores 1 on every item", first, lambda mean: mean == 1.0),
        _bracket("floor: an empty answer scores near 0", null, lambda mean: mean <= FLOOR_AT_MOST),
        Finding(
            "replay: same prompts and verdicts again", _verdicts(first) == _verdicts(second), f"{len(first)} rollouts"
        ),
        _disjoint(items),
        *(_secret_decides(exam, items[split], split) for split in sorted(HIDDEN_SPLITS)),
    ]


def examples(task: TaskSpec, n: int) -> list[Item]:
    """Visible example items."""
    return load_benchmark(task.benchmark).items(Split.TRAIN, n, secret=None)


def _play(exam: Exam, items: Sequence[Item], reply: Callable[[Sequence[Message]], str]) -> list[ScoredRollout]:
    benchmark = exam.benchmark
    settings = PlaySettings(sampling=benchmark.sampling, max_turns=benchmark.max_turns)
    attempts = [Attempt(item, 0, 0) for item in items]
    rollouts = play(attempts, ScriptedSampler(reply), benchmark.environment, benchmark.scorer(), settings)
    return sorted(rollouts, key=lambda scored: scored.rollout.item_id)


def _bracket(name: str, rollouts: Sequence[ScoredRollout], holds: Callable[[float], bool]) -> Finding:
    values = [scored.score.value for scored in rollouts if scored.score.value is not None]
    n_missing = len(rollouts) - len(values)
    if not values:
        return Finding(name, ok=False, detail=f"no score at all, {n_missing} missing")
    mean = sum(values) / len(values)
    return Finding(name, holds(mean) and n_missing == 0, f"{mean:.3f} over {len(values)} items, {n_missing} missing")


def _verdicts(rollouts: Sequence[ScoredRollout]) -> str:
    return digest_of([(r.rollout.item_id, r.rollout.prompt, r.rollout.state, r.score) for r in rollouts])


def _disjoint(items: dict[Split, list[Item]]) -> Finding:
    name = "splits share no prompt"
    owner: dict[str, Split] = {}
    for split, members in items.items():
        for item in members:
            if owner.setdefault(item.prompt, split) is not split:
                return Finding(name, ok=False, detail=f"{item.id} is in {owner[item.prompt].value} and {split.value}")
    return Finding(name, ok=True, detail=", ".join(f"{split.value} {len(members)}" for split, members in items.items()))


def _secret_decides(exam: Exam, items: Sequence[Item], split: Split) -> Finding:
    name = f"{split.value}: needs the installation secret"
    other = exam.benchmark.items(split, len(items), secret=b"another secret, for this check..")
    shared = len({item.prompt for item in items} & {item.prompt for item in other})
    try:
        exam.benchmark.items(split, len(items), secret=None)
    except ConfigError:
        is_refused = True
    else:
        is_refused = False
    detail = f"{shared} of {len(items)} items are the same under another secret"
    return Finding(name, is_refused and shared < len(items), detail)
