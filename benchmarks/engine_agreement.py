"""Installed engines beside this process on the same items: equal answers, scores, a crash in the middle, memory.

    python benchmarks/engine_agreement.py MODEL [--engines vllm llama-cpp] [--benchmark instructions] [--items 30]
    python benchmarks/engine_agreement.py MODEL --engines --gguf FILE.gguf

MODEL is a folder, or the name of a published model that is here. FILE.gguf, in 4 bits or others, is played as it is by
llama-cpp and compared with MODEL. Whole evaluations are played, of folders in float32:

- greedy: the share of answers that equal this process's. For each that differs, the first token that differs is looked
  for, and how much likelier this process finds its own than the engine's (in nats; 0 is a tie). What differs there by
  rounding is a tie or nearly one.
- sampled: `--draws` answers an item at the benchmark's own temperature. The engine's mean score less that of this
  process, with a 95% interval over items with their draws, beside the same difference of two halves of the draws of
  this process.
- crash: the greedy evaluation once more; every process of the engine is killed with -9 after a third of the answers.
  Counted are rollouts without an answer, doubled ones, and answers that the crash changed.
- memory: the largest sum over the engine's processes, four looks a second; of this process its own peak.

Exit code 1 if a crash loses or doubles anything, or the interval of a sampled difference does not contain 0.
"""

import argparse
import resource
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from scipy import stats

from agent2 import installation
from agent2.benchmarks import load_benchmark
from agent2.cards.reader import iter_rollouts
from agent2.engines.catalogue import ENGINES, IN_PROCESS, LLAMA_CPP
from agent2.engines.environments import engines_dir, installed_engine
from agent2.evaluation.plan import EvaluationPlan
from agent2.evaluation.runner import evaluate
from agent2.models.sources import LoadSettings, find_checkpoint
from agent2.records import (
    AnswerOffer,
    Benchmark,
    Completion,
    Item,
    JsonValue,
    Prompt,
    Sampler,
    SamplingSettings,
    ScoredRollout,
    Split,
)

CUT = "\ufffd"
"""What this process writes for the bytes of half a character; others leave them out."""


@dataclass(frozen=True, slots=True)
class Played:
    """One evaluation."""

    rollouts: list[ScoredRollout]
    seconds: float
    memory_gb: float
    n_restarts: int = 0

    def answers(self) -> dict[tuple[str, int], str | None]:
        """By item and attempt."""
        return {(r.rollout.item_id, r.rollout.attempt): _text(r) for r in self.rollouts}

    def scores(self, first: int, last: int) -> np.ndarray:
        """Draws x items, of these draws; a missing score is an error."""
        value = {(r.rollout.item_id, r.rollout.attempt): r.score.value for r in self.rollouts}
        items = sorted({item for item, _ in value})
        return np.array([[value[item, draw] for item in items] for draw in range(first, last)], dtype=float)

    @property
    def n_tokens(self) -> int:
        """Of all answers."""
        return sum(turn.completion_tokens or 0 for r in self.rollouts for turn in r.rollout.turns)


def _text(scored: ScoredRollout) -> str | None:
    return "".join(turn.action for turn in scored.rollout.turns) if scored.rollout.fault is None else None


class Killed:
    """A sampler whose engine is killed with -9 once, after so many answers."""

    def __init__(self, inner: Any, engine: str, after: int) -> None:
        self._inner, self._engine, self._left = inner, engine, after
        self.capacity: int = inner.capacity
        self.takes_tools: bool = inner.takes_tools
        self.n_killed = 0

    def submit(
        self, request_id: int, prompt: Prompt, settings: SamplingSettings, tools: Sequence[Mapping[str, JsonValue]] = ()
    ) -> None:
        """As the engine's."""
        self._inner.submit(request_id, prompt, settings, tools)

    def submit_answers(self, request_id: int, prompt: Prompt, offer: AnswerOffer) -> None:
        """As the engine's."""
        self._inner.submit_answers(request_id, prompt, offer)

    def collect(self) -> list[tuple[int, Completion]]:
        """As the engine's; kills it when it is time, while the rest is in flight."""
        done: list[tuple[int, Completion]] = self._inner.collect()
        self._left -= len(done)
        if self._left <= 0 and not self.n_killed:
            for process in processes_of(self._engine):
                with suppress(psutil.Error):
                    process.kill()
                    self.n_killed += 1
        return done

    def describe(self) -> dict[str, JsonValue]:
        """As the engine's."""
        facts: dict[str, JsonValue] = self._inner.describe()
        return facts

    def close(self) -> None:
        """As the engine's."""
        self._inner.close()


