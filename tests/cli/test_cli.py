"""The command line as a user meets it: one line for an error, the path last, the exit codes of `EXIT_CODES`."""

import errno
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import typer
from safetensors import SafetensorError
from typer.testing import CliRunner

from agent2.benchmarks import BASE_MODELS
from agent2.cards.writer import CardWriter
from agent2.cli import _asked, app, main
from agent2.cli.show import resumed_by_repeating
from agent2.errors import CheckpointError, ConfigError, SandboxError
from card_builders import make_header, make_record
from cli_builders import run_agent2 as agent2
from gateway_fakes import wait_for
from grading_builders import write_checkpoint
from package_source import SOURCE
from trial_builders import write_agent, write_task


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "arithmetik", "--agent", "grpo"], "did you mean 'arithmetic'?"),
        (["run", "arithmetic", "--agent", "gpro"], "did you mean 'grpo'?"),
        (["run", "arithmetic"], "agent2: give an agent, for example: agent2 run arithmetic --agent"),
        (["run", "arithmetik"], "did you mean 'arithmetic'?"),
        (["run", "--agent", "nop"], "agent2: give a task, for example: agent2 run arithmetic"),
        (["run"], "agent2: give a task and an agent, for example"),
        (["run", "arithmetc", "--agent", "nop"], "agent2: unknown task 'arithmetc'; did you mean 'arithmetic'?"),
        (["run", "arithmetic", "--agent", "nop", "--set", "device=cuda"], "unknown key 'device'; known keys: "),
        (["run", "arithmetic", "--agent", "nop", "--set", "budget={wall_clock_s: ["], "; fix the value after '='"),
        (["run", "arithmetic", "--agent", "nop", "--model", "Qwen/Q"], "hf download Qwen/Q --local-dir models/Q, then"),
        (["run", "arithmetic", "--agent", "nop", "--set", "network=pakages"], "did you mean 'packages'?"),
        (["run", "arithmetic", "--agent", "nop", "--set", "budget.wall=1"], "did you mean 'wall_clock_s'?"),
        (["resume", "nowhere"], "no trial.json there"),
        (["models", "build", "tiny", "--task", "arithmetics"], "did you mean 'tiny-arithmetic'?"),
        (["models", "check", "nowhere"], "nowhere"),
        (["tasks", "show", "arithmetik"], "did you mean 'arithmetic'?"),
        (["cards", "show", "nowhere"], "nowhere"),
        (["sweep", "nowhere.yaml"], "cannot be read"),
        (["run", "arithmetic", "--agent", "nop", "--seed", "x"], "agent2 run --help"),
        (["run", "--agnet", "nop"], "No such option: --agnet"),
        (["rum"], "No such command 'rum'"),
        (["run", "arithmetic", "--agent", "nop", "--out", "file"], "is a file; pass a folder"),
        (["run", "arithmetic", "--agent", "nop", "--out", "/proc/nothing/here"], "/proc"),
        (["run", "arithmetic", "--agent", "nop", "--set", "trial_id=../x"], "../x"),
        (["run", "arithmetic", "--agent", "./no-command"], "key 'command' is missing"),
        (["resume", ".", "--agent", "grpo"], "No such option: --agent"),
        (["run", "arithmetic", "--agent", "nop", "--set", "budget.wall_clock_s=-1"], "greater than 0"),
        (["run", "arithmetic", "--agent", "nop", "--set", "base_model=tiny"], "base model 'tiny'"),
        (["run", "arithmetic", "--agent", "nop", "--set", "task.n_items.dev=1000000"], "1000000 items"),
        (["run", "arithmetic", "--agent", "nop", "--set", "mode=rlonly"], "did you mean 'rl-only'?"),
        (["run", "arithmetic", "--agent", "nop", "--driver", "openai/gpt-5"], "agent nop is driven by no LLM"),
        (["run", "arithmetic", "--agent", "codex"], "agent codex is driven by an LLM; pass one, as in --driver"),
        (["run", "arithmetic", "--agent", "codex", "--driver", "opnai/gpt-5"], "did you mean 'openai'?"),
        (["run", "arithmetic", "--agent", "codex", "--driver", "openai/gpt-5"], "OPENAI_API_KEY is not set"),
        (
            ["sweep", "s.yaml", "--set", "budget.wall_clock_s=9"],
            'the list `set` of s.yaml: set: ["budget.wall_clock_s=9"]',
        ),
        (["replay", "nowhere"], "no trial.json there"),
        (["repeat", "nowhere"], "no trial.json there"),
        (["run", "arithmetic", "--agent", "nop", "--set", "sandbox=bubblewarp"], "did you mean 'bubblewrap'?"),
        (["run", "arithmetic", "--agent", "nop", "--seed", "-1"], "seed: Input should be greater than or equal to 0"),
        (
            ["run", "arithmetic", "--agent", "nop", "--set", "budget.wall_clock_s=.inf"],
            "less than or equal to 1000000000",
        ),
        (["run", "arithmetic", "--agent", "nop", "--set", "budget.wall_clock_s=.nan"], "wall_clock_s"),
        (["resume", "loop"], "loop"),
        (
            ["run", "arithmetic", "--agent", "nop", "--set", f"task.n_items.dev={10**30}"],
            "less than or equal to 1000000",
        ),
        (["intervene", "nowhere", "--note", "hello"], "no trial.json there"),
        (["share", "nowhere", "out"], "no trial.json there"),
        (["cards", "list", "nowhere"], "nowhere: no such folder; pass the folder of a trial, a sweep or an evaluation"),
        (["cards", "validate", "nowhere"], "no card.json there or below"),
        (["cards", "show", ".", "--start", "-1"], "neither may be negative"),
        (["cards", "import", "deep.json", "card"], "deep.json: is not JSON"),
        (["cards", "length-control", ".", "--difficulty", "deep.json"], "give a JSON object of item ids and numbers"),
        (["monitor", "deep.json", "--suite", "llm_core_regression_mini"], "deep.json: is not JSON"),
        (["view", ".", "--port", "0", "--host", "\u00fc..x"], "is not the name or address of a host"),
        (["view", ".", "--port", "0", "--token", "correct horse battery"], "--token: only letters, digits and"),
        (["leaderboard", ".", "--out", "board.txt"], "add --format html, csv, json or markdown"),
        (
            ["leaderboard", ".", "--format", "csv", "--out", "no-command"],
            "--out no-command: is a folder; pass the path",
        ),
        (
            ["judge", "check", "pairs.jsonl", "--scorer", "longer_answer", "--out", "nowhere/verdicts.jsonl"],
            "the folder nowhere does not exist",
        ),
        (
            ["benchmarks", "new", "file"],
            "file: is not one of .jsonl, .jsonl.gz, .json, .csv, .tsv, .parquet; convert it",
        ),
        (["benchmarks", "new", "gone.csv", "--answer", "a"], "gone.csv is not a file; check the path"),
        (["benchmarks", "new", "gone.jsonl"], "gone.jsonl is not a file; check the path"),
        (["benchmarks", "new", "no-command"], "no-command/test.jsonl: already exists; choose another folder"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, sentence, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "pairs.jsonl").write_text('{"instruction": "q", "first": "aa", "second": "b", "label": 1}\n')
    (tmp_path / "no-command").mkdir()
    (tmp_path / "no-command" / "test.jsonl").touch()
    (tmp_path / "no-command" / "agent.yaml").write_text("name: mine\ndescription: no command\n")
    (tmp_path / "agent2" / "models").mkdir(parents=True)
    write_built_base(tmp_path / "agent2" / "models")
    ended = agent2(*arguments, home=tmp_path)
    assert ended.returncode == 2
    lines = [line for line in ended.stderr.splitlines() if not line.endswith(" base model")]
    assert len(lines) == 1 and lines[0].startswith("agent2: ") and sentence in lines[0]
    assert not list((tmp_path / "trials").glob("*"))
    leftovers = ("agent.yaml", "test.jsonl")
    assert sorted(path.name for path in (tmp_path / "no-command").iterdir()) == list(leftovers)


