"""Plays reference agents on a real language model without a GPU, and prints one table of what came out.

    python scripts/real.py --out real

`make real` runs it. It brings SmolLM2-135M-Instruct here, plays a trial of each agent on `instructions`, plays base
model and final checkpoint on benchmarks beside the task (`agent2 retention`), and writes the table to `OUT/table.md`.
What is done already is not done again, and an interrupted trial is resumed, so the same command goes on after an
interruption.

It needs only the standard library; all figures come from the reports that `agent2` wrote. It does NOT play several
seeds: an interval is over items, not over trainings.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODEL, TASK = "smollm2-135m", "instructions"
AGENTS = ("self-edit", "best-of-n", "dpo", "grpo")
EVALUATION_S = 1800
"""Longest that one evaluation may take: on a busy machine 200 items take more than the usual ten minutes."""
REWARDS = {"grpo": "instructions_followed"}
"""What an agent learns from where it is not the score: partial credit, as few groups of answers differ without it."""
MB = 1_000_000


@dataclass(frozen=True)
class Settings:
    """What one call plays."""

    out: Path
    agents: Sequence[str]
    wall_clock_s: int | None
    """Of each trial; None: the task's."""
    threads: int
    """Torch threads of each trial's agent and grader."""
    limit: int
    """Most items of each benchmark beside the task."""
    max_tokens: int
    """Of an answer there."""
    command: Sequence[str]
    """The command line of agent2."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Play what is not played yet, print the table and write it; returns the exit code."""
    settings = read_settings(arguments)
    settings.out.mkdir(parents=True, exist_ok=True)
    model = get_model(settings)
    reports = []
    for agent in settings.agents:
        trial = play_trial(settings, agent)
        measure_retention(settings, trial)
        reports.append(read_report(trial))
    text = table(model, reports)
    (settings.out / "table.md").write_text(text, encoding="utf-8")
    print(text)
    print(f"table: {settings.out / 'table.md'}")
    return 0


def read_settings(arguments: Sequence[str] | None = None) -> Settings:
    """The settings of a command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("real"))
    parser.add_argument("--agents", nargs="+", default=list(AGENTS))
    parser.add_argument("--wall-clock-s", type=int, help="of each trial; default: the task's")
    parser.add_argument(
        "--threads", type=int, default=min(2, os.cpu_count() or 1), help="of torch; two where there are"
    )
    parser.add_argument("--limit", type=int, default=100, help="most items of each benchmark beside the task")
    parser.add_argument("--max-tokens", type=int, default=256, help="of an answer there")
    given = parser.parse_args(arguments)
    command = (sys.executable, "-m", "agent2")
    return Settings(given.out, given.agents, given.wall_clock_s, given.threads, given.limit, given.max_tokens, command)


def get_model(settings: Settings) -> dict[str, float]:
    """Bring the model here: seconds that it took, and its size. Both are kept of the first call."""
    stored = settings.out / "model.json"
    if not stored.exists():
        started = time.monotonic()
        run(settings, "models", "get", MODEL)
        seconds = time.monotonic() - started
        folder = Path(json.loads(run(settings, "models", "show", MODEL, "--json"))["path"])
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        stored.write_text(json.dumps({"seconds": seconds, "megabytes": size / MB}), encoding="utf-8")
    record: dict[str, float] = json.loads(stored.read_text(encoding="utf-8"))
    return record


def play_trial(settings: Settings, agent: str) -> Path:
    """The finished trial of an agent: the one that is there, resumed if it was interrupted, or a new one."""
    folder = settings.out / "trials"
    before = sorted(folder.glob(f"{TASK}-{agent}-s*"))
    if not before:
        budget = [] if settings.wall_clock_s is None else ["--set", f"budget.wall_clock_s={settings.wall_clock_s}"]
        run(
            settings,
            "run",
            TASK,
            "--agent",
            agent,
            "--out",
            str(folder),
            *budget,
            "--set",
            f"threads={settings.threads}",
            "--set",
            f"evaluation_timeout_s={EVALUATION_S}",
            reward=REWARDS.get(agent),
        )
    elif not is_finished(before[0]):
        run(settings, "resume", str(before[0]), reward=REWARDS.get(agent))
    trials = sorted(folder.glob(f"{TASK}-{agent}-s*"))
    if not trials or not is_finished(trials[0]):
        raise SystemExit(f"real.py: the trial of {agent} did not finish; see its folder below {folder}")
    return trials[0]


def is_finished(trial: Path) -> bool:
    """Whether a trial has its report."""
    return (trial / "report" / "report.json").exists()


def measure_retention(settings: Settings, trial: Path) -> None:
    """Play base model and final checkpoint beside the task, unless that is done or there is no final checkpoint."""
    report = read_report(trial)
    if report["headline"]["final_submission"] is None or report["headline"]["is_base_copy"] or retention_of(report):
        return
    limits = ("--limit", str(settings.limit), "--max-tokens", str(settings.max_tokens))
    run(settings, "retention", str(trial), *limits)


def run(settings: Settings, *arguments: str, reward: str | None = None) -> str:
    """Run agent2 with its progress on stderr; returns what it printed. Ends this program where it fails.

    reward: what an agent learns from, `AGENT2_REWARD`; None: as the environment says.
    """
    environment = {**os.environ, **({} if reward is None else {"AGENT2_REWARD": reward})}
    print(f"real.py: agent2 {' '.join(arguments)}", file=sys.stderr, flush=True)
    done = subprocess.run(
        [*settings.command, *arguments], stdout=subprocess.PIPE, text=True, check=False, env=environment
    )
    if done.returncode != 0:
        print(done.stdout, file=sys.stderr)
        raise SystemExit(
            f"real.py: agent2 {arguments[0]} ended with exit code {done.returncode}; the same command goes on"
        )
    return done.stdout


def read_report(trial: Path) -> dict[str, Any]:
    """The report of a trial."""
    record: dict[str, Any] = json.loads((trial / "report" / "report.json").read_text(encoding="utf-8"))
    return record


def retention_of(report: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The rates beside the task that this installation measured, of each the last; empty: there are none."""
    own = [retention for retention in report["trial"].get("retention", ()) if retention["is_own"]]
    return list({skill["score"]: skill for retention in own for skill in retention["skills"]}.values())


