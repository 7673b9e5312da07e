"""What RL has to go on before it starts: measures of a model on the train items of a task.

    measures = measure_readiness(model, load_benchmark(name), items, ReadinessSettings(), rules, work)

The model plays k attempts at each item at temperature 1, as RL would. From these: format, pass@1 and pass@k, groups
with different rewards, unanswerable items admitted, the same attempt judged twice, and the log-probabilities of the
sampler held against those of the trainer. The reward is probed with nothing, nonsense and the oracle. A preflight
trains a copy for ten updates on single-turn sums, so that a broken trainer is found before anything of several turns.

Promises: train items only, no hidden ones; the model's folder is not written to. Does NOT train on the task, and does
NOT play models behind an endpoint: the trainer's side needs weights.
"""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from agent2.benchmarks.home import Player, players_of
from agent2.errors import Agent2Error, ConfigError, first_line_of
from agent2.evaluation.check import play_items
from agent2.evaluation.engine import Attempt, PlaySettings
from agent2.evaluation.scoring import score_played
from agent2.models.hf import HfSampler
from agent2.models.loading import context_length
from agent2.records import Benchmark, Item, SamplingSettings, Score, ScoringMode, derive_seed, work_of
from agent2.scorers.reward_sum import is_unreadable
from agent2.stats.attempts import pass_metrics, tally
from agent2.training.episodes import ChatTokens, Episode, play_episodes
from agent2.training.offline import SftSettings, train_sft
from agent2.training.readiness_rules import Measured, ReadinessRules
from agent2.training.reference import to_batch, token_logprobs
from agent2.training.running import LogLine, load_for_training, use_threads

NONSENSE = ("", "qwv zzk ubb 0 0 0 qwv")
"""What the players that earn nothing write at every turn."""
N_PROBED = 24
"""Items that the reward is probed with."""
N_PROTOCOL = 2
"""Attempts at each item with the sampling of the benchmark's protocol."""
N_COMPARED = 48
"""Episodes whose log-probabilities are compared."""
COMPARED_AT_ONCE = 8
RATIO_EDGES = (0.5, 0.9, 0.99, 1.01, 1.1, 2.0)
"""Between which tokens are counted by trainer's over sampler's probability."""
PREFLIGHT_ROWS, PREFLIGHT_EPOCHS, PREFLIGHT_BATCH = 16, 5, 8
GRADED_SOLVED = 0.5
"""Reward from which on an attempt counts as solved where rewards are not just 0 and 1."""
LARGE_WEIGHTS = 20_000_000
"""From so many weights on the preflight trains an adapter at a lower rate."""

OnProgress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ReadinessSettings:
    """How much is played."""

    attempts: int = 8
    """At each item: the group of GRPO, and the k of pass@k."""
    seed: int = 0
    max_in_flight: int = 128