def test_a_gpu_that_this_machine_lacks_is_exit_code_4(tmp_path):
    (tmp_path / "agent2" / "models").mkdir(parents=True)
    write_built_base(tmp_path / "agent2" / "models")
    ended = agent2("run", "arithmetic", "--agent", "nop", "--set", "gpus=[977]", home=tmp_path)
    assert (ended.returncode, "GPU 977: /dev/nvidia977 does not exist" in ended.stderr) == (4, True)


def write_built_base(models):
    """A random model where the cache has the built one, so that no test builds it."""
    folder = write_checkpoint(models / f"tiny-arithmetic-{BASE_MODELS['tiny-arithmetic'].digest[:12]}")
    (folder / "manifest.json").write_text("{}")


def test_verbose_shows_the_trace(tmp_path):
    command = [sys.executable, "-m", "agent2", "-v", "tasks", "show", "arithmetik"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)  # verbose as long as a process lives
    assert "Traceback" in ended.stderr
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith("agent2: unknown task 'arithmetik'")


@pytest.fixture
def own_temporary_folder(tmp_path, monkeypatch):
    """Where the traceback of a bug is written."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


@pytest.mark.usefixtures("own_temporary_folder")
def test_a_bug_of_ours_is_one_line_with_exit_code_3_and_its_trace_is_kept(monkeypatch, capsys):
    """A real bug: an error that no boundary expects, out of the library that a command calls."""
    monkeypatch.setattr(sys, "argv", ["agent2", "tasks", "list"])
    monkeypatch.setattr("agent2.arena.tasks.task_names", lambda: None)
    with pytest.raises(SystemExit) as exit_info:
        main()
    (line,) = capsys.readouterr().err.splitlines()
    assert exit_info.value.code == 3
    assert line.startswith("agent2: this is a bug in agent2: TypeError: ") and "; its traceback is in " in line
    trace = Path(line.rpartition(" ")[2]).read_text()
    assert "agent2 tasks list" in trace and "TypeError: " in trace.splitlines()[-1]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "f"), 4),
        (OSError(errno.EFBIG, "File too large", "f"), 4),
        (SafetensorError("Error while serializing: I/O error: File too large (os error 27)"), 4),
        (CheckpointError("model.safetensors: file too large"), 2),
        (OSError(errno.EACCES, "Permission denied", "f"), 2),
        (MemoryError(), 4),
        (sqlite3.OperationalError("database or disk is full"), 4),
        (sqlite3.OperationalError("no such table: x"), 3),
        (SandboxError("bwrap is not there"), 4),
        (ConfigError("out of memory is not a task"), 2),
        (RecursionError("too deep"), 3),
    ],
)
@pytest.mark.usefixtures("own_temporary_folder")
def test_the_exit_code_says_whose_fault_an_error_is(error, code, monkeypatch, capsys):
    # as if a file of the package raised it: an error of other code is its author's
    names = {"error": error}
    exec(compile("def fail():\n    raise error\n", str(SOURCE / "stand_in.py"), "exec"), names)
    fail = names["fail"]
    monkeypatch.setattr(sys, "argv", ["agent2", "tasks", "list"])
    monkeypatch.setattr("agent2.arena.tasks.task_names", fail)
    with pytest.raises(SystemExit) as exit_info:
        main()
    assert (exit_info.value.code, len(capsys.readouterr().err.splitlines())) == (code, 1)


def test_a_reader_that_closes_the_pipe_is_no_error(tmp_path):
    program = f"{sys.executable} -m agent2 agents list | sleep 0; echo ${{PIPESTATUS[0]}}"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "AGENT2_HOME": str(tmp_path / "agent2")}
    ended = subprocess.run(
        ["bash", "-c", program], capture_output=True, text=True, check=False, env=environment, cwd=tmp_path
    )
    assert ended.stderr == ""
    assert ended.stdout.strip() in ("0", "141")


def test_lists_name_what_ships(tmp_path):
    assert "arithmetic" in agent2("tasks", "list", home=tmp_path).stdout
    assert "grpo" in agent2("agents", "list", home=tmp_path).stdout
    assert "not built yet" in agent2("models", "list", home=tmp_path).stdout


def test_a_task_is_shown_with_examples(tmp_path):
    assert "Calculate" in agent2("tasks", "show", "arithmetic", home=tmp_path).stdout


def test_doctor_says_what_this_host_holds(tmp_path):
    ended = agent2("doctor", home=tmp_path)
    assert "bubblewrap" in ended.stdout
    assert ended.returncode == ("problem" in ended.stdout)


def test_a_folder_without_cards_is_said_to_have_none(tmp_path):
    ended = agent2("cards", "list", str(tmp_path), home=tmp_path)
    assert (ended.returncode, ended.stdout.strip()) == (0, f"no cards below {tmp_path}")


def test_a_card_is_listed_shown_and_validated_and_a_changed_byte_is_found(tmp_path):
    card = tmp_path / "card"
    with CardWriter(card, make_header()) as writer:
        for number in range(4):
            writer.append(make_record(f"item-{number}", value=float(number % 2)))
        writer.close()
    assert "0.500" in agent2("cards", "list", str(tmp_path), home=tmp_path).stdout
    result = agent2("cards", "show", str(card), "--n", "2", home=tmp_path)
    assert "4; 4 rollouts, 0 missing" in result.stdout
    good = agent2("cards", "validate", str(card), home=tmp_path)
    assert (good.returncode, good.stdout.strip()) == (0, f"valid card: {card}")
    frames = card / "rollouts.parquet"
    data = bytearray(frames.read_bytes())
    data[len(data) // 2] ^= 1
    frames.write_bytes(data)
    bad = agent2("cards", "validate", str(card), home=tmp_path)
    assert bad.returncode == 1
    assert bad.stdout.strip()


@pytest.mark.slow
def test_a_trial_from_the_command_line_ends_with_the_path_of_its_report(common_home, tmp_path):
    task = write_task(tmp_path)
    ended = agent2("run", str(task), "--agent", "nop", "--set", "trial_id=t", home=tmp_path, installation=common_home)
    assert ended.returncode == 0, ended.stderr
    last = ended.stdout.strip().splitlines()[-1]
    assert last == f"report: {tmp_path}/trials/t/report/report.html"
    report = json.loads((tmp_path / "trials" / "t" / "report" / "report.json").read_text())
    assert report
    assert "no submission" in ended.stdout
    phases = [line[9:] for line in ended.stderr.splitlines()]  # after the time of day
    assert phases[0] == "base model" and "noise band" in phases
    assert not set(ended.stderr) & set("\x1b\r━")
    again = agent2("resume", "trials/t", home=tmp_path, installation=common_home)
    assert again.returncode == 0
    assert again.stdout.strip().splitlines()[-1] == last
    repeated = agent2("repeat", "trials/t", home=tmp_path, installation=common_home)
    assert repeated.returncode == 0, repeated.stderr
    assert repeated.stdout.strip().splitlines()[-1] != last
    assert "differs from" not in repeated.stderr


def test_help_loads_no_heavy_library_and_no_arguments_show_it(tmp_path):
    """Torch alone would take three seconds."""
    program = "import sys; from agent2.cli import main; sys.argv = ['agent2', '--help']\ntry: main()\nfinally: "
    heavy = {"torch", "transformers", "scipy", "pyarrow", "matplotlib", "numpy", "pydantic"}
    program += f"print(sorted({heavy} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "sweep" in ended.stdout and ended.stdout.splitlines()[-1] == "[]"
    empty = agent2(home=tmp_path)
    assert empty.returncode == 2 and "sweep" in empty.stdout and "Traceback" not in empty.stderr


@pytest.mark.slow
def test_an_interrupted_trial_says_how_to_go_on(common_home, tmp_path):
    agent = write_agent(tmp_path / "sleeper", "import time\ntime.sleep(500)")
    command = [sys.executable, "-m", "agent2", "run", str(write_task(tmp_path)), "--agent", str(agent)]
    program = subprocess.Popen(
        [*command, "--set", "trial_id=t", "--out", "out of order"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"AGENT2_HOME": str(common_home)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    for line in program.stderr:
        if "agent sleeper" in line:
            break
    program.send_signal(signal.SIGINT)
    _, stderr = program.communicate(timeout=240)
    assert program.returncode == 130
    assert f"resume with: agent2 resume '{tmp_path}/out of order/t'" in stderr  # as a shell takes it
    assert stderr.splitlines()[-1] == "agent2: interrupted"
    again = agent2("resume", "out of order/t", "--no-restart", home=tmp_path, installation=common_home)
    assert again.returncode == 0, again.stderr
    assert "interrupted" in again.stdout


@pytest.mark.slow
def test_an_interrupted_sweep_says_how_to_resume(common_home, tmp_path):
    agent = write_agent(tmp_path / "sleeper", "import pathlib, time\npathlib.Path('begun').touch()\ntime.sleep(500)")
    file = tmp_path / "two words.yaml"
    file.write_text(f"name: naps\ntasks: [{write_task(tmp_path)}]\nagents: [{agent}]\nseeds: [0, 1]\n")
    program = subprocess.Popen(
        [sys.executable, "-m", "agent2", "sweep", file.name],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"AGENT2_HOME": str(common_home)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    wait_for(lambda: list(tmp_path.glob("sweeps/naps/trials/*/workspace/begun")))
    program.send_signal(signal.SIGINT)
    _, stderr = program.communicate(timeout=240)
    assert program.returncode == 130
    assert "what is finished is kept; resume with the same command: agent2 sweep 'two words.yaml'" in stderr
    assert "Traceback" not in stderr
    assert [path.parent.name for path in tmp_path.rglob("trial.json")] == ["arithmetic-sleeper-s0"]  # no further one
    assert "resume with: agent2 resume" in next(tmp_path.rglob("*-s0.log")).read_text()


def test_an_interrupted_evaluation_says_how_to_resume(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["/opt/bin/agent2", "eval", "suite", "--checkpoint", "a model"])
    with pytest.raises(KeyboardInterrupt), resumed_by_repeating():
        raise KeyboardInterrupt
    assert "resume with the same command: agent2 eval suite --checkpoint 'a model'" in capsys.readouterr().err


def commands(command, path=()):
    """Every command with its words: ("cards", "list")."""
    for name, below in sorted(getattr(command, "commands", {}).items()):
        if getattr(below, "commands", None):
            yield from commands(below, (*path, name))
        else:
            yield " ".join((*path, name)), below


PATH_ONLY = {
    *("node", "part", "view"),
    *(
        "benchmarks get",
        "benchmarks new",
        "benchmarks serve",
        "cards export",
        "export",
        "intervene",
        "models build",
        "share",
        "skill",
    ),
    *("models convert", "models get"),
    *("spotcheck draw", "spotcheck record", "suite freeze", "suite new"),
}
"""They write one thing and print where it is, or serve it; so do those of `chart`, with a CSV table beside."""


def test_a_command_has_at_most_eight_options_two_have_one_more_and_prints_its_results_as_json_too():
    page = (Path(__file__).parents[2] / "docs" / "json-output.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`([a-z -]+)`", " ".join(re.findall(r"^\| (`.*?) \|", page, re.MULTILINE))))
    by_name = dict(commands(typer.main.get_command(app)))
    assert len(by_name) > 35 and by_name.keys() >= PATH_ONLY
    for name, command in by_name.items():
        options = [option for option in command.params if option.param_type_name == "option" and option.name != "help"]
        assert len(options) <= (9 if name in ("eval", "score") else 8), (name, [option.opts for option in options])
        has_json = any("--json" in option.opts for option in options)
        assert has_json is (name not in PATH_ONLY and not name.startswith("chart ")), name
        assert (name in listed) is has_json, name
        assert command.help, name


def test_every_command_is_in_a_panel_and_completion_can_be_installed(capsys):
    root = typer.main.get_command(app)
    panels = {name: getattr(command, "rich_help_panel", None) for name, command in root.commands.items()}
    assert set(panels.values()) == {"Arena", "Evaluate", "Decide", "Data", "Look", "Set up"}
    assert {"--install-completion", "--show-completion"} <= {opt for parameter in root.params for opt in parameter.opts}


@pytest.mark.parametrize("arguments", [["history"], ["cards", "list"], ["suite"]])
def test_alone_a_command_is_what_it_is_among_all(arguments):
    few = _asked(["-v", *arguments])
    assert len(few.registered_commands) + len(few.registered_groups) == 1
    alone, among = (CliRunner().invoke(whole, [*arguments, "--help"]) for whole in (few, app))
    assert (alone.exit_code, alone.output) == (0, among.output)


def test_a_command_loads_no_other_command_and_what_reads_cards_no_numpy():
    program = "import sys; from agent2.cli import main; sys.argv = ['agent2', 'history', '--in', '/nowhere']\n"
    program += "try: main()\nfinally: import agent2.cards.reader; print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    loaded = set(ended.stdout.split())
    assert "/nowhere" in ended.stderr
    assert {name for name in loaded if name.startswith("agent2.cli.")} == {"agent2.cli.history", "agent2.cli.show"}
    assert "agent2.stats.estimates" in loaded and "numpy" not in loaded


@pytest.mark.parametrize("arguments", [[], ["--help"], ["histori"], ["-v"], ["--version"]])
def test_what_is_no_command_is_answered_by_all_of_them(arguments):
    assert _asked(arguments) is app
