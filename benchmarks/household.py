"""How fast household games are played: the engine alone, and a whole evaluation of a model.

    python benchmarks/household.py [--model DIR] [--games 128] [--stock-games 12] [--engine-only]

First table, the engine: the same random commands in the same games on the stock alfworld engine and on ours. Every
observation is compared; a difference ends the program. Turns/s include loading.

Second table, an evaluation of the tiny model: the same games, greedily played, so that every way has to give the
same episodes (those that differ are counted: float noise may turn a tie).
    published    stock engine, one game and one prompt at a time, `model.generate` from the first token each turn
    serial       the same on our engine
    one at once  our rollout engine and sampler with one game in flight
    no cache     all games in flight, every prompt computed from its first token
    batched      all games in flight, the key-value cache survives turns
The goal is on batched against published; the ratio to serial beside it leaves out what the engine alone gains. Ratios
are of CPU time, which other programs disturb less (each way runs in one thread, so an idle core gives the same on the
clock). Engines begin without any game in memory. About two minutes on an idle core.

Exit code 1 if a goal is missed.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agent2.benchmarks import BASE_MODELS
from agent2.benchmarks.household import Household
from agent2.environments.household.engine import Engine
from agent2.environments.household.game import Game, import_part, quiet_import
from agent2.environments.household.world import HouseholdWorld
from agent2.evaluation.engine import Attempt, PlaySettings, play
from agent2.models.bases import ensure_base_model
from agent2.models.hf import HfSampler
from agent2.records import Completion, Item, SamplingSettings, Split

ENGINE_GOAL = 10.0
"""Turns/s of our engine against the stock one."""
BATCH_GOAL = 5.0
"""Episodes/s of the batched evaluation against the published way."""
N_TURNS = 12

Actions = dict[str, tuple[str, ...]]
"""What was said in each episode."""


@dataclass(frozen=True, slots=True)
class EngineTime:
    """Time to begin games and to play turns."""

    name: str
    n_games: int
    n_turns: int
    load_s: float
    play_s: float

    @property
    def turns_per_s(self) -> float:
        """Loading included."""
        return self.n_turns / (self.load_s + self.play_s)


@dataclass(frozen=True, slots=True)
class StockPosition:
    """What a world reads of a position."""

    observation: str
    won: bool
    admissible: tuple[str, ...]
    facts: frozenset[str] = frozenset()

    def allows(self, command: str) -> bool:
        """True if the command does something here."""
        return command in self.admissible


class StockEngine:
    """alfworld's own engine with the moves of ours; it has one position only, the newest."""

    def __init__(self) -> None:
        if sys.version_info >= (3, 13):
            raise SystemExit("textworld 1.7 writes to locals(), which Python 3.13 ended; run this with 3.11 or 3.12")
        textworld, envs = import_part("textworld"), import_part("textworld.envs")
        demangler = import_part("alfworld.agents.environment.alfred_tw_env").AlfredDemangler
        infos = textworld.EnvInfos(won=True, admissible_commands=True)
        self._env = demangler(envs.PddlEnv(infos), shuffle=False)

    def start(self, game: Game) -> StockPosition:
        """The beginning of a game."""
        with quiet_import():
            self._env.load(game.as_file())
            return self._position(self._env.reset())

    def move(self, position: StockPosition, command: str) -> StockPosition:
        """Carry out a command at the newest position."""
        with quiet_import():
            return self._position(self._env.step(command)[0])

    def _position(self, state: Any) -> StockPosition:
        return StockPosition(state.feedback, bool(state.won), tuple(state.admissible_commands))


def random_walks(items: Sequence[Item]) -> list[list[tuple[str, str]]]:
    """Commands and observations of each game, the opening first; ends where the game is won."""
    engine, rng = Engine(), np.random.default_rng(0)
    walks = []
    for item in items:
        position = engine.start(game_of(item))
        walk = [("", position.observation)]
        while len(walk) <= N_TURNS and not position.won:
            command = str(rng.choice(position.admissible))
            position = engine.move(position, command)
            walk.append((command, position.observation))
        walks.append(walk)
    return walks


