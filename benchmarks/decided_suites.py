"""Does every packaged suite end in a decision on tiny checkpoints?

    agent2 benchmarks get bfcl_v3; agent2 benchmarks install bfcl; agent2 benchmarks install tau2      (once)
    python benchmarks/decided_suites.py --out DIR [SUITE ...] [--items 60] [--tokens 24]
        [--set agent.budget.max_steps=2]

Each packaged suite is played by `agent2 eval` in the role dev, a tiny model against another one, and decided. Where the
variable of a data set (`GSM8K_DATA`, ...) is set, its files are played; otherwise a few items of our own in the
published layout stand in for them, and the table names them. A suite that decides reports alone is given one whose
figures are invented. Prints suite, what was played, decision and seconds; exits with 1 if one ended in no decision.

The evidence gate asks for 50 items of each benchmark. With such models every decision says only that the way there is
open: where neither side solves anything, it is `insufficient`.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agent2.benchmarks import BASE_MODELS, READS_FILES
from agent2.contract.suite_files import FOLDER, load_suite, suite_names
from agent2.files import write_json
from agent2.models.bases import ensure_base_model
from stretched import stretch

Rows = list[dict[str, Any]]
AGENT2 = [sys.executable, "-m", "agent2"]
WINDOWS = {"tiny-mini": 32768, "tiny-arithmetic-small": 32768, "tiny-vision": 8192}
INVENTED = {
    "checkpoint": "invented-step-1",
    "math_pass_at_1": "41.0% -> 44.0% (+3.0)",
    "gsm8k_exact_match": "72.4% -> 73.0% (+0.6)",
    "ifeval_prompt_accuracy": "63.0% -> 62.8% (-0.2)",
    "mmlu_pro_accuracy": "44.8% -> 44.7% (-0.1)",
    "alpaca_eval_lc_win_rate": "50.0% -> 51.0% (+1.0)",
    "response_length_mean": "612 -> 630 (+2.9%)",
}
N_ROWS = 800
"""Of a stand-in, before its splits."""


def words_of_arithmetic(number: int) -> tuple[str, str]:
    """A question and its answer."""
    return f"Bob has {number} pens and gets 7 more. How many has he?", str(number + 7)


def drawn(folder: Path, number: int) -> str:
    """A picture of bars, one of them as high as `number` of 100; returns its name."""
    from PIL import Image, ImageDraw

    name = f"{number}.png"
    picture = Image.new("RGB", (96, 96), "white")
    draw = ImageDraw.Draw(picture)
    for place, height in enumerate((40, number % 90 + 5, 60)):
        draw.rectangle((10 + 28 * place, 95 - height, 30 + 28 * place, 95), fill=("red", "blue", "green")[place])
    picture.save(folder / name)
    return name


def gsm8k(folder: Path) -> dict[str, Rows]:
    """Both files."""
    rows = [dict(zip(("question", "answer"), words_of_arithmetic(k), strict=True)) for k in range(2 * N_ROWS)]
    rows = [{**row, "answer": f"#### {row['answer']}"} for row in rows]
    return {"train.jsonl": rows[:N_ROWS], "test.jsonl": rows[N_ROWS:]}


def mmlu_pro(folder: Path) -> dict[str, Rows]:
    """Sums with four options."""
    rows = [
        {
            "question_id": k,
            "question": words_of_arithmetic(k)[0],
            "options": [str(k + 7 + place - k % 4) for place in range(4)],
            "answer": "ABCD"[k % 4],
            "answer_index": k % 4,
            "category": "math",
        }
        for k in range(N_ROWS)
    ]
    return {"test.jsonl": rows}


def ifeval(folder: Path) -> dict[str, Rows]:
    """One kind of instruction."""
    shared = {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
    rows = [{"key": k, "prompt": f"Name {k + 2} colours without commas.", **shared} for k in range(N_ROWS)]
    return {"input_data.jsonl": rows}


def api_bank(folder: Path) -> dict[str, Rows]:
    """Alarms."""
    function = {"name": "AddAlarm", "description": "Sets an alarm.", "input_parameters": {"time": {"type": "str"}}}
    files = {}
    for level in (1, 2):
        files[f"level-{level}-api.json"] = [
            {
                "file": "AddAlarm-level-1-1.jsonl",
                "id": k,
                "instruction": f"Generate an API request.\nAPI descriptions:\n{json.dumps(function)}",
                "input": f"User {level}: Wake me at {k}.\nGenerate API Request:\n",
                "expected_output": f"API-Request: [AddAlarm(time='{k}:00')]",
            }
            for k in range(N_ROWS)
        ]
    return files


def swebench_verified(folder: Path) -> dict[str, Rows]:
    """Issues of a repository that is not there, so that a patch has no score and none at all is wrong."""
    (folder / "repos").mkdir()
    tests = {"FAIL_TO_PASS": '["test_calc.py::test_it"]', "PASS_TO_PASS": "[]", "test_patch": "", "patch": ""}
    row = {"repo": "club/calc", "base_commit": "0" * 40, **tests}
    issues = [
        {**row, "instance_id": f"club__calc-{k}", "problem_statement": f"double({k}) is wrong"} for k in range(N_ROWS)
    ]
    return {"test.jsonl": issues}


def mmmu(folder: Path) -> dict[str, Rows]:
    """Which bar is the highest."""
    rows = []
    for k in range(N_ROWS):
        highest = ("red", "blue", "green")[1 if k % 90 + 5 > 60 else 2]
        no_pictures = {f"image_{place}": None for place in range(2, 8)}
        rows.append(
            {
                "id": f"validation_Art_{k}",
                "question": f"Question {k}: which bar of <image 1> is the highest?",
                "options": "['red', 'blue', 'green']",
                "answer": "ABC"[("red", "blue", "green").index(highest)],
                "question_type": "multiple-choice",
                "image_1": drawn(folder, k),
                **no_pictures,
            }
        )
    return {"dev.jsonl": rows[: N_ROWS // 4], "validation.jsonl": rows[N_ROWS // 4 :]}


def mathvista(folder: Path) -> dict[str, Rows]:
    """The height of a bar."""
    rows = [
        {
            "pid": str(k),
            "query": f"Question {k}: how high is the blue bar?",
            "answer": str(k % 90 + 5),
            "question_type": "free_form",
            "answer_type": "integer",
            "precision": 0,
            "choices": None,
            "decoded_image": drawn(folder, k),
        }
        for k in range(N_ROWS)
    ]
    return {"testmini.jsonl": rows}


def chartqa(folder: Path) -> dict[str, Rows]:
    """The same."""
    rows = [
        {
            "question": f"Question {k}: how high is the blue bar?",
            "answer": str(k % 90 + 5),
            "type": "human_test",
            "image": drawn(folder, k),
        }
        for k in range(N_ROWS)
    ]
    return {"test.jsonl": rows}


STAND_INS: dict[str, Callable[[Path], dict[str, Rows]]] = {
    stand_in.__name__: stand_in
    for stand_in in (gsm8k, mmlu_pro, ifeval, api_bank, swebench_verified, mmmu, mathvista, chartqa)
}


def stand_in_for(name: str, folder: Path) -> str:
    """Write a stand-in, once; returns its folder."""
    if not folder.is_dir():
        folder.mkdir(parents=True)
        for file, rows in STAND_INS[name](folder).items():
            whole = json.dumps(rows) if file.endswith(".json") else "".join(json.dumps(row) + "\n" for row in rows)
            (folder / file).write_text(whole, encoding="utf-8")
    return str(folder)


def checkpoints_in(folder: Path) -> dict[str, str]:
    """Two tiny models of texts and two that see, with longer windows; returns name -> folder."""
    found = {}
    for name, n_tokens in WINDOWS.items():
        copy = folder / name
        if not copy.is_dir():
            model = ensure_base_model(name, BASE_MODELS, lambda message: print(message, flush=True))
            stretch(model, n_tokens, copy)
        found[name] = str(copy)
    return found | {"tiny-vision-worn": str(worn(folder / "tiny-vision", folder / "tiny-vision-worn"))}


def worn(model: Path, folder: Path) -> Path:
    """A copy of a checkpoint with noise on its weights, a tenth of each one's own spread."""
    import torch
    from safetensors.torch import load_file, save_file

    if not folder.is_dir():
        stretch(model, WINDOWS["tiny-vision"], folder)
        torch.manual_seed(0)
        weights = load_file(folder / "model.safetensors")
        noisy = {
            name: weight + 0.1 * weight.std() * torch.randn_like(weight) if weight.is_floating_point() else weight
            for name, weight in weights.items()
        }
        save_file(noisy, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def decision_in(text: str) -> str:
    """The release decision that `agent2 eval` or `agent2 decide` printed; empty where there is none."""
    found = re.search(r"^release decision:? +(\w+)", text, re.MULTILINE)
    return found[1] if found else ""


def run(command: Sequence[str], environment: dict[str, str], log: Path) -> tuple[str, str]:
    """The decision that a command printed, and what it wrote to standard error; both outputs are kept."""
    done = subprocess.run([*AGENT2, *command], capture_output=True, text=True, env=environment, check=False)
    log.write_text(done.stdout + done.stderr, encoding="utf-8")
    decision = decision_in(done.stdout)
    if not decision:
        print(f"  {(done.stderr or done.stdout).strip()[-400:]}", flush=True)
    return decision, done.stderr


def play(suite: str, models: dict[str, str], arguments: argparse.Namespace) -> tuple[str, str]:
    """What was played, and the decision."""
    spec = load_suite(suite)
    out, log = arguments.out / suite, arguments.out / f"{suite}.log"
    if spec.track == "post_training":
        report = arguments.out / "invented.json"
        write_json(report, INVENTED)
        return "a report of invented figures", run(["decide", str(report), "--suite", suite], dict(os.environ), log)[0]
    sees = spec.track == "vlm_reasoning"
    checkpoint, baseline = ("tiny-vision", "tiny-vision-worn") if sees else ("tiny-mini", "tiny-arithmetic-small")
    environment, stands_in = dict(os.environ), []
    for name in sorted({benchmark.name for benchmark in spec.benchmarks} & READS_FILES & STAND_INS.keys()):
        if not os.environ.get(f"{name.upper()}_DATA"):
            environment[f"{name.upper()}_DATA"] = stand_in_for(name, arguments.out / "stand-ins" / name)
            stands_in.append(name)
    sides = ["--checkpoint", models[checkpoint], "--baseline", models[baseline]]
    is_short = "\ngeneration:" in (FOLDER / f"{suite}.yaml").read_text(encoding="utf-8")
    key = "generation.max_tokens" if is_short else "protocol.sampling.max_tokens"
    settings = [f"{key}={arguments.tokens}", *arguments.set]
    if spec.cadence.dev.n_items is not None:  # else it plays all that there are
        settings.insert(0, f"cadence.dev.n_items={arguments.items}")
    changes = [part for setting in settings for part in ("--set", setting)]
    command = ["eval", suite, "--role", "dev", *sides, *changes, "--out", str(out)]
    decision, said = run(command, environment, log)
    variant = re.search(r"(\w+) is played for", said)
    played = f"{checkpoint} against {baseline}, {arguments.items} items of dev"
    played += f"; as {variant[1]}" if variant else ""
    played += f"; stand-ins: {', '.join(stands_in)}" if stands_in else ""
    return played, decision


def main() -> int:
    """Print a line for each suite."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="none: all packaged ones")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--items", type=int, default=60)
    parser.add_argument("--tokens", type=int, default=24, help="of an answer")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as for agent2 eval")
    arguments = parser.parse_args()
    arguments.out = arguments.out.absolute()
    arguments.out.mkdir(parents=True, exist_ok=True)
    models = checkpoints_in(arguments.out / "models")
    undecided = 0
    print("| suite | played | decision | s |\n|---|---|---|---|", flush=True)
    for suite in arguments.suites or suite_names():
        started = time.perf_counter()
        played, decision = play(suite, models, arguments)
        undecided += not decision
        print(f"| `{suite}` | {played} | {decision or 'NONE'} | {time.perf_counter() - started:.0f} |", flush=True)
    return 1 if undecided else 0


if __name__ == "__main__":
    raise SystemExit(main())