def measure_readiness(
    checkpoint: Path,
    benchmark: Benchmark,
    items: Sequence[Item],
    settings: ReadinessSettings,
    rules: ReadinessRules,
    on_progress: OnProgress = lambda message: None,
) -> dict[str, Measured]:
    """Every measure of `readiness.yaml` by name; what could not be measured has no value and a note.

    Raises ConfigError for no items, fewer than two attempts, or a folder that is no model.
    """
    if not items or settings.attempts < 2:
        raise ConfigError(f"readiness: {len(items)} items, {settings.attempts} attempts; give at least 1 and 2")
    use_threads()
    on_progress("probing the reward")
    measures = _probes(benchmark, items[:N_PROBED])
    model, tokenizer = load_for_training(checkpoint)
    measures["template_shows_prompt"] = _template(tokenizer, benchmark, items)
    if measures["template_shows_prompt"].value == 0.0:
        return measures
    on_progress("preflight: ten updates on single-turn questions")
    measures |= _preflight(checkpoint, settings.seed)
    try:
        chat = ChatTokens(tokenizer)
    except ConfigError as error:
        measures["template_shows_prompt"] = Measured(0.0, 0, str(error))
        return measures
    sampling = SamplingSettings(temperature=1.0, max_tokens=benchmark.sampling.max_tokens)
    context = context_length(model.config.get_text_config(decoder=True))
    lengths = [len(chat.opening(benchmark.environment().reset(item, 0))) for item in items]
    n_items = len(items)
    items = [item for item, length in zip(items, lengths, strict=True) if length + sampling.max_tokens <= context]
    measures["openings_fit"] = Measured(len(items) / n_items, n_items, f"longest {max(lengths)} of {context} tokens")
    if not items:
        return measures
    on_progress(f"playing {len(items)} items, {settings.attempts} attempts each")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with closing(HfSampler(checkpoint, max_batch=settings.max_in_flight, device=device)) as sampler:

        def play(sampling: SamplingSettings, n_attempts: int) -> Sequence[Episode]:
            play_settings = PlaySettings(sampling, benchmark.max_turns, settings.max_in_flight)
            attempts = _planned(items, n_attempts, settings.seed)
            return play_episodes(attempts, sampler, chat, benchmark.environment, play_settings, context).episodes

        episodes = play(sampling, settings.attempts)
        measures["protocol_score"] = _protocol_score(benchmark, play(benchmark.sampling, N_PROTOCOL))
    on_progress("judging")
    scores = _judged(benchmark, episodes)
    measures |= _attempts(episodes, scores, settings.attempts, rules)
    measures["reward_repeats"] = _repeats(benchmark, episodes, scores)
    on_progress("comparing sampler and trainer")
    measures["sampler_gap"] = _gap(model.to(device), episodes)
    return measures


def _planned(items: Sequence[Item], n_attempts: int, seed: int) -> list[Attempt]:
    """Groups of attempts, adjacent; members of a group share the world's seed, not that of sampling."""
    return [
        Attempt(
            item,
            number * n_attempts + k,
            derive_seed("readiness", seed, item.id, k),
            world_seed=derive_seed("readiness world", seed, item.id),
        )
        for number, item in enumerate(items)
        for k in range(n_attempts)
    ]


def _protocol_score(benchmark: Benchmark, episodes: Sequence[Episode]) -> Measured:
    """Mean score as the benchmark samples, which may be far above that at temperature 1."""
    values = [score.value for score in _judged(benchmark, episodes) if score.value is not None]
    if not values:
        return Measured(None, 0, "no attempt has a verdict")
    return Measured(float(np.mean(values)), len(values), benchmark.sampling.description)


def _probes(benchmark: Benchmark, items: Sequence[Item]) -> dict[str, Measured]:
    """The reward of nothing, of nonsense and of the oracle."""
    earned = [_mean_of_player(benchmark, items, _always(text)) for text in NONSENSE]
    nonsense = max(earned, key=lambda measured: -1.0 if measured.value is None else measured.value)
    return {"nonsense_score": nonsense, "reference_score": _oracle(benchmark, items)}


def _always(text: str) -> Player:
    return lambda item, chat: text


def _oracle(benchmark: Benchmark, items: Sequence[Item]) -> Measured:
    try:
        player = players_of(benchmark).oracle
    except ConfigError as error:
        return Measured(None, 0, str(error))
    if benchmark.max_turns == 1 and all(item.reference is None for item in items):
        return Measured(None, 0, "the train items have no reference answers")
    return _mean_of_player(benchmark, items, player)


def _mean_of_player(benchmark: Benchmark, items: Sequence[Item], player: Player) -> Measured:
    try:
        scored = play_items(benchmark, items, lambda item, world, chat: player(item, chat))
    except Agent2Error as error:  # a player may not fit the benchmark; what it would earn is then not known
        return Measured(None, 0, str(error))
    values = [record.score.value for record in scored if record.score.value is not None]
    if not values:
        return Measured(None, 0, scored[0].score.reason if scored else "nothing was played")
    return Measured(float(np.mean(values)), len(values))


