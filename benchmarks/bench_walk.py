"""From one's own matrix of 330 items to a first pilot and a frozen version: commands, lines and seconds.

    python benchmarks/bench_walk.py [PAGE]

Follows a page as a newcomer would, default docs/how-to/build-a-benchmark.md: its first YAML block is the matrix, its
first Python block writes the cards, the second one is the players, and its first shell block is typed line by line into
an empty folder. Prints each command with its seconds and its last line, then the lines that were written by hand and by
the program. Exits with 1 where a command fails.
"""

import argparse
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "how-to" / "build-a-benchmark.md"


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def n_lines(text: str) -> int:
    """Lines that are not empty."""
    return sum(bool(line.strip()) for line in text.splitlines())


def main() -> int:
    """Walk and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", nargs="?", type=Path, default=PAGE)
    text = parser.parse_args().page.read_text(encoding="utf-8")
    matrix, (generator, players) = blocks(text, "yaml")[0], blocks(text, "python")[:2]
    commands = blocks(text, "sh")[0].splitlines()
    is_piloted, piloted_after, failed = False, 0.0, 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "matrix.yaml").write_text(matrix, encoding="utf-8")
        (folder / "players.py").write_text(players, encoding="utf-8")
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", generator], cwd=folder, check=True)
        for command in commands:
            began = time.perf_counter()
            typed = [sys.executable, "-m", *shlex.split(command)]
            done = subprocess.run(typed, cwd=folder, capture_output=True, text=True, check=False)
            failed += done.returncode != 0
            said = [line.strip() for line in (done.stdout or done.stderr).splitlines() if line.strip()]
            print(
                f"{time.perf_counter() - began:6.1f} s  {command[:60]:60}  {said[-1][:90] if said else ''}", flush=True
            )
            if not is_piloted:
                piloted_after = time.perf_counter() - started
                is_piloted = " pilot " in command
        n_cards = len((folder / "cards.jsonl").read_text(encoding="utf-8").splitlines())
    by_hand = n_lines(matrix) + n_lines(players)
    print(
        f"{n_cards} cards; first pilot after {piloted_after:.0f} s of the machine, all after "
        f"{time.perf_counter() - started:.0f} s"
    )
    print(
        f"lines: matrix {n_lines(matrix)}, players {n_lines(players)}, commands {len(commands)}: "
        f"{by_hand + len(commands)} by hand; the program that writes the cards {n_lines(generator)}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
