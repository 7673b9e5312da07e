"""The Python facade: hand in pipeline code as a string, read what its evaluation says.

Run it with `python examples/facade.py`; it takes about a minute. The code runs as an agent does: in the sandbox,
in a fresh workspace, with the variables of ASSIGNMENT.md. What it leaves in `$OUTPUT_DIR/model` is submitted.
"""

import argparse
from pathlib import Path

from agent2.arena.facade import RLBenchEnvironment
from agent2.records import JsonValue

PIPELINE = """
import json
import os
from pathlib import Path

from agent2.training.offline import SftSettings, train_sft

base, data, output = (Path(os.environ[name]) for name in ("MODEL_PATH", "DATA_PATH", "OUTPUT_DIR"))
rows = [json.loads(line) for line in (data / "train.jsonl").open(encoding="utf-8")]
report = train_sft(base, rows, output / "model", SftSettings(epochs=2))
print(f"{report.steps} steps in {report.seconds:.0f} s")
"""


def main(task: str = "arithmetic", out: Path = Path("trials")) -> dict[str, JsonValue]:
    """Run the pipeline on a task and return its feedback."""
    environment = RLBenchEnvironment(task, out=out)
    print("models:", ", ".join(environment.available_models))
    print("budget:", environment.compute_budget)
    print("items:", environment.datasets)
    result = environment.submit_solution(PIPELINE)
    feedback = environment.get_feedback(str(result["run_id"]))
    print("base score:", feedback["base_score"])
    print("submissions:", feedback["submissions"])
    print("gain on private items:", feedback["gain"])
    print("trial:", feedback["trial"])
    return feedback


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="arithmetic", help="a packaged task, or a .yaml file")
    parser.add_argument("--out", type=Path, default=Path("trials"), help="folder of the trial")
    options = parser.parse_args()
    main(options.task, options.out)
