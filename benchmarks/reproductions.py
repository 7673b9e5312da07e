"""`agent2 reproduce` on five trials: three honest ones, a liar, and one that cannot be reproduced.

    python benchmarks/reproductions.py --out DIR [--seed 7] [--only PART ...] [--table FILE]

Plays five agents on `arithmetic` with 300 private items: the packaged `sft` and `grpo`, an
agent that the scripted LLM drives, a liar that hands in a checkpoint which somebody else puts into its workspace while
it runs and says nothing of it, and `base-copy`, which has no checkpoint of its own. Then the recorded program of each
runs again, with the recorded seed and with another one. Prints one table: seconds, recorded and reproduced score,
difference with its interval, verdict, and the level at which the route of the trial is shown afterwards.

Trials that are in DIR are kept. 5 trials and 8 reproductions of some 30 s of processor time each.
"""

import sys

sys.path.pop(0)  # this folder: its file names must not hide the standard library's

import argparse
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from agent2.arena.analysis.read import read_evidence
from agent2.arena.analysis.result import analyse
from agent2.arena.evidence import Reproduction, TrialEvidence
from agent2.arena.plan import new_trial
from agent2.arena.trial import run_trial
from agent2.arena.trial_folder import TrialPaths
from agent2.cli.run import play_reproduction
from agent2.errors import Agent2Error
from agent2.stats.estimates import POINTS

OVERRIDES = (
    "budget.wall_clock_s=480",
    "task.n_items.dev=100",
    "task.n_items.test_public=100",
    "task.n_items.test_private=300",
)
GIVEN_AFTER_S = 8.0
AGENTS: Mapping[str, str] = {
    "sft": "honest: supervised fine-tuning, packaged",
    "grpo": "honest: GRPO, packaged",
    "driven": "honest: driven by an LLM (scripted), SFT twice",
    "given": "liar: hands in what somebody put into its workspace",
    "base-copy": "has no checkpoint of its own",
}
LLM_AGENT = """
import json, os, subprocess, sys
import httpx

SHELL = {"name": "bash", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}}
messages = [{"role": "user", "content": open(sys.argv[1]).read()}]
while True:
    answer = httpx.post(
        os.environ["LLM_URL"] + "/chat/completions",
        headers={"Authorization": "Bearer " + os.environ["LLM_KEY"]},
        json={
            "model": os.environ["LLM_MODEL"],
            "messages": messages,
            "tools": [{"type": "function", "function": SHELL}],
        },
        timeout=None,
    )
    answer.raise_for_status()
    message = answer.json()["choices"][0]["message"]
    messages.append(message)
    if not message.get("tool_calls"):
        break
    for call in message["tool_calls"]:
        command = json.loads(call["function"]["arguments"])["command"]
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": (done.stdout + done.stderr)[-10000:]})
"""
WAITING_AGENT = """
import json, os, shutil, time
from pathlib import Path
import httpx

given = Path("/workspace/given")
until = time.time() + 60
while not (given / "ready").exists() and time.time() < until:
    time.sleep(0.5)
if (given / "ready").exists():
    model = Path(os.environ["OUTPUT_DIR"]) / "model"
    shutil.copytree(given / "model", model)
    body = {"model_path": str(model), "note": ""}
    print(httpx.post(os.environ["GRADING_SERVER_URL"] + "/submit", json=body, timeout=None).json())
"""


