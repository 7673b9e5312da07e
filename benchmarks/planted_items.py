"""How many planted faults does `agent2 bench` find among 300 items, and what does it flag besides?

    python benchmarks/planted_items.py --out DIR [--seeds 5] [--items 300] [--each 10]
    python benchmarks/planted_items.py --out DIR --checkpoints WEAK PREVIOUS STRONG

Each seed makes a benchmark of multiple-choice arithmetic with `each` items of five faults: a wrong key, two right
options (ambiguous), a leaked answer, a duplicate, a shortcut. Half of all but the wrong keys are plain, half are
disguised in ways that no check was written for: the answer in words, the factors swapped, the right option always the
only odd number, two readings of the question. Three scripted players of 30, 60 and 92% skill answer three times; an
item is as hard for all of them, and half of the wrong answers of each are one popular distractor, so that strong
players agree on wrong answers of honest items, too. The pilot's lists are compared with what was planted, and the
benchmark is frozen.

With --checkpoints, three models of the benchmark arithmetic play its train items, with wrong keys and copies planted.

Prints recall by fault and precision of both lists, summed over seeds, with the seconds that a pilot took. Scripted
players say nothing about faults that real models reveal in other ways.
"""

import argparse
import datetime
import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from agent2.authoring.own_benchmark import new_own, write_benchmark
from agent2.authoring.pilot import analyse_pilot, play_role
from agent2.authoring.versions import freeze
from agent2.benchmarks import load_benchmark
from agent2.benchmarks.declaration import SamplingSpec
from agent2.records import Split
from agent2.stats.estimates import wilson

SKILLS = {"weak": 0.30, "previous": 0.60, "strong": 0.92}
FAULTS = ("wrong_key", "ambiguous", "leaked_answer", "duplicate", "shortcut")
FOUND_AS = {
    "wrong_key": {"wrong_key", "inverted"},
    "leaked_answer": {"leaked_answer", "contains_answer"},
    "ambiguous": {"ambiguous", "two_right_options"},
    "duplicate": {"duplicate", "two_keys"},
}
"""Planted fault -> kinds that name it, where they are more than its own."""
PLAYERS = """
import random
import re

SKILLS = {skills}
rngs = {{name: random.Random(f"{seed} {{name}}") for name in SKILLS}}


def answer(name, chat):
    prompt, rng = chat[-1].content, rngs[name]
    a, sign, b = re.search(r"(\\d+) ([-+*]) (\\d+)", prompt).groups()
    truth = {{"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}}[sign]
    options = re.findall(r"^([A-D])[.):]+ *(-?\\d+)", prompt, re.MULTILINE)
    truths = [truth, truth + 10] if "roughly" in prompt else [truth]
    right = [letter for letter, number in options if int(number) in truths]
    wrong = [letter for letter, number in options if int(number) not in truths]
    hardness = random.Random(f"{seed} {{a}} {{sign}} {{b}}").gauss(0, 0.2)
    if right and rng.random() < SKILLS[name] + hardness:
        return rng.choice(right)
    popular = random.Random(f"popular {{a}} {{sign}} {{b}}").choice(wrong)
    return popular if rng.random() < 0.5 else rng.choice(wrong)


def weak(chat):
    return answer("weak", chat)


def previous(chat):
    return answer("previous", chat)


def strong(chat):
    return answer("strong", chat)
"""
SIGNS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def honest_card(rng: random.Random, number: int) -> dict[str, Any]:
    """A question with four distinct options, the right one anywhere."""
    difficulty = rng.choice(["easy", "medium", "hard"])
    low, high = {"easy": (11, 40), "medium": (41, 120), "hard": (121, 900)}[difficulty]
    sign = rng.choice(list(SIGNS))
    a, b = sorted((rng.randint(low, high), rng.randint(low, high)), reverse=True)
    truth = SIGNS[sign](a, b)
    near = rng.sample([truth + step for step in (-20, -10, -3, -2, -1, 1, 2, 3, 10, 20)], 3)
    options = [str(option) for option in rng.sample([truth, *near], 4)]
    task_type = {"+": "sums", "-": "differences", "*": "products"}[sign]
    card = {"id": f"n{number}", "prompt": f"What is {a} {sign} {b}?", "options": options, "task_type": task_type}
    return {**card, "difficulty": difficulty, "answer": "ABCD"[options.index(str(truth))]}


