"""Precision and recall of the grounding detectors, and what they find where nothing is wrong.

    python benchmarks/grounding.py             the cases of grounding_cases.yaml, ten planted and ten near misses each
    python benchmarks/grounding.py --held-out  five and five each for the thirteen checks of texts
    python benchmarks/grounding.py --worlds    also episodes of the tool benchmarks, played by their oracles (sound),
                                               and altered by rule (each alteration has to be found)

The cases were written by hand next to the detectors, so their figures say that each detector does what it is meant to,
not how it fares on a model's prose. `--held-out` reads grounding_held_out.yaml, written afterwards. The altered
episodes come from other texts; what real models write: run `agent2 cards ground` on a card. Exit code 1 if a detector's
precision or recall on the cases is below 0.9.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from msgspec import structs

from agent2.benchmarks import load_benchmark
from agent2.evaluation.engine import Attempt, PlaySettings, play
from agent2.models.sources import ScriptedSampler
from agent2.records import Item, Message, Rollout, RolloutStatus, Split, StopReason, Turn, Usage, derive_seed
from agent2.scorers.grounding.detectors import DETECTORS, findings_of
from agent2.scorers.grounding.episodes import SAYING, read_episode

CASES = Path(__file__).with_name("grounding_cases.yaml")
HELD_OUT = CASES.with_name("grounding_held_out.yaml")
AT_LEAST = 0.9
OTHER_GOAL = "The task was to find the harbour of Zanzibar Depot."
WORLDS = ("mini_functions", "mini_apis", "mini_repo", "search", "search_faulty", "search_contradicting", "dialogue")
_CALL = re.compile(r"> (\S+) (\{.*?\}) (=|\*=|!!|!) ?(.*)", re.DOTALL)


@dataclass(frozen=True)
class Case:
    """One hand-written episode."""

    detector: str
    is_planted: bool
    item: Item
    rollout: Rollout


def read_cases(path: Path = CASES) -> list[Case]:
    """Every case of the file. Raises ValueError for a line that cannot be read, with its detector and number."""
    cases = []
    for detector, groups in yaml.safe_load(path.read_text(encoding="utf-8")).items():
        for group in ("planted", "near_misses"):
            for number, lines in enumerate(groups[group]):
                try:
                    item, rollout = episode_of(f"{detector}-{group}-{number}", lines)
                except (ValueError, yaml.YAMLError) as error:
                    raise ValueError(f"{path.name}: {detector} {group} {number}: {error}") from error
                cases.append(Case(detector, group == "planted", item, rollout))
    return cases


def episode_of(name: str, lines: Sequence[str]) -> tuple[Item, Rollout]:
    """An item and the rollout that the lines tell."""
    calls: list[dict[str, Any]] = []
    turns: list[Turn] = []
    payload: dict[str, Any] = {}
    final: dict[str, Any] = {}
    thought = answer = ""
    for line in lines[1:]:
        mark, text = line[:2], line[2:].strip()
        if line.startswith("gold:"):
            payload["gold"] = [{"name": name} for name in yaml.safe_load(line[5:])]
        elif mark == "> ":
            call = _call(line, len(turns))
            calls.append(call)
            result = {"error": f"{call['error']}: {call['detail']}"} if call["error"] else {"result": call["result"]}
            written = f"{call['name']}[{json.dumps(call['arguments'])}]"
            turns.append(_turn(f"{thought}\n{written}" if thought else written, json.dumps(result)))
            thought = ""
        elif mark == "~ ":
            thought = text
        elif mark == "- ":
            turns.append(_turn(text, ""))
        elif mark == "< ":
            turns[-1] = structs.replace(turns[-1], observation=text)
        elif mark == "@ ":
            final["citations"] = [_citation(citation.strip()) for citation in text.split(";")]
        elif line.startswith("value: "):
            final["values"] = [value.strip() for value in line[7:].split(";")]
            answer = line[7:]
        else:
            answer = line
            turns.append(_turn(line, None))
    state = {"answer": answer, "final": final, "tool_calls": calls, "safety_violations": []}
    opening = [Message("user", lines[0])]
    rollout = Rollout(name, 0, 0, RolloutStatus.COMPLETED, opening, turns, answer, state, Usage())
    return Item(name, Split.DEV, lines[0], payload=payload), rollout


def _turn(action: str, observation: str | None) -> Turn:
    return Turn(action, observation, StopReason.END, 0, 0)


def _citation(text: str) -> dict[str, Any]:
    page = re.sub(r"\s*\((missing|unread)\)$", "", text)
    return {"page": page, "exists": "(missing)" not in text, "opened": page == text}


def _call(line: str, turn: int) -> dict[str, Any]:
    match = _CALL.fullmatch(line)
    if match is None:
        raise ValueError(f"no call in {line!r}")
    name, arguments, how, outcome = match.groups()
    is_error = how.startswith("!")
    kind, _, detail = outcome.partition(":")
    return {
        "turn": turn,
        "name": name,
        "arguments": yaml.safe_load(re.sub(r": ?", ": ", arguments) if "://" not in arguments else arguments),
        "result": None if is_error else yaml.safe_load(outcome),
        "error": kind.strip() if is_error else None,
        "detail": detail.strip() if is_error else "",
        "injected": how == "!!",
        "changed": how == "*=",
    }


@dataclass(frozen=True)
class Figures:
    """How a detector did."""

    name: str
    n_found: int
    n_planted: int
    n_wrong: int
    n_near: int

    @property
    def precision(self) -> float:
        """Found planted cases over all found cases."""
        total = self.n_found + self.n_wrong
        return self.n_found / total if total else 0.0

    @property
    def recall(self) -> float:
        """Found planted cases over all planted ones."""
        return self.n_found / self.n_planted if self.n_planted else 0.0


def detectors_of(rollout: Rollout, item: Item | None) -> set[str]:
    """Names of the detectors that find something."""
    episode = read_episode(rollout)
    return set() if episode is None else {finding.detector for finding in findings_of(episode, item)}


def measure(cases: Sequence[Case]) -> tuple[list[Figures], list[str]]:
    """Figures of each detector over its own cases, and the cases that it gets wrong."""
    figures, wrong = [], []
    for name in DETECTORS:
        results = [(case, name in detectors_of(case.rollout, case.item)) for case in cases if case.detector == name]
        wrong += [
            f"{case.rollout.item_id}: {'not found' if case.is_planted else 'found'}"
            for case, is_found in results
            if is_found != case.is_planted
        ]
        planted = [is_found for case, is_found in results if case.is_planted]
        near = [is_found for case, is_found in results if not case.is_planted]
        figures.append(Figures(name, sum(planted), len(planted), sum(near), len(near)))
    return figures, wrong


def oracle_rollouts(name: str, n: int) -> list[tuple[Item, Rollout]]:
    """Episodes of a benchmark's oracle on train items: nothing in them lacks ground."""
    benchmark: Any = load_benchmark(name)
    if name == "mini_functions":

        def oracle(item: Item, messages: Sequence[Message]) -> str:
            return str(item.reference)
    else:
        oracle = benchmark.players().oracle
    settings = PlaySettings(benchmark.sampling, benchmark.max_turns)
    rollouts = []
    for item in benchmark.items(Split.TRAIN, n, None):
        sampler = ScriptedSampler(lambda messages, item=item: oracle(item, messages))
        seed = derive_seed(0, item.id, 0)
        scored = play([Attempt(item, 0, seed)], sampler, benchmark.environment, benchmark.scorer(), settings)
        rollouts += [(item, record.rollout) for record in scored]
    return rollouts