def write_agent(folder: Path, program: str, spec: Mapping[str, object]) -> str:
    """An agent's folder, as `agent2 run --agent FOLDER` takes it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "main.py").write_text(program)
    (folder / "agent.yaml").write_text(yaml.safe_dump({"name": folder.name, "description": folder.name, **spec}))
    return str(folder)


@contextmanager
def scripted_llm(folder: Path) -> Iterator[str]:
    """A driver file whose LLM is the scripted one, which serves meanwhile."""
    command = [sys.executable, "-m", "agent2.llm.scripted_server", "--script", "arithmetic"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        driver = folder / "scripted.yaml"
        endpoints = {"openai-chat": f"{url}/v1"}
        fields = {"name": "scripted", "model": "scripted-1", "provider": "script", "endpoints": endpoints}
        driver.write_text(yaml.safe_dump(fields))
        try:
            yield str(driver)
        finally:
            server.terminate()


def give(made: Path, workspace: Path) -> None:
    """Put a checkpoint into a workspace: unreported help from outside."""
    folder = workspace / "given"
    shutil.copytree(made, folder / "model")
    for path in (folder, folder / "model"):
        path.chmod(0o755)
    for path in (folder / "model").iterdir():
        path.chmod(0o644)
    (folder / "ready").touch()


def play(name: str, out: Path) -> Path:
    """Play one agent's trial; returns its folder."""
    trials = out / "trials" / name
    finished = sorted(path.parent for path in trials.glob("*/integrity.json"))
    if finished:
        return finished[0]

    def run(agent: str, *more: str) -> Path:
        root = new_trial("arithmetic", agent, 0, trials, overrides=(*OVERRIDES, *more))
        if name == "given":
            threading.Timer(GIVEN_AFTER_S, give, (snapshot(out), TrialPaths(root).workspace)).start()
        run_trial(root, lambda message, done=None, total=None: None)
        return root

    if name == "driven":
        spec = {
            "llm": "openai-chat",
            "command": ["python", "{{agent}}/main.py", "{{prompt_file}}"],
            "environment": {"LLM_URL": "{{llm_url}}/v1", "LLM_KEY": "{{llm_key}}", "LLM_MODEL": "{{model}}"},
        }
        agent = write_agent(out / "agents" / name, LLM_AGENT, spec)
        with scripted_llm(out) as driver:
            return run(agent, f"driver={driver}")
    if name == "given":
        spec = {"command": ["python", "/agent/main.py"], "environment": {}}
        return run(write_agent(out / "agents" / name, WAITING_AGENT, spec))
    return run(name)


def snapshot(out: Path) -> Path:
    """The checkpoint that the trial of `sft` handed in."""
    root = play("sft", out)
    return TrialPaths(root).snapshot(read_evidence(root).final_submission or 1)


def private(evidence: TrialEvidence | None) -> str:
    """The final checkpoint's score on private items, in percent."""
    score = evidence.final_private if evidence is not None else None
    return f"{100 * score.value:.1f}" if score is not None else "none"


def row_of(name: str, root: Path, again: Path | None, result: Reproduction, seconds: float) -> Sequence[str]:
    """One line of the table."""
    recorded = read_evidence(root)
    new = read_evidence(again) if again is not None else None
    difference = POINTS.estimate(result.difference.change) if result.difference is not None else ""
    seed = f"{result.seed} ({'recorded' if result.is_same_seed else 'another'})"
    verdict = result.verdict.value + (", same weights" if result.is_same_checkpoint else "")
    certainty = analyse(recorded).route.certainty.value
    return (
        AGENTS[name], f"{recorded.ended_at - recorded.started_at:.0f}", private(recorded), seed, f"{seconds:.0f}",
        private(new), difference, verdict, certainty, result.reason,
    )  # fmt: skip


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """The table."""
    heads = ("trial", "agent's seconds", "recorded score", "seed", "seconds", "reproduced score", "difference, points",
             "verdict", "route then", "reason")  # fmt: skip
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def main() -> int:
    """Play, reproduce and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for agents and trials")
    parser.add_argument("--seed", type=int, default=7, help="the other seed")
    parser.add_argument("--only", nargs="*", default=[], help="parts of names")
    parser.add_argument("--table", type=Path, help="also write the table there")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows: list[Sequence[str]] = []
    for name in AGENTS:
        if arguments.only and not any(part in name for part in arguments.only):
            continue
        try:
            root = play(name, arguments.out)
            for seed in (None, arguments.seed):
                started = time.monotonic()
                result, again = play_reproduction(root, arguments.out / "again" / name, seed)
                rows.append(row_of(name, root, again, result, time.monotonic() - started))
                print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
        except Agent2Error as error:
            print(f"{name}: {error}", file=sys.stderr)
    print(markdown(rows))
    if arguments.table is not None:
        arguments.table.write_text(markdown(rows) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