def _preflight(checkpoint: Path, seed: int) -> dict[str, Measured]:
    """Ten updates on sums: whether the loss falls, and which parameters have no gradient."""
    rows = [{"prompt": f"What is {n} + {2 * n}?", "answer": str(3 * n)} for n in range(PREFLIGHT_ROWS)]
    n_bytes = sum(file.stat().st_size for file in checkpoint.glob("*.safetensors"))
    is_large = n_bytes > 4 * LARGE_WEIGHTS
    training = SftSettings(
        epochs=PREFLIGHT_EPOCHS,
        batch_size=PREFLIGHT_BATCH,
        learning_rate=5e-4 if is_large else 1e-3,
        warmup_steps=0,
        log_every_steps=1,
        lora_rank=8 if is_large else 0,
        seed=seed,
    )
    lines: list[LogLine] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            train_sft(checkpoint, rows, Path(folder) / "run" / "model", training, lines.append)
        except (Agent2Error, ValueError, RuntimeError) as error:  # whatever breaks a trainer is the finding here
            broken = Measured(0.0, 0, f"the trainer failed: {first_line_of(error)}")
            return {"preflight_loss_fall": broken, "parameters_without_gradient": Measured(None, 0, broken.note)}
    losses = [float(line["loss"]) for line in lines]
    first, last = float(np.mean(losses[:2])), float(np.mean(losses[-2:]))
    is_sound = np.isfinite(losses).all() and first > 0
    n_without = [float(line["parameters_without_gradient"]) for line in lines if "parameters_without_gradient" in line]
    return {
        "preflight_loss_fall": Measured(
            1 - last / first if is_sound else 0.0, len(losses), f"loss {first:.3g} -> {last:.3g}"
        ),
        "parameters_without_gradient": Measured(n_without[-1] if n_without else None, len(n_without)),
    }


def _template(tokenizer: Any, benchmark: Benchmark, items: Sequence[Item]) -> Measured:
    """Share of openings whose last message survives the chat template, blanks aside."""
    is_shown = []
    for item in items[:N_PROBED]:
        opening = benchmark.environment().reset(item, 0)
        chat = [{"role": message.role, "content": message.content} for message in opening]
        try:
            text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # templates are programs of strangers: jinja raises whatever they do
            return Measured(0.0, 0, f"the chat template fails: {first_line_of(error)}")
        is_shown.append("".join(opening[-1].text.split()) in "".join(str(text).split()))
    return Measured(float(np.mean(is_shown)), len(is_shown))


def _judged(benchmark: Benchmark, episodes: Sequence[Episode]) -> list[Score]:
    """A verdict on each episode, in their order."""
    pairs = [(episode.item, episode.rollout) for episode in episodes]
    by_number = {record.rollout.attempt: record.score for record in score_played(pairs, benchmark.scorer())}
    return [by_number[episode.rollout.attempt] for episode in episodes]


def _attempts(
    episodes: Sequence[Episode], scores: Sequence[Score], n_attempts: int, rules: ReadinessRules
) -> dict[str, Measured]:
    """What the attempts show: verdicts, format, signal, admitted gaps."""
    groups = [scores[start : start + n_attempts] for start in range(0, len(scores), n_attempts)]
    values_IA = [[score.value for score in group] for group in groups]
    n_missing = sum(score.value is None for score in scores)
    measures = {"missing_share": Measured(n_missing / len(scores), len(scores))}
    n_solid = [sum(value is not None for value in row) for row in values_IA]
    if any(n_solid):
        is_graded = any(value not in (0.0, 1.0, None) for row in values_IA for value in row)
        bar = GRADED_SOLVED if is_graded else 1.0
        solved = tally([[None if value is None else float(value >= bar) for value in row] for row in values_IA])
        k = min(n_attempts, max(n_solid))
        passed = pass_metrics(solved, k)
        measures["pass_at_1"] = _estimate(passed.pass_at_1)
        measures["pass_at_k"] = _estimate(passed.pass_at_k, f"k = {k}" + (f", from {bar:g} on" if is_graded else ""))
        differ = [len({value for value in row if value is not None}) > 1 for row in values_IA]
        measures["signal_share"] = Measured(float(np.mean(differ)), len(differ))
    n_read = [_readable(episode, score, rules) for episode, score in zip(episodes, scores, strict=True)]
    n_messages = sum(max(1, len(episode.actions)) for episode in episodes)
    measures["format_rate"] = Measured(sum(n_read) / n_messages, n_messages)
    admitted = [
        admission
        for episode, score in zip(episodes, scores, strict=True)
        if (admission := _admission(episode.item, score)) is not None
    ]
    measures["unanswerable_admitted"] = (
        Measured(float(np.mean(admitted)), len(admitted))
        if admitted
        else Measured(None, 0, "the task has no items that are known to be unanswerable")
    )
    return measures