def key_of(card: dict[str, Any]) -> str:
    """The text of the right option."""
    return str(card["options"]["ABCD".index(card["answer"])])


def planted(card: dict[str, Any], fault: str, rng: random.Random, *, disguised: bool) -> dict[str, Any]:
    """An honest card with a fault; of a duplicate, the copy."""
    place, key = "ABCD".index(card["answer"]), key_of(card)
    others = [index for index in range(4) if index != place]
    if fault == "wrong_key":
        return {**card, "answer": "ABCD"[rng.choice(others)]}
    if fault == "ambiguous":
        options = list(card["options"])
        if disguised:  # two readings, of which the key is one
            options[rng.choice(others)] = str(int(key) + 10)
            prompt = card["prompt"].replace("What is", "What is, roughly,")
            return {**card, "prompt": prompt, "options": options} if len(set(options)) == 4 else card
        options[rng.choice(others)] = f"0{key}" if not key.startswith("-") else f"-0{key[1:]}"
        return {**card, "options": options}
    if fault == "leaked_answer":
        words = " ".join(WORDS[int(digit)] for digit in key.strip("-"))
        hint = (
            f" Digit by digit it reads {words}." if disguised else rng.choice([f" (Answer: {key})", f" Recall {key}."])
        )
        return {**card, "prompt": card["prompt"] + hint}
    if fault == "duplicate":
        a, sign, b = re.findall(r"\d+|[-+*]", card["prompt"])
        swapped = f"What is {b} {sign} {a}?" if sign != "-" else f"Take {b} away: {a} - {b}. What is it?"
        prompt = swapped if disguised else rng.choice([card["prompt"], f"Please tell me: what is {a} {sign} {b}?"])
        return {**card, "id": f"{card['id']}-copy", "prompt": prompt}
    if disguised:  # the only odd number is right
        options = [str(2 * (int(option) // 2) + (index == place)) for index, option in enumerate(card["options"])]
        return {**card, "options": options if len(set(options)) == 4 and options[place] == key else card["options"]}
    options = [f"{option}, exactly" if index == place else option for index, option in enumerate(card["options"])]
    return {**card, "options": options}


def make_cards(seed: int, n_items: int, each: int) -> tuple[list[dict[str, Any]], dict[str, tuple[str, bool]]]:
    """Cards, and of each faulty one what was planted and whether it is disguised."""
    rng = random.Random(seed)
    by_prompt: dict[str, dict[str, Any]] = {}
    while len(by_prompt) < n_items - each:  # the copies are the rest
        card = honest_card(rng, len(by_prompt))
        by_prompt.setdefault(card["prompt"], card)
    cards = list(by_prompt.values())
    faults: dict[str, tuple[str, bool]] = {}
    places = iter(rng.sample(range(len(cards)), each * len(FAULTS)))
    copies = []
    for fault in FAULTS:
        for number in range(each):
            place, is_disguised = next(places), number % 2 == 1 and fault != "wrong_key"
            card = planted(cards[place], fault, rng, disguised=is_disguised)
            if fault == "duplicate":
                copies.append(card)
            elif card == cards[place]:
                continue
            else:
                cards[place] = card
            faults[card["id"]] = (fault, is_disguised)
    return [*cards, *copies], faults


def real_cards(seed: int, n_items: int, each: int) -> tuple[list[dict[str, Any]], dict[str, tuple[str, bool]]]:
    """The same from train items of arithmetic, which its tiny models read: wrong keys and copies alone."""
    rng = random.Random(seed)
    items = load_benchmark("arithmetic").items(Split.TRAIN, (seed + 1) * (n_items - each), None)[-(n_items - each) :]
    levels = {1: "easy", 2: "medium"}
    cards = [
        {"id": f"n{number}", "prompt": item.prompt, "answer": item.reference, "task_type": "sums"}
        | {"difficulty": levels.get(item.payload["n_operations"], "hard")}
        for number, item in enumerate(items)
    ]
    places = rng.sample(range(len(cards)), 2 * each)
    faults: dict[str, tuple[str, bool]] = {}
    for place in places[:each]:
        wrong = str(int(str(cards[place]["answer"])) + rng.choice([-3, -2, -1, 1, 2, 3, 10]))
        cards[place] = {**cards[place], "answer": wrong}
        faults[f"n{place}"] = ("wrong_key", False)
    for place in places[each:]:
        cards.append({**cards[place], "id": f"n{place}-copy"})
        faults[f"n{place}-copy"] = ("duplicate", False)
    return cards, faults


def main() -> None:
    """Parse the options, play every seed and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--items", type=int, default=300)
    parser.add_argument("--each", type=int, default=10)
    parser.add_argument("--checkpoints", nargs=3, metavar=("WEAK", "PREVIOUS", "STRONG"))
    options = parser.parse_args()
    make, scorer = (make_cards, "choice") if options.checkpoints is None else (real_cards, "rational")
    n_planted, n_found = Counter[str](), Counter[str]()
    flagged, true = Counter[str](), Counter[str]()
    false_kinds = Counter[str]()
    for seed in range(options.seeds):
        folder = options.out / f"seed{seed}"
        folder.mkdir(parents=True)
        cards, faults = make(seed, options.items, options.each)
        rows = [{**card, "success_verifier": {"type": scorer}} for card in cards]
        (folder / "cards.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "matrix.yaml").write_text("sums: 30/40/30\ndifferences: 30/40/30\nproducts: 30/40/30\n")
        (folder / "players.py").write_text(PLAYERS.format(skills=SKILLS, seed=seed))
        bench = new_own(folder / "planted", folder / "matrix.yaml", "planted", folder / "cards.jsonl")
        sampling = SamplingSpec(temperature=0.6, max_tokens=12)
        bench = replace(bench, spec=bench.spec.model_copy(update={"sampling": sampling}))
        scripted = [f"scripted:{folder / 'players.py'}:{role}" for role in SKILLS]
        started = time.monotonic()
        write_benchmark(folder / "draft", bench.spec, "draft", bench.cards, by_split=False)
        sides = {
            role: play_role(bench, folder / "draft", source, folder / role, None, lambda *_: None)
            for role, source in zip(SKILLS, options.checkpoints or scripted, strict=True)
        }
        pilot = analyse_pilot(bench, sides, "previous")
        seconds = time.monotonic() - started
        record = msgspec.json.decode(msgspec.json.encode(pilot.record()))
        result = freeze(
            bench, {**record, "digests": {card.id: card.digest for card in bench.cards}}, datetime.date(2026, 11, 27)
        )
        kinds = {
            row["id"]: {reason["kind"] for reason in row["reasons"]} for row in [*record["drop"], *record["review"]]
        }
        for item, (fault, is_disguised) in faults.items():
            name = f"{fault}, disguised" if is_disguised else fault
            n_planted[name] += 1
            # Of two copies either one may be named.
            named = kinds.get(item, set()) | (
                kinds.get(item.removesuffix("-copy"), set()) if fault == "duplicate" else set()
            )
            n_found[name] += bool(named & FOUND_AS.get(fault, {fault}))
        originals = {item.removesuffix("-copy") for item in faults}
        for name in ("drop", "review"):
            for row in record[name]:
                is_true = row["id"] in faults or row["id"] in originals
                flagged[name] += 1
                true[name] += is_true
                if not is_true:
                    false_kinds[f"{name}: {row['reasons'][0]['kind']}"] += 1
        print(
            f"seed {seed}: {record['verdict']}, {len(cards)} items, drop {len(record['drop'])}, review "
            f"{len(record['review'])}, frozen {len(result.frozen.digests)}; pilot {seconds:.1f} s",
            flush=True,
        )
    print("\n| planted | found | recall |\n|---|---:|---:|")
    for name, n in sorted(n_planted.items()):
        print(f"| {name} | {n_found[name]} of {n} | {wilson(n_found[name], n)} |")
    print("\n| list | planted ones | precision |\n|---|---:|---:|")
    for name, n in flagged.items():
        print(f"| {name} | {true[name]} of {n} | {wilson(true[name], n)} |")
    print(f"\nhonest items flagged: {dict(false_kinds)}")


if __name__ == "__main__":
    main()