def game_of(item: Item) -> Game:
    """The game of an item."""
    return Game.from_payload(item.payload["game"])


def time_engine(name: str, engine: Any, items: Sequence[Item], walks: Sequence[list[tuple[str, str]]]) -> EngineTime:
    """Play the walks one after the other. Raises RuntimeError where an observation is another one."""
    load_s = play_s = 0.0
    n_turns = 0
    for item, walk in zip(items, walks, strict=True):
        game = game_of(item)
        start = time.process_time()
        position = engine.start(game)
        load_s += time.process_time() - start
        _require_equal(name, item, walk[0][1], position.observation)
        for command, expected in walk[1:]:
            start = time.process_time()
            position = engine.move(position, command)
            play_s += time.process_time() - start
            _require_equal(name, item, expected, position.observation)
            n_turns += 1
    return EngineTime(name, len(items), n_turns, load_s, play_s)


def _require_equal(name: str, item: Item, expected: str, observation: str | None) -> None:
    if observation != expected:
        raise RuntimeError(f"{name}: game {item.id} says {observation!r} where our engine says {expected!r}")


def compare_engines(benchmark: Household, n_games: int, n_stock: int) -> bool:
    """Print the first table; returns whether its goal is met."""
    items = benchmark.items(Split.TRAIN, n_games, None)
    walks = random_walks(items)
    for engine in (stock := StockEngine(), ours := Engine()):
        time_engine("warm-up", engine, items[-1:], walks[-1:])
    times = [
        time_engine("stock", stock, items[:n_stock], walks[:n_stock]),
        time_engine("memoised", Engine(), items, walks),
    ]
    time_engine("first time", ours, items, walks)
    times.append(time_engine("played again", ours, items, walks))
    print("engine        games  turns  load ms/game  ms/turn  turns/s  ratio  goal")
    for row in times:
        ratio = row.turns_per_s / times[0].turns_per_s
        line = f"{row.name:12} {row.n_games:6} {row.n_turns:6} {1e3 * row.load_s / row.n_games:13.1f} "
        line += f"{1e3 * row.play_s / row.n_turns:8.2f} {row.turns_per_s:8.0f} {ratio:6.1f}"
        if row.name == "memoised":
            line += f" {ENGINE_GOAL:5.0f} {'ok' if ratio >= ENGINE_GOAL else 'MISSED'}"
        print(line, flush=True)
    return times[1].turns_per_s >= ENGINE_GOAL * times[0].turns_per_s