def _with_calls(rollout: Rollout, calls: Sequence[Mapping[str, Any]], **final: Any) -> Rollout:
    state = {**rollout.state, "tool_calls": list(calls), "final": {**rollout.state["final"], **final}}
    return structs.replace(rollout, state=state)


def alterations(item: Item, rollout: Rollout, rng: np.random.Generator) -> Iterator[tuple[str, set[str], Rollout]]:
    """(what was done, detectors one of which has to find it, the altered episode); by rule, from a sound one."""
    calls = [dict(call) for call in rollout.state["tool_calls"]]
    if not calls:
        return
    place = next((n for n, call in enumerate(calls) if call["error"] is None and call["name"] not in SAYING), 0)
    first = calls[place]
    yield (
        "call of a made-up tool",
        {"unknown_tool"},
        _with_calls(rollout, [{**first, "name": "fetch_all", "error": "unknown_tool", "result": None}, *calls]),
    )
    texts = [key for key, value in first["arguments"].items() if isinstance(value, str) and len(value) > 4]
    if texts and first["name"] not in ("search", "edit"):
        arguments = {**first["arguments"], texts[0]: "Zanzibar Depot"}
        yield (
            "argument that nothing gave",
            {"invented_argument"},
            _with_calls(rollout, [*calls[:place], {**first, "arguments": arguments}, *calls[place + 1 :]]),
        )
    text_keys = [
        key for key in texts if str(first["arguments"][key]).isalpha() and len(str(first["arguments"][key])) > 5
    ]
    if text_keys:
        word = str(first["arguments"][text_keys[0]])
        at = int(rng.integers(2, len(word) - 2))
        swapped = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
        if swapped != word:
            arguments = {**first["arguments"], text_keys[0]: swapped}
            yield (
                "argument with two letters swapped",
                {"misspelt_argument"},
                _with_calls(rollout, [*calls[:place], {**first, "arguments": arguments}, *calls[place + 1 :]]),
            )
    late = calls[-1]["turn"]
    if late and not rollout.turns[late].action.lstrip().startswith(("{", "[")):
        turns = list(rollout.turns)
        turns[late] = structs.replace(turns[late], action=f"{OTHER_GOAL}\n{turns[late].action}")
        yield "another task stated beside the last call", {"lost_goal"}, structs.replace(rollout, turns=turns)
    if final := rollout.state["final"].get("citations"):
        made_up = [{"page": "Zanzibar Depot", "exists": False, "opened": False}, *final[1:]]
        yield (
            "citation of a page that does not exist",
            {"missing_source"},
            _with_calls(rollout, calls, citations=made_up),
        )
        unread = [{**final[0], "opened": False}, *final[1:]]
        yield "citation of a page that was not opened", {"unread_source"}, _with_calls(rollout, calls, citations=unread)
        yield (
            "value that no cited page says",
            {"unsupported_citation"},
            _with_calls(rollout, calls, values=["Zanzibar"]),
        )
    elif rollout.answer is not None:
        sentence = "The total comes to 88417, as Zanzibar Depot confirmed."
        turns = [*rollout.turns[:-1], structs.replace(rollout.turns[-1], action=sentence)]
        state = {**rollout.state, "answer": sentence}
        yield (
            "answer with a made-up number",
            {"invented_number"},
            structs.replace(rollout, turns=turns, answer=sentence, state=state),
        )
        yield (
            "answer with a made-up name",
            {"invented_name"},
            structs.replace(rollout, turns=turns, answer=sentence, state=state),
        )


