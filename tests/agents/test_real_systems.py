"""The real agent systems, each playing whole `arithmetic` trials in the sandbox against a scripted LLM.

`make test-agents`. Installs what is missing below $AGENT2_HOME; a system that cannot be installed on this machine
is skipped by name with the reason. Whether a trial went well is read from what it left behind, never from the
agent's exit code.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
import zstandard

from agent2 import installation
from agent2.arena.agents import agent_names, load_agent
from agent2.arena.analysis.read import read_evidence
from agent2.arena.analysis.result import analyse
from agent2.arena.analysis.verdicts import Route
from agent2.arena.driver import LLM_PORT
from agent2.arena.evidence import AgentEnd, SubmissionState, TrialEvidence
from agent2.arena.plan import new_trial, replay_trial
from agent2.arena.recording import compare_replay
from agent2.arena.systems import InstallOptions, find_installed, install_system
from agent2.arena.trial import run_trial
from agent2.arena.trial_folder import TrialPaths
from agent2.errors import Agent2Error
from agent2.llm.gateway.recording import ExchangeOutcome, read_exchanges
from agent2.llm.records import WireProtocol
from agent2.llm.scripted_replies import load_script
from agent2.reports.pages import write_report
from scripted_llm_builders import KEY, KEY_VARIABLE, Upstream, dollars_of, scripted_upstream, write_driver
from trial_builders import quiet

pytestmark = [pytest.mark.agents, pytest.mark.timeout(1500)]

SYSTEMS = [name for name in agent_names() if load_agent(name).spec.install is not None]
REPEATS_ITS_SCREEN = frozenset({"openhands"})
"""Now and then its terminal tool answers with the screen of the command before, so a strict replay may stop there."""
SCRIPT = load_script("arithmetic")
FEWER_ITEMS = ("task.n_items.test_public=100", "task.n_items.test_private=100")
"""Evaluations are not what is looked at here."""


@dataclass(frozen=True)
class PlayedTrial:
    """One finished trial and what its upstream saw."""

    name: str
    root: Path
    evidence: TrialEvidence
    report: dict
    served: list[dict]
    upstream: Upstream
    probe: dict


def require_system(name):
    try:
        install_system(load_agent(name), InstallOptions(), print)
    except Agent2Error as error:
        pytest.skip(f"{name} cannot be installed on this machine: {error}")


def play(root):
    run_trial(root, quiet)
    evidence = read_evidence(root)
    write_report(evidence, analyse(evidence), TrialPaths(root).report)
    return evidence


def write_probing_script(folder, port):
    """The packaged script; its first step also looks for ways out. The port is in no text that the LLM is told."""
    probe = (Path(__file__).parent / "probe.py").read_text()
    record = SCRIPT.model_dump(mode="json")
    first = record["steps"][0]
    first["run"] = f"cat > /tmp/probe.py <<'END'\n{probe}END\npython /tmp/probe.py {port} && {first['run']}"
    path = folder / "script.yaml"
    path.write_text(yaml.safe_dump(record))
    return path


@pytest.fixture(scope="module", params=SYSTEMS)
def trial(request, tmp_path_factory):
    name = request.param
    require_system(name)
    folder = tmp_path_factory.mktemp(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEY_VARIABLE, KEY)
        port = 18_432
        script = write_probing_script(folder, port)
        with scripted_upstream(folder, str(script), port) as upstream:
            assert urlsplit(upstream.url).port == port
            overrides = (f"driver={upstream.driver}", f"prices={upstream.prices}", *FEWER_ITEMS)
            root = new_trial("arithmetic", name, 0, folder / "trials", overrides=overrides)
            evidence = play(root)
        paths = TrialPaths(root)
        report = json.loads((paths.report / "report.json").read_text())
        probe = json.loads((paths.workspace / "output" / "probe.bin").read_bytes()[1:])
        yield PlayedTrial(name, root, evidence, report, upstream.served(), upstream, probe)


def test_the_system_reads_writes_trains_submits_reads_changes_and_submits_again(trial):
    submissions = trial.report["trial"]["submissions"]
    assert [(s["note"], s["state"]) for s in submissions] == [("30 steps", "scored"), ("90 steps", "scored")]
    files = {r.id: r.files for r in trial.evidence.revisions}
    programs = [files[s["revision"]]["code/train.py"] for s in submissions]
    assert ["RATE = 30" in programs[0], "RATE = 90" in programs[1]] == [True, True]
    assert len({s["revision"] for s in submissions}) == len({s["weights_digest"] for s in submissions}) == 2
    assert submissions[0]["score"]["value"] < submissions[1]["score"]["value"]
    assert trial.report["analysis"]["route"]["route"] == Route.SFT.value
    assert trial.evidence.final_submission == 2


def test_tokens_and_cost_are_exactly_those_of_the_script(trial):
    """Worked out from the script; asides (titles and the like) count too, as often as the upstream saw one."""
    assert [row["step"] for row in trial.served if row["step"] is not None] == list(range(len(SCRIPT.steps)))
    n_asides = sum(1 for row in trial.served if row["step"] is None)
    usages = [step.usage.model_dump() for step in [*SCRIPT.steps, *[SCRIPT.aside] * n_asides]]
    totals = trial.report["trial"]["llm"]["totals"]
    assert totals["calls"] == len(usages)
    expected = {key: sum(usage[key] for usage in usages) for key in ("input", "output", "cached_input", "reasoning")}
    if load_agent(trial.name).spec.llm is WireProtocol.ANTHROPIC:
        expected["reasoning"] = 0  # that protocol does not tell it apart
    assert {key: totals["tokens"][key] for key in expected} == expected
    assert totals["dollars"] == pytest.approx(dollars_of(usages), abs=1e-12)
    for key in ("n_unknown_cost", "n_failed", "n_partial", "n_lost", "n_refused", "n_uncounted", "retries"):
        assert totals[key] == 0, key


def test_the_gateway_is_the_only_llm_that_the_system_could_reach(trial):
    assert trial.probe["interfaces"] == ["lo"]
    assert trial.probe["reached"] == []
    assert trial.probe["llm_ports"] == [LLM_PORT]
    calls = read_exchanges(TrialPaths(trial.root).llm)
    assert {call.outcome for call in calls} == {ExchangeOutcome.OK}
    assert len(calls) == len(trial.served)  # the upstream was asked by nobody else
    assert all(row["status"] == 200 for row in trial.served)  # and never with another key than the provider's


def test_the_key_is_nowhere_in_reach_of_the_system_nor_in_the_trial(trial):
    assert trial.probe["variables"]
    assert not any(KEY in variable for variable in trial.probe["variables"])
    for path in trial.root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            assert KEY.encode() not in data, path
            if path.suffix == ".zst":
                with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
                    assert KEY.encode() not in reader.read(), path


def test_its_own_record_holds_the_commands_that_the_script_asked_for(trial):
    commands = [command.command for command in trial.evidence.commands]
    expected = [
        "probe.py",
        "code/train.py <<",
        "python code/train.py",
        "code/submit.py <<",
        "/best",
        "sed -i",
        "90 steps",
    ]
    assert len(commands) >= len(expected)
    for part, command in zip(expected, commands, strict=False):
        assert part in command


def test_the_lock_names_the_installed_system(trial):
    system = find_installed(load_agent(trial.name))
    assert system.manifest.digest in (trial.root / "lock.json").read_text()
    assert (installation.home() / "agents" / trial.name) in system.folder.parents


def test_a_strict_replay_comes_to_the_same_without_any_provider(trial, tmp_path, monkeypatch):
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    is_strict = trial.name not in REPEATS_ITS_SCREEN
    replayed = replay_trial(trial.root, tmp_path, strict=is_strict)
    play(replayed)
    report = compare_replay(replayed)
    assert report.differences == () or not is_strict
    assert [(s.is_same_tree, s.is_same_checkpoint) for s in report.submissions] == [(True, True)] * 2
    assert report.is_same == (report.differences == ())


def test_a_replay_with_one_recorded_answer_changed_shows_the_difference(trial, tmp_path):
    """The first answer says something else; the next request then differs, and a strict replay goes no further."""
    source = tmp_path / "changed"
    shutil.copytree(trial.root, source, symlinks=True)
    change_first_answer(source)
    replayed = replay_trial(source, tmp_path / "replays", strict=True, overrides=("budget.wall_clock_s=90",))
    evidence = play(replayed)
    report = compare_replay(replayed)
    assert "I began with the assignment." in report.differences[0]["diff"]
    assert not report.is_same
    assert [s.state for s in evidence.submissions if s.state is SubmissionState.SCORED] == []


def change_first_answer(root):
    """Words that a stream does not cut."""
    for exchange in read_exchanges(TrialPaths(root).llm):
        body = zstandard.ZstdDecompressor().decompressobj().decompress(exchange.response.read_bytes())
        changed = body.replace(b"I start wi", b"I began wi")
        if changed != body:
            exchange.response.write_bytes(zstandard.ZstdCompressor().compress(changed))
            return
    raise AssertionError("no recorded answer holds the words of the first step")


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_spent_budget_ends_the_system_long_before_its_deadline(name, tmp_path, monkeypatch):
    """No upstream is needed: the first call is refused already."""
    require_system(name)
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    driver = write_driver(tmp_path / "driver.yaml", "http://127.0.0.1:9")
    overrides = (f"driver={driver}", "budget.llm_tokens=1000", "budget.wall_clock_s=300", *FEWER_ITEMS)
    evidence = play(new_trial("arithmetic", name, 0, tmp_path / "trials", overrides=overrides))
    assert evidence.agent_end is not AgentEnd.DEADLINE
    assert evidence.ended_at - evidence.started_at < 150
    assert evidence.llm.totals.n_refused >= 1
    assert (evidence.llm.totals.calls, evidence.llm.totals.dollars) == (0, 0.0)


def test_at_least_one_system_is_installed_here():
    assert [name for name in SYSTEMS if find_installed(load_agent(name)) is not None]