def processes_of(engine: str) -> list[psutil.Process]:
    """Processes below this one that run a program of the engine's environment, and their children."""
    folder = str(engines_dir() / engine / "bin")
    found: dict[int, psutil.Process] = {}
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "".join(child.cmdline()[:1]).startswith(folder):
                found |= {process.pid: process for process in [child, *child.children(recursive=True)]}
    return list(found.values())


class Setting:
    """Model, benchmark and items, the same for all."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.model, self.folder, self.capacity = options.model, folder, options.at_once
        self.benchmark: Benchmark = load_benchmark(options.benchmark)
        self.items: list[Item] = self.benchmark.items(Split.DEV, options.items, installation.secret())
        self.n_tokens, self.n_draws = options.tokens, options.draws
        self.n_cards = 0

    def play(self, engine: str, *, greedy: bool, kill: bool = False, file: str | None = None) -> Played:
        """One evaluation by an engine, or in this process. file: plays it in place of the model."""
        at_once = None if engine == IN_PROCESS else min(self.capacity, ENGINES[engine].capacity)
        settings = LoadSettings(engine=engine, max_in_flight=at_once, device="cpu")
        source = find_checkpoint(file or self.model, settings)
        own = self.benchmark.sampling
        limit = min(own.max_tokens, self.n_tokens)
        sampling = SamplingSettings(0.0, 1.0, limit) if greedy else SamplingSettings(own.temperature, own.top_p, limit)
        plan = EvaluationPlan(
            benchmark=self.benchmark,
            split=Split.DEV,
            items=self.items,
            checkpoint_name=source.name,
            checkpoint_digest=source.digest,
            chat_template_digest=source.chat_template_digest,
            dtype=source.dtype,
            attempts=1 if greedy else self.n_draws,
            sampling=sampling,
        )
        self.n_cards += 1
        card = self.folder / f"card-{self.n_cards}"
        sampler: Any = source.open()
        with closing(sampler), Memory(engine) as memory:
            player: Sampler = Killed(sampler, engine, len(self.items) // 3) if kill else sampler
            began = time.monotonic()
            evaluate(plan, player, card)
            seconds = time.monotonic() - began
            if isinstance(player, Killed) and not player.n_killed:
                raise SystemExit(f"{engine}: no process of it was found to kill")
            n_restarts = getattr(sampler, "n_restarts", 0)
        return Played(list(iter_rollouts(card)), seconds, memory.peak_gb, n_restarts)


class Memory:
    """The most that an engine's processes, or this one, held."""

    def __init__(self, engine: str) -> None:
        self._engine, self.peak_gb = engine, 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Memory":
        """Begin to look."""
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop."""
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(0.25):
            if self._engine == IN_PROCESS:
                self.peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
                continue
            held = 0
            for process in processes_of(self._engine):
                with suppress(psutil.Error):
                    held += process.memory_info().rss
            self.peak_gb = max(self.peak_gb, held / 1e9)


class Gaps:
    """How much likelier this process finds its own token than the engine's, where two answers part."""

    def __init__(self, model: str) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        folder = find_checkpoint(model, LoadSettings()).folder
        self._torch: Any = torch
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self._model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def nats(self, scored: ScoredRollout, other: str) -> tuple[int, float]:
        """Number of the first token that differs, and the difference of log-probabilities there."""
        tokenizer, end = self._tokenizer, self._tokenizer.eos_token_id
        messages = [{"role": message.role, "content": message.content} for message in scored.rollout.prompt]
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
        texts = (_text(scored), other)
        own, theirs = ([*tokenizer.encode(text, add_special_tokens=False), end] for text in texts)
        pairs = enumerate(zip(own, theirs, strict=False))
        position = next((k for k, (left, right) in pairs if left != right), min(len(own), len(theirs)))
        with self._torch.no_grad():
            logits = self._model(self._torch.tensor([[*prompt, *own[:position]]])).logits[0, -1]
        own_at = own[position] if position < len(own) else end
        their_at = theirs[position] if position < len(theirs) else end
        return position, float(logits[own_at] - logits[their_at])


def cost(played: Played) -> str:
    """Tokens, time and memory."""
    return f"{played.n_tokens} tokens in {played.seconds:.1f} s, {played.memory_gb:.2f} GB"