def play_serially(model: Any, tokenizer: Any, benchmark: Household, items: Sequence[Item], engine: Any) -> Actions:
    """One game after the other, one prompt at a time, each computed from its first token, as published."""
    actions_of: Actions = {}
    for item in items:
        world = HouseholdWorld(benchmark.settings, engine)
        messages = [{"role": m.role, "content": m.content} for m in world.reset(item, seed=0)]
        actions: list[str] = []
        for _ in range(benchmark.max_turns):
            prompt = tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, return_dict=True, return_tensors="pt"
            )
            with torch.inference_mode():
                out = model.generate(**prompt, do_sample=False, max_new_tokens=benchmark.sampling.max_tokens)
            action = tokenizer.decode(out[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True)
            step = world.act(action)
            actions.append(action)
            if step.done or step.observation is None:
                break
            messages += [{"role": "assistant", "content": action}, {"role": "user", "content": step.observation}]
        world.state()
        actions_of[item.id] = tuple(actions)
    return actions_of


class ForgetfulSampler(HfSampler):
    """Keeps nothing between turns."""

    def collect(self) -> list[tuple[int, Completion]]:
        """As ever; then everything is forgotten."""
        done = super().collect()
        self.forget()
        return done


def play_with_engine(
    sampler: HfSampler,
    benchmark: Household,
    items: Sequence[Item],
    n_at_once: int,
) -> Actions:
    """Our rollout engine, scorer included; all worlds share a new engine."""
    engine = Engine()
    settings = PlaySettings(
        SamplingSettings(temperature=0.0, max_tokens=benchmark.sampling.max_tokens), benchmark.max_turns, n_at_once
    )
    attempts = [Attempt(item, 0, 0) for item in items]
    records = play(attempts, sampler, lambda: HouseholdWorld(benchmark.settings, engine), benchmark.scorer(), settings)
    return {record.rollout.item_id: tuple(turn.action for turn in record.rollout.turns) for record in records}


def ways_to_evaluate(
    benchmark: Household, folder: Path, n_games: int, n_stock: int
) -> dict[str, tuple[int, Callable[[Sequence[Item]], Actions]]]:
    """By name: how many games are played, and what plays them."""
    serial, many, forgetful = HfSampler(folder, 1), HfSampler(folder, n_games), ForgetfulSampler(folder, n_games)
    model, tokenizer = serial._model, serial._tokenizer
    return {
        "published": (n_stock, lambda items: play_serially(model, tokenizer, benchmark, items, StockEngine())),
        "serial": (n_games, lambda items: play_serially(model, tokenizer, benchmark, items, Engine())),
        "one at once": (n_games, lambda items: play_with_engine(serial, benchmark, items, 1)),
        "no cache": (n_games, lambda items: play_with_engine(forgetful, benchmark, items, n_games)),
        "batched": (n_games, lambda items: play_with_engine(many, benchmark, items, n_games)),
    }


def compare_evaluations(benchmark: Household, folder: Path, n_games: int, n_stock: int) -> bool:
    """Print the second table; returns whether its goal is met."""
    items = benchmark.items(Split.TRAIN, n_games, None)
    cpu_of: dict[str, float] = {}
    expected: Actions = {}
    print(
        "evaluation    games  turns  seconds  episodes/s  CPU ms/episode  x published  x serial  goal  other episodes"
    )
    ways = ways_to_evaluate(benchmark, folder, n_games, n_stock)
    for _, run in ways.values():
        run(benchmark.items(Split.DEV, 8, None))  # warm-up
    for name, (n, run) in ways.items():
        start, cpu_start = time.perf_counter(), time.process_time()
        actions_of = run(items[:n])
        seconds, cpu_of[name] = time.perf_counter() - start, (time.process_time() - cpu_start) / n
        n_other = sum(actions != expected.get(item_id, actions) for item_id, actions in actions_of.items())
        expected = actions_of | expected
        to_published, to_serial = (cpu_of.get(way, cpu_of[name]) / cpu_of[name] for way in ("published", "serial"))
        ratios = f"{to_published:11.1f} {to_serial:9.2f}"
        goal = f"{BATCH_GOAL:4.0f} {'ok' if to_published >= BATCH_GOAL else 'MISSED'}" if name == "batched" else ""
        line = f"{name:12} {n:6} {sum(map(len, actions_of.values())):6} {seconds:8.2f} {n / seconds:11.2f} "
        print(f"{line}{1e3 * cpu_of[name]:15.1f} {ratios} {goal:11} {n_other:8}", flush=True)
    return cpu_of["published"] >= BATCH_GOAL * cpu_of["batched"]


def main() -> int:
    """Parse the flags and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny-household", help="a base model's name, or a checkpoint folder")
    parser.add_argument("--games", type=int, default=128)
    parser.add_argument("--stock-games", type=int, default=12, help="games on the stock engine, which is slow")
    parser.add_argument("--engine-only", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    benchmark = Household()
    is_met = compare_engines(benchmark, options.games, options.stock_games)
    if not options.engine_only:
        folder = ensure_base_model(options.model, BASE_MODELS)
        is_met &= compare_evaluations(benchmark, folder, options.games, options.stock_games)
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
