"""Seconds and memory of the failures by class on a card with a million rollouts, clusters included.

    python benchmarks/failures.py [--n 1000000] [--folder DIR]

Two in three rollouts are answers of about 120 words that work out a sum in sentences, one in forty of them in another
language or in circles; one in three is a short line. Writing the card is not part of the seconds, which are processor
time, as the machine may be busy; wall clock is printed beside it. Goal: a million under two minutes. Exit code 1 if it
is missed.
"""

import argparse
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

from msgspec import structs

from agent2.analysis.failure_clusters import clusters_of
from agent2.analysis.failures import failures_of
from agent2.cards.writer import CardWriter
from agent2.records import ScoredRollout
from cards import header, make_rollout

GOAL_S = 120.0
LABELS = (("wrong_answer",), ("wrong_answer", "repeated_tool_call"), ("answer_parse_fail",), ())
TOPICS = (
    "trains that leave the station before noon",
    "apples and pears in the baskets of an orchard",
    "interest on savings that a bank pays each year",
    "tiles that cover the floor of a kitchen",
    "pages of a novel that a class reads in a week",
)


ENGLISH = """
    the of and to is in that a number apples trains leaves station before noon we compute therefore sum total price each
    basket interest savings bank year multiply by so answer kitchen tiles area square length width reader pages week
"""
GERMAN = """
    der die und das ist in ein dass Zahl Äpfel Züge Bahnhof vor Mittag wir rechnen daher Summe Preis jeder Korb Zinsen
    Bank Jahr mal also Antwort Küche Fliesen Fläche Länge Breite Leser Seiten Woche nicht werden haben
"""


def make_answers(n: int = 400) -> list[str]:
    """Answers of about 120 words, some in German and some that go round in circles."""
    rng = random.Random(0)
    answers = [" ".join(_sentence(rng, ENGLISH) for _ in range(10)) for _ in range(n)]
    for place in range(0, n, 80):
        answers[place] = " ".join(_sentence(rng, GERMAN) for _ in range(10))
        answers[place + 40] = " ".join([_sentence(rng, ENGLISH)] * 10)
    return answers


def _sentence(rng: random.Random, words: str) -> str:
    text = " ".join(rng.choices(words.split(), k=10)).capitalize()
    return f"{text} {rng.randint(1, 99)} + {rng.randint(1, 99)}."


ANSWERS = make_answers()


def make_failing(number: int) -> ScoredRollout:
    """Two in three fail, with one, two or no classes."""
    record = make_rollout(number)
    if record.score.value == 0.0:
        text = ANSWERS[number % len(ANSWERS)]
        turns = [structs.replace(record.rollout.turns[0], action=text)]
        record = structs.replace(record, rollout=structs.replace(record.rollout, turns=turns, answer=text))
    question = structs.replace(record.rollout.prompt[0], content=f"A question about {TOPICS[number % len(TOPICS)]}.")
    record = structs.replace(record, rollout=structs.replace(record.rollout, prompt=[question]))
    if record.score.value != 0.0:
        return record
    return structs.replace(record, score=structs.replace(record.score, labels=LABELS[number % len(LABELS)]))


def main() -> int:
    """Write the card unless it is there, then time both steps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp())
    card = folder / f"card-{arguments.n}"
    if not card.exists():
        with CardWriter(card, header(arguments.n)) as writer:
            for number in range(arguments.n):
                writer.append(make_failing(number))
            writer.close()
    start, wall_start = time.process_time(), time.perf_counter()
    report = failures_of(card)
    counted = time.process_time()
    clusters = clusters_of(card, report)
    end, wall_s = time.process_time(), time.perf_counter() - wall_start
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{report.n_rollouts} rollouts, {report.n_failures} failures, {len(report.classes)} classes")
    print(
        f"by class {counted - start:.1f} s, {clusters.n_clustered} clustered {end - counted:.1f} s, {megabytes:.0f} MB"
    )
    print(f"wall clock of both {wall_s:.1f} s")
    return int(end - start > GOAL_S)


if __name__ == "__main__":
    sys.exit(main())