def worlds(n: int) -> None:
    """Print findings on sound episodes, and the share of alterations that are found."""
    print(f"\n{'episodes of oracles':24}{'episodes':>9}{'with a finding':>16}   which")
    hits_of: dict[str, list[bool]] = {}
    rng = np.random.default_rng(0)
    for name in WORLDS:
        rollouts = oracle_rollouts(name, n)
        flagged = [sorted(detectors_of(rollout, item)) for item, rollout in rollouts]
        kinds = sorted({detector for detectors in flagged for detector in detectors})
        print(f"{name:24}{len(rollouts):9}{sum(map(bool, flagged)):16}   {', '.join(kinds)}")
        for (item, rollout), before in zip(rollouts, flagged, strict=True):
            for alteration, expected, altered in alterations(item, rollout, rng):
                new = detectors_of(altered, item) - set(before)
                hits_of.setdefault(alteration, []).append(bool(new & expected))
    print(f"\n{'alteration':44}{'found':>12}")
    for alteration, hits in hits_of.items():
        print(f"{alteration:44}{sum(hits):6}/{len(hits)}")


def main() -> int:
    """Print the tables; 1 if a detector falls short."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", action="store_true", help="also play and alter episodes of the tool benchmarks")
    parser.add_argument("--n", type=int, default=50, help="episodes for each benchmark")
    parser.add_argument("--held-out", action="store_true", help="the cases of grounding_held_out.yaml instead")
    options = parser.parse_args()
    figures, wrong = measure(read_cases(HELD_OUT if options.held_out else CASES))
    figures = [figure for figure in figures if figure.n_planted]
    print(f"{'detector':24}{'kind':>10}{'planted':>9}{'found':>7}{'near':>6}{'found':>7}{'precision':>11}{'recall':>8}")
    for figure in figures:
        kind = DETECTORS[figure.name].kind.value
        counts = f"{figure.n_planted:9}{figure.n_found:7}{figure.n_near:6}{figure.n_wrong:7}"
        low = "  LOW" if min(figure.precision, figure.recall) < AT_LEAST else ""
        print(f"{figure.name:24}{kind:>10}{counts}{figure.precision:11.2f}{figure.recall:8.2f}{low}")
    for line in wrong:
        print(f"  {line}")
    if options.worlds:
        worlds(options.n)
    return int(any(min(figure.precision, figure.recall) < AT_LEAST for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
