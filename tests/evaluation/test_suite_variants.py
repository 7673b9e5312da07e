import json

import pytest

from agent2.contract.suite_files import load_suite
from agent2.errors import ConfigError
from agent2.evaluation.suite_variants import VARIANTS, look_at_variants, ready_variant
from bfcl_builders import rows_of, write_folder
from bridge_fakes import install_fake_bridge

SUITE = "agent_tool_regression_v1"


@pytest.fixture(autouse=True)
def empty_machine(tmp_path, monkeypatch):
    """No bridge, no file."""
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("BFCL_V3", "API_BANK", "SWEBENCH_VERIFIED"):
        monkeypatch.delenv(f"{name}_DATA", raising=False)


def install_bridges():
    install_fake_bridge("bfcl", names=["multi_turn_base"])
    install_fake_bridge("tau2", names=["retail"])


def bring_bfcl(tmp_path, monkeypatch):
    monkeypatch.setenv("BFCL_V3_DATA", str(write_folder(tmp_path / "bfcl", rows_of("v3", n=20), "v3")))


def test_every_variant_is_a_packaged_suite_of_the_same_track():
    for name, variants in VARIANTS.items():
        assert {load_suite(variant.suite).track for variant in variants} == {load_suite(name).track}


def test_without_anything_the_shortest_way_is_named():
    with pytest.raises(ConfigError, match="for agent_tool_regression_offline type agent2 benchmarks get bfcl_v3 and"):
        ready_variant(SUITE)
    commands = {form.variant.suite: form.commands for form in look_at_variants(SUITE)}
    assert commands["agent_tool_regression_episodes"] == (
        "agent2 benchmarks install bfcl",
        "agent2 benchmarks install tau2",
    )
    assert commands["agent_tool_regression_files"] == (
        "agent2 benchmarks get bfcl_v3",
        "export API_BANK_DATA=FOLDER",
        "export SWEBENCH_VERIFIED_DATA=FOLDER",
    )


def test_one_bridge_of_two_is_not_enough():
    install_fake_bridge("bfcl", names=["multi_turn_base"])
    (episodes,) = [form for form in look_at_variants(SUITE) if form.variant.suite.endswith("episodes")]
    assert (episodes.is_ready, episodes.missing) == (False, ("tau2.retail",))


def test_the_nearest_variant_that_is_ready_is_played(tmp_path, monkeypatch):
    bring_bfcl(tmp_path, monkeypatch)
    assert ready_variant(SUITE).suite == "agent_tool_regression_offline"
    install_bridges()
    assert ready_variant(SUITE).suite == "agent_tool_regression_episodes"
    requests = [{"file": "f", "id": k, "instruction": "I", "input": f"{k}", "expected_output": "x"} for k in range(20)]
    (tmp_path / "apis").mkdir()
    for level in (1, 2):
        (tmp_path / "apis" / f"level-{level}-api.json").write_text(json.dumps(requests))
    monkeypatch.setenv("API_BANK_DATA", str(tmp_path / "apis"))
    assert ready_variant(SUITE).suite == "agent_tool_regression_episodes"  # SWE-bench's files are missing


def test_a_suite_without_variants_is_played_as_it_is():
    assert ready_variant("llm_core_regression_v1") is None and look_at_variants("./mine.yaml") == []