def table(model: Mapping[str, float], reports: Sequence[Mapping[str, Any]]) -> str:
    """The table in Markdown: the base model, then each agent's final checkpoint."""
    skills = next((skills for report in reports if (skills := retention_of(report))), ())
    names = [skill["score"] for skill in skills]
    columns = [
        "",
        "private items [95%]",
        "gain, points [95%]",
        "noise band",
        "minutes (CPU)",
        *names,
        "tokens an answer",
    ]
    base = reports[0]["headline"]["base_private"]
    rows = [
        [
            "base model",
            percent(base),
            "",
            "",
            "",
            *(percent(skill["base"]) for skill in skills),
            tokens(skills, "base_answers"),
        ],
        *(row(report, names) for report in reports),
    ]
    head = (
        f"`{TASK}` on {MODEL}: {base['n']} private items; the model was here in {model['seconds']:.0f} s "
        f"({model['megabytes']:.0f} MB). One seed; intervals are over items."
    )
    lines = [f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns), *rows)]
    counts = ", ".join(f"{skill['score']} {skill['base']['n']}" for skill in skills)
    foot = [f"Items beside the task: {counts}."] if counts else []
    return "\n\n".join([head, "\n".join(lines), *foot]) + "\n"


def without_score(report: Mapping[str, Any]) -> str:
    """Why there is no private score, with what ended the agent where that is known."""
    reason = report["trial"].get("agent_end_reason")
    return f"none: {report['headline']['result']['words']}" + (f" ({reason})" if reason else "")


def row(report: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """One agent's line; what was not measured is said so, never 0."""
    headline, result = report["headline"], report["headline"]["result"]
    gain, noise = result["gain"], result["noise_points"]
    skills = {skill["score"]: skill for skill in retention_of(report)}
    cpu_s = report["analysis"]["efficiency"]["cpu_s"]
    cpu = "not measured" if cpu_s is None else f"{cpu_s / 60:.0f}"
    return [
        f"`{report['trial']['agent']}`",
        percent(headline["final_private"]) if headline["final_private"] is not None else without_score(report),
        "none" if gain is None else f"{100 * gain['value']:+.1f}{interval(gain, '+')}",
        "none" if noise is None else f"±{noise:.1f}",
        f"{headline['used_s'] / 60:.0f} ({cpu})",
        *(beside(skills[name]) if name in skills else "not measured" for name in names),
        tokens(list(skills.values()), "final_answers"),
    ]


def beside(skill: Mapping[str, Any]) -> str:
    """A rate beside the task, with how far it is from the base model's."""
    pair = skill["difference"]
    change = "" if pair is None else f", {100 * pair['change']['value']:+.1f}{interval(pair['change'], '+')}"
    return f"{percent(skill['final'])}{change}"


def percent(estimate: Mapping[str, Any]) -> str:
    """A rate with its interval."""
    return f"{100 * estimate['value']:.1f}%{interval(estimate)}"


def interval(estimate: Mapping[str, Any], sign: str = "") -> str:
    """The interval with a blank before it; empty where there is none."""
    if estimate["low"] is None:
        return ""
    return f" [{100 * estimate['low']:{sign}.1f}, {100 * estimate['high']:{sign}.1f}]"


def tokens(skills: Sequence[Mapping[str, Any]], side: str) -> str:
    """Mean length of the answers beside the task, benchmark by benchmark."""
    means = {skill["benchmark"]: skill[side]["mean_tokens"] for skill in skills}
    known = [f"{name} {mean:.0f}" for name, mean in means.items() if mean is not None]
    return ", ".join(known) or "not measured"


if __name__ == "__main__":
    sys.exit(main())
