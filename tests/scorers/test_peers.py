"""What lm-eval and inspect-evals said of 1,479 answers, against what we say today."""

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "scorers.py"
GOLDEN = Path(__file__).with_name("peer_verdicts.json")


def compare(golden=GOLDEN):
    command = [sys.executable, str(SCRIPT), "--golden", str(golden), "--examples", "0"]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=environment)


def test_every_disagreement_with_a_peer_is_of_a_class_that_says_who_is_right():
    done = compare()
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert "1479 answers, 529 disagreements, 0 of them not settled" in done.stdout


def test_at_least_500_answers_of_three_kinds_are_kept():
    kinds = [line[0] for line in json.loads(GOLDEN.read_text(encoding="utf-8"))["cases"]]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {"number": 330, "choice": 190, "instruction": 959}


def test_a_disagreement_that_nobody_explained_is_found(tmp_path):
    recorded = json.loads(GOLDEN.read_text(encoding="utf-8"))
    line = next(line for line in recorded["cases"] if line[1] == "#### -7" or line[3] == "startend:quotation")
    line[-1] = [1 - verdict for verdict in line[-1]]
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(recorded), encoding="utf-8")
    done = compare(changed)
    assert done.returncode == 1
    assert "unexplained: " in done.stdout


def test_a_verdict_that_the_published_script_denies_is_found(tmp_path):
    recorded = {"versions": {}, "cases": [["number", "#### 18.0", "18", "", {}, [0, 0, 1]]]}
    path = tmp_path / "one.json"
    path.write_text(json.dumps(recorded))
    assert compare(path).returncode == 0
    recorded["cases"] = [["number", "#### 18 or 10.0", "18", "", {}, [0, 0, 0]]]  # GSM8K's script says 1, as we do
    path.write_text(json.dumps(recorded))
    done = compare(path)
    assert done.returncode == 1
    assert "called departure, but the published definition says 1" in done.stdout
