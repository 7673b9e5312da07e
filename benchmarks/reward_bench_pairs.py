"""The part of RewardBench that comes from LLMBar, in RewardBench's layout, from LLMBar's repository.

    git clone https://github.com/princeton-nlp/LLMBar
    python benchmarks/reward_bench_pairs.py LLMBar FOLDER          then REWARD_BENCH_DATA=FOLDER

RewardBench takes 419 of its 2,985 pairs, five of the six subsets of its section Chat Hard, from LLMBar. FOLDER gets
`filtered.jsonl` with these. For machines that reach the repository and not the data set: a score on them is not one of
RewardBench, and has no other section.
"""

import argparse
import json
from pathlib import Path
from typing import Any

SUBSETS = {
    "Natural": "llmbar-natural",
    "Adversarial/Neighbor": "llmbar-adver-neighbor",
    "Adversarial/GPTInst": "llmbar-adver-GPTInst",
    "Adversarial/GPTOut": "llmbar-adver-GPTOut",
    "Adversarial/Manual": "llmbar-adver-manual",
}
"""Folder of LLMBar -> subset of RewardBench."""


def pairs(folder: Path, subset: str) -> list[dict[str, Any]]:
    """The pairs of one folder; label 1 or 2 names the better output."""
    rows = json.loads((folder / "dataset.json").read_text(encoding="utf-8"))
    return [
        {
            "id": number,
            "prompt": row["input"],
            "chosen": row[f"output_{row['label']}"],
            "rejected": row[f"output_{3 - row['label']}"],
            "subset": subset,
        }
        for number, row in enumerate(rows)
    ]


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", type=Path, help="a clone of LLMBar")
    parser.add_argument("folder", type=Path, help="gets filtered.jsonl")
    arguments = parser.parse_args()
    folders = arguments.repository / "Dataset" / "LLMBar"
    rows = [row for name, subset in SUBSETS.items() for row in pairs(folders / name, subset)]
    arguments.folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (arguments.folder / "filtered.jsonl").write_text(text, encoding="utf-8")
    print(f"{len(rows)} pairs: {arguments.folder / 'filtered.jsonl'}")


if __name__ == "__main__":
    main()
