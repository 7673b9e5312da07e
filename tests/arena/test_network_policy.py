"""How a trial's network policy and GPUs reach the sandbox, the agent and the report."""

from dataclasses import replace

import pytest

from agent2.arena.agent_phase import sandbox_spec
from agent2.arena.agents import load_agent
from agent2.arena.analysis.result import analyse
from agent2.arena.assignment import InsidePaths, assignment_text, environment
from agent2.arena.plan import new_trial, repeat_trial, resolve_trial
from agent2.arena.sweep import SweepSpec, check_trials, plan_trials
from agent2.arena.trial_folder import TrialPaths, read_config
from agent2.errors import ConfigError, SandboxError
from agent2.files import write_json
from agent2.records import SamplingSettings
from agent2.sandbox.spec import Network
from builders import make_evidence
from trial_builders import write_task

INSIDE = InsidePaths("/workspace", "/model", "/agent", 8080)


@pytest.fixture
def task(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    return str(write_task(tmp_path))


def test_by_default_there_is_no_network_and_no_gpu(task):
    config = resolve_trial(task, "nop", 0)
    assert (config.network, config.gpus) == (Network.NONE, ())
    assert "no network |" in assignment_text(config, INSIDE, SamplingSettings())


def test_policy_registries_and_gpus_reach_the_sandbox(task, tmp_path):
    overrides = [
        "network=packages",
        "gpus=[0, 2]",
        "packages.registries=[{name: own, origin: 'https://packages.example.org', prefix: /simple/}]",
    ]
    config = resolve_trial(task, "nop", 0, overrides=overrides)
    paths = TrialPaths(tmp_path / "trial")
    spec = sandbox_spec(config, paths, load_agent("nop"), tmp_path, INSIDE)
    assert (spec.network, spec.gpus, spec.network_log) == (Network.PACKAGES, (0, 2), paths.events / "network.jsonl")
    assert spec.packages is not None
    assert [registry.origin for registry in spec.packages.registries] == ["https://packages.example.org"]
    assert "package registries" in assignment_text(config, INSIDE, SamplingSettings())
    rows = {row["what"]: row["how"] for row in config.containment}
    assert "0, 2" in rows["GPUs"] and "allowed package registries" in rows["network"]


def test_a_gpu_that_is_not_there_is_refused_before_there_is_a_folder(task, tmp_path):
    for chosen in ("gpus=[977]", "scoring.gpu=977"):
        with pytest.raises(SandboxError, match="GPU 977: /dev/nvidia977 does not exist"):
            new_trial(task, "nop", 0, tmp_path / "trials", overrides=[chosen])
        spec = SweepSpec(name="s", tasks=[task], agents=["nop"], seeds=[0], set=[chosen])
        with pytest.raises(SandboxError, match="GPU 977"):
            check_trials(spec, plan_trials(spec))
    assert not (tmp_path / "trials").exists()
    root = new_trial(task, "nop", 0, tmp_path / "trials")
    config = read_config(root / "trial.json")
    write_json(root / "trial.json", config.model_copy(update={"gpus": (977,)}).model_dump(mode="json"))
    with pytest.raises(SandboxError, match="GPU 977"):
        repeat_trial(root, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_an_open_network_is_told_to_the_agent_and_flagged_in_the_report(task):
    config = resolve_trial(task, "nop", 0, overrides=["network=open"])
    assert environment(config, INSIDE)["HF_HUB_OFFLINE"] == "0"
    rows = {row["what"]: row["strength"] for row in config.containment}
    assert rows["network"] == "none"
    flagged = analyse(make_evidence(containment=tuple(config.containment)))
    assert any("open network" in warning for warning in flagged.warnings)
    closed = analyse(make_evidence(containment=tuple(resolve_trial(task, "nop", 0).containment)))
    assert not any("open network" in warning for warning in closed.warnings)


def test_an_unusable_gpu_names_its_key(task):
    with pytest.raises(ConfigError, match=r"gpus"):
        resolve_trial(task, "nop", 0, overrides=["gpus=[0,x]"])


def test_an_unusable_registry_names_its_key(task):
    with pytest.raises(ConfigError, match=r"packages\.registries"):
        resolve_trial(task, "nop", 0, overrides=["packages.registries=[{name: own, origin: 'file:///etc'}]"])


@pytest.mark.parametrize(("network", "is_told"), [("none", False), ("packages", True), ("open", True)])
def test_a_report_on_published_items_says_where_the_agent_could_have_fetched_them(task, network, is_told):
    containment = tuple(resolve_trial(task, "nop", 0, overrides=[f"network={network}"]).containment)
    embedded = make_evidence(containment=containment)
    published = replace(embedded, task=embedded.task.model_copy(update={"published": True}))
    is_warned = [
        "hidden items are published" in " ".join(analyse(evidence).warnings) for evidence in (embedded, published)
    ]
    assert is_warned == [False, is_told]