def interval(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float, float]:
    """Difference theirs - ours of mean scores in points, and its 95% interval over items with their draws (t)."""
    by_item = 100 * (theirs.mean(0) - ours.mean(0))
    error = float(by_item.std(ddof=1)) / by_item.size**0.5
    half = float(stats.t.ppf(0.975, by_item.size - 1)) * error
    delta = float(by_item.mean())
    return delta, delta - half, delta + half


def report_greedy(name: str, here: Played, there: Played, gaps: Gaps) -> None:
    """Print equal answers, and why the others differ."""
    own, theirs = here.answers(), there.answers()
    different = [r for r in here.rollouts if theirs[r.rollout.item_id, 0] != _text(r)]
    print(f"{name}: greedy answers equal to this process's: {len(own) - len(different)} of {len(own)}", flush=True)
    for scored in different:
        other = theirs[scored.rollout.item_id, 0]
        if other is None:
            print(f"  {scored.rollout.item_id}: no answer")
            continue
        if (_text(scored) or "").rstrip(CUT) == other.rstrip(CUT):
            print("  differs only in a character that the limit on tokens cut in two")
            continue
        position, nats = gaps.nats(scored, other)
        print(f"  differs from token {position} on; its own token is likelier by {nats:.2g} nats here")


def report_crash(name: str, there: Played, again: Played, n_items: int) -> bool:
    """Print what a crash did; whether nothing was lost and nothing doubled."""
    answers = again.answers()
    counts = Counter((r.rollout.item_id, r.rollout.attempt) for r in again.rollouts)
    n_lost = n_items - sum(text is not None for text in answers.values())
    n_doubled = sum(count - 1 for count in counts.values())
    n_same = sum(there.answers()[key] == text for key, text in answers.items())
    print(
        f"{name}: killed with -9 after a third: {n_lost} lost, {n_doubled} doubled, {again.n_restarts} restarts, "
        f"{n_same} of {n_items} answers as without the crash",
        flush=True,
    )
    return not n_lost and not n_doubled and again.n_restarts > 0


def main() -> int:
    """Play all, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--engines", nargs="*", choices=list(ENGINES), help="default: those that are installed")
    parser.add_argument("--benchmark", default="instructions")
    parser.add_argument("--items", type=int, default=30)
    parser.add_argument("--draws", type=int, default=4, help="an even number of sampled answers an item")
    parser.add_argument("--tokens", type=int, default=32, help="most tokens of an answer")
    parser.add_argument("--at-once", type=int, default=4, help="answers that an engine writes at once, at most")
    parser.add_argument("--gguf", help="FILE.gguf that llama-cpp plays as it is, beside MODEL")
    options = parser.parse_args()
    engines = options.engines
    if engines is None:
        engines = [name for name, engine in ENGINES.items() if installed_engine(engine) is not None]
    players: list[tuple[str, str | None]] = [(name, None) for name in engines]
    if options.gguf is not None:
        players.append((LLAMA_CPP, options.gguf))
    if not players:
        raise SystemExit("no engine is installed; agent2 engines install llama-cpp")
    is_sound = True
    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(options, Path(folder))
        greedy, sampled = setting.play(IN_PROCESS, greedy=True), setting.play(IN_PROCESS, greedy=False)
        half = options.draws // 2
        halves = sampled.scores(0, half), sampled.scores(half, options.draws)
        mean = 100 * sampled.scores(0, options.draws).mean()
        delta, low, high = interval(*halves)
        print(
            f"this process: {mean:.1f} points; half of its draws less the rest: {delta:+.1f} [{low:+.1f}, {high:+.1f}]"
        )
        print(f"this process: {cost(greedy)}", flush=True)
        gaps = Gaps(options.model)
        for engine, file in players:
            name = engine if file is None else f"{engine} on {Path(file).name}"
            there = setting.play(engine, greedy=True, file=file)
            report_greedy(name, greedy, there, gaps)
            print(f"{name}: {cost(there)}", flush=True)
            again = setting.play(engine, greedy=True, kill=True, file=file)
            is_sound &= report_crash(name, there, again, len(setting.items))
            drawn = setting.play(engine, greedy=False, file=file)
            delta, low, high = interval(sampled.scores(0, options.draws), drawn.scores(0, options.draws))
            is_within = low <= 0 <= high
            print(f"{name}: sampled score less this process's: {delta:+.1f} [{low:+.1f}, {high:+.1f}]", flush=True)
            is_sound &= is_within
    return int(not is_sound)


if __name__ == "__main__":
    sys.exit(main())