def _estimate(estimate: Any, note: str = "") -> Measured:
    interval = "" if estimate.low is None else f"{estimate.low:.3f} to {estimate.high:.3f}"
    return Measured(estimate.value, estimate.n, ", ".join(part for part in (note, interval) if part))


def _readable(episode: Episode, score: Score, rules: ReadinessRules) -> int:
    """Messages of an episode that were ended by the model and understood."""
    if is_unreadable(score, rules.format_labels):
        return 0
    return max(0, len(episode.actions) - episode.n_unterminated - int(episode.state.get("n_invalid", 0)))


def _admission(item: Item, score: Score) -> float | None:
    """Whether an attempt at an unanswerable item says so; None for answerable items."""
    if score.views.get("asked_no_answer"):
        return score.views.get("exact")
    calls = item.payload.get("gold")
    return score.value if isinstance(calls, list) and not calls else None


def _repeats(benchmark: Benchmark, episodes: Sequence[Episode], scores: Sequence[Score]) -> Measured:
    if work_of(benchmark.scorer()).mode is ScoringMode.BATCH:
        return Measured(None, 0, "the scorer asks a judge, which may cost money; it is not asked twice")
    again = _judged(benchmark, episodes[: 2 * N_PROBED])
    alike = [first.value == second.value for first, second in zip(scores, again, strict=False)]
    return Measured(float(np.mean(alike)), len(alike))


@torch.no_grad()
def _gap(model: Any, episodes: Sequence[Episode]) -> Measured:
    """Largest difference between what sampler and trainer say of a sampled token; mean and ratios in the note."""
    model.eval()
    compared = sorted((e for e in episodes if any(e.is_sampled)), key=lambda episode: episode.n_tokens)[:N_COMPARED]
    differences: list[NDArray[np.float64]] = []
    for start in range(0, len(compared), COMPARED_AT_ONCE):
        rows = compared[start : start + COMPARED_AT_ONCE]
        batch = to_batch(
            [[*e.prompt_ids, *e.completion_ids] for e in rows],
            [[False] * len(e.prompt_ids) + e.is_sampled for e in rows],
            [[0.0] * len(e.prompt_ids) + e.logprobs for e in rows],
            pad=0,
        ).to(model.device)
        gaps = (token_logprobs(model, batch, 1.0) - batch.old_logprobs_NT)[batch.is_learned_NT]
        differences.append(gaps.double().cpu().numpy())
    gaps_N = np.concatenate(differences) if differences else np.zeros(0)
    return gap_of(gaps_N)


def gap_of(gaps_N: NDArray[np.float64]) -> Measured:
    """The largest of the differences of log-probabilities (trainer - sampler, nats), with their mean size.

    The note also counts the tokens by the ratio of the two probabilities, by which GRPO weighs a token.
    """
    if not gaps_N.size:
        return Measured(None, 0, "no token was sampled")
    sizes = np.abs(gaps_N)
    counts, _ = np.histogram(np.exp(np.clip(gaps_N, -50, 50)), bins=[0.0, *RATIO_EDGES, np.inf])
    ends = [f"below {RATIO_EDGES[0]:g}", *(f"to {edge:g}" for edge in RATIO_EDGES[1:]), f"above {RATIO_EDGES[-1]:g}"]
    ratios = ", ".join(f"{end} {count}" for end, count in zip(ends, counts, strict=True) if count)
    return Measured(float(sizes.max()), gaps_N.size, f"mean {sizes.mean():.2g}; ratios trainer/sampler: {ratios}")
