"""`scripts/real.py`: nothing is done twice, an interrupted trial is resumed, and the table says what is missing."""

import json
import sys
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "real.py"
spec = spec_from_file_location("real", SCRIPT)
assert spec is not None and spec.loader is not None
real = sys.modules["real"] = module_from_spec(spec)
spec.loader.exec_module(real)

FAKE = """
import json, os, sys
from pathlib import Path
here = Path({folder!r})
with (here / "calls.txt").open("a") as calls:
    calls.write(" ".join([*sys.argv[1:], os.environ.get("AGENT2_REWARD", "")]) + "\\n")
def finish(trial, retention=()):
    (trial / "report").mkdir(parents=True, exist_ok=True)
    report = json.loads((here / "report.json").read_text())
    report["trial"].update(agent=trial.name.split("-s0")[0].removeprefix("instructions-"), retention=list(retention))
    (trial / "report" / "report.json").write_text(json.dumps(report))
match sys.argv[1:]:
    case ["models", "get", _]:
        (here / "model").mkdir()
        (here / "model" / "weights").write_bytes(b"0" * 2_000_000)
    case ["models", "show", *_]:
        print(json.dumps({{"path": str(here / "model")}}))
    case ["run", _, "--agent", agent, "--out", out, *_]:
        trial = Path(out) / f"instructions-{{agent}}-s0-1"
        trial.mkdir(parents=True)
        if agent == "dpo":
            sys.exit(3)
        finish(trial)
    case ["resume", trial]:
        finish(Path(trial))
    case ["retention", trial, *_]:
        finish(Path(trial), json.loads((here / "retention.json").read_text()))
"""


def an_estimate(value, low, high, n=200):
    return {"value": value, "low": low, "high": high, "n": n, "n_missing": 0, "method": "Wilson"}


REPORT = {
    "headline": {
        "base_private": an_estimate(0.23, 0.177, 0.293),
        "final_private": an_estimate(0.35, 0.287, 0.418),
        "final_submission": 2,
        "is_base_copy": False,
        "used_s": 2400.0,
        "result": {"gain": an_estimate(0.12, 0.055, 0.185), "noise_points": 5.5, "words": "scored"},
    },
    "analysis": {"efficiency": {"cpu_s": None}},
    "trial": {"agent": "best-of-n", "retention": []},
}
SKILL = {
    "benchmark": "ifeval",
    "score": "ifeval_prompt_accuracy",
    "base": an_estimate(0.3, 0.2, 0.4, 100),
    "final": an_estimate(0.25, 0.15, 0.35, 100),
    "difference": {"change": an_estimate(-0.05, -0.1, 0.0, 100), "p_value": 0.2},
    "base_answers": {"mean_tokens": 200.0, "cut_off_share": 0.5},
    "final_answers": {"mean_tokens": 150.4, "cut_off_share": 0.2},
}


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "fake.py").write_text(FAKE.format(folder=str(tmp_path)))
    (tmp_path / "report.json").write_text(json.dumps(REPORT))
    foreign = {"is_own": False, "skills": [SKILL | {"final": an_estimate(0.9, 0.8, 1.0)}]}
    (tmp_path / "retention.json").write_text(json.dumps([{"is_own": True, "skills": [SKILL]}, foreign]))
    settings = real.read_settings(["--out", str(tmp_path / "real"), "--agents", "best-of-n", "--wall-clock-s", "60"])
    return replace(settings, command=(sys.executable, str(tmp_path / "fake.py")))


def play(settings, monkeypatch):
    monkeypatch.setattr(real, "read_settings", lambda arguments: settings)
    return real.main([])


def calls(settings):
    return (settings.out.parent / "calls.txt").read_text().splitlines()


def test_everything_is_played_once_and_the_table_has_the_figures_of_the_reports(settings, monkeypatch, capsys):
    assert play(settings, monkeypatch) == 0
    text = (settings.out / "table.md").read_text()
    assert text in capsys.readouterr().out
    assert "200 private items; the model was here in" in text and "(2 MB)" in text
    assert "| base model | 23.0% [17.7, 29.3] |  |  |  | 30.0% [20.0, 40.0] | ifeval 200 |" in text
    assert (
        "| `best-of-n` | 35.0% [28.7, 41.8] | +12.0 [+5.5, +18.5] | ±5.5 | 40 (not measured) "
        "| 25.0% [15.0, 35.0], -5.0 [-10.0, +0.0] | ifeval 150 |" in text
    )
    assert "--set budget.wall_clock_s=60" in calls(settings)[2]
    n_calls = len(calls(settings))
    assert play(settings, monkeypatch) == 0
    assert len(calls(settings)) == n_calls, "nothing is done twice"


def test_an_interrupted_trial_ends_the_program_and_is_resumed_by_the_same_command(settings, monkeypatch):
    settings = replace(settings, agents=["best-of-n", "dpo"])
    with pytest.raises(SystemExit, match="agent2 run ended with exit code 3; the same command goes on"):
        play(settings, monkeypatch)
    assert play(settings, monkeypatch) == 0
    (resumed,) = [line for line in calls(settings) if line.startswith("resume")]
    assert "instructions-dpo-s0-1" in resumed
    assert "| `dpo` | 35.0%" in (settings.out / "table.md").read_text()


def test_grpo_alone_learns_from_partial_credit(settings, monkeypatch):
    monkeypatch.delenv("AGENT2_REWARD", raising=False)
    assert play(replace(settings, agents=["grpo", "best-of-n"]), monkeypatch) == 0
    rewarded = {
        line.split()[3]: line.endswith("instructions_followed") for line in calls(settings) if line[:3] == "run"
    }
    assert rewarded == {"grpo": True, "best-of-n": False}


def test_a_trial_without_a_checkpoint_is_said_to_have_none_and_nothing_is_played_beside_it(settings, monkeypatch):
    headline = REPORT["headline"] | {"final_submission": None, "final_private": None}
    headline["result"] = {"gain": None, "noise_points": None, "words": "no submission was received"}
    trial = REPORT["trial"] | {"agent_end_reason": "the program used 9.55 GiB of memory, 8 GiB are allowed"}
    (settings.out.parent / "report.json").write_text(json.dumps(REPORT | {"headline": headline, "trial": trial}))
    assert play(settings, monkeypatch) == 0
    assert not any(line.startswith("retention") for line in calls(settings))
    text = (settings.out / "table.md").read_text()
    assert (
        "| `best-of-n` | none: no submission was received (the program used 9.55 GiB of memory, 8 GiB are allowed) "
        "| none | none |" in text
    )
    assert "| not measured |" in text
