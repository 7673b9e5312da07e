"""MMLU-Pro's questions in the published layout, from stored outputs of a model that the authors publish.

    python benchmarks/mmlu_pro_questions.py OUTPUTS.zip FOLDER

OUTPUTS.zip is an archive of `eval_results` in github.com/TIGER-AI-Lab/MMLU-Pro: one JSON list of the test questions,
each with the model's answer. FOLDER gets `test.jsonl`: the same rows with the fields of the published data set and
without the model's. For machines that reach the repository and not the data set, which is the better source.
"""

import argparse
import json
import zipfile
from pathlib import Path

FIELDS = ("question_id", "question", "options", "answer", "answer_index", "cot_content", "category", "src")


def main() -> None:
    """Convert one archive."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("outputs", type=Path, help="archive of stored outputs")
    parser.add_argument("folder", type=Path, help="gets test.jsonl")
    arguments = parser.parse_args()
    with zipfile.ZipFile(arguments.outputs) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".json")]
        rows = json.loads(archive.read(name))
    lines = [json.dumps({field: row[field] for field in FIELDS}, ensure_ascii=False) for row in rows]
    arguments.folder.mkdir(parents=True, exist_ok=True)
    (arguments.folder / "test.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} questions: {arguments.folder / 'test.jsonl'}")


if __name__ == "__main__":
    main()
