import pytest

from agent2.arena.analysis.programs import ran_programs, reachable
from builders import GRPO_SOURCE, make_evidence, make_process, make_revision


def only_program(command, files=None, **changes):
    revisions = [make_revision(files or {"code/train.py": GRPO_SOURCE})]
    evidence = make_evidence(processes=[make_process(command)], revisions=revisions, **changes)
    programs = ran_programs(evidence)
    return programs[0] if programs else None


@pytest.mark.parametrize(
    "command",
    [
        "python code/train.py",
        "/usr/bin/python3 -u /workspace/code/train.py --lr 1",
        "python train.py",
        "python -m code.train",
        "accelerate launch --num_processes 1 code/train.py",
        "torchrun code/train.py",
    ],
)
def test_a_command_line_leads_to_the_recorded_source(command):
    program = only_program(command)
    assert [facts.path for facts in program.sources] == ["code/train.py"]


@pytest.mark.parametrize(
    "command", ["cat code/train.py", "grep -r GRPOTrainer code", "bash run_grpo.sh", "vim grpo.py"]
)
def test_looking_at_code_is_not_running_it(command):
    program = only_program(command)
    assert program is None


def test_inline_code_is_read_as_source():
    process = make_process("python -c", at=6)
    process = process.__class__(7, ("python", "-c", "GRPOTrainer(m)"), process.first_seen, process.last_seen, 1.0, 1)
    program = ran_programs(make_evidence(processes=[process]))[0]
    assert program.sources[0].signals[0].algorithm.name == "GRPO"


def test_a_launcher_names_its_method():
    assert only_program("trl sft --model m").named.name == "SFT"
    assert only_program("python /usr/local/bin/trl grpo --model m").named.name == "GRPO"


def test_imports_among_own_files_are_followed_and_cycles_end():
    files = {"code/main.py": "import lib\n", "code/lib.py": "import main\nfrom trl import X\nGRPOTrainer(m)\n"}
    assert sorted(facts.path for facts in reachable(files, "code/main.py")) == ["code/lib.py", "code/main.py"]


def test_the_revision_that_stood_when_the_program_started_counts():
    revisions = [
        make_revision({"train.py": "SFTTrainer(m)\n"}, at=5),
        make_revision({"train.py": "GRPOTrainer(m)\n"}, at=60),
    ]
    program = ran_programs(make_evidence(revisions=revisions, processes=[make_process("python train.py", at=20)]))[0]
    assert program.sources[0].signals[0].algorithm.name == "SFT"


@pytest.mark.parametrize("command", ["python /agent/main.py", "python /home/me/agents/mine/main.py"])
def test_files_of_the_agent_itself_are_read_from_its_folder(command):
    files = {"main.py": "import lib\n", "lib.py": "GRPOTrainer(m)\n"}
    program = only_program(command, agent_files=files)
    assert program.name == "/agent/main.py"
    assert [facts.path for facts in program.sources if facts.signals] == ["/agent/lib.py"]


def test_the_harness_own_programs_in_the_sandbox_are_not_the_agents():
    assert only_program("/run/agent2/python -I -S /run/agent2/forward.py 25 24") is None
