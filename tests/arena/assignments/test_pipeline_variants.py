import json
import runpy
from importlib import resources
from pathlib import Path

import pytest

from agent2.arena.assignments.pipeline_variants import BUDGET, CONFIG, ENTRY, FAULTS, Variant, draw_variant
from agent2.errors import ConfigError

ORACLE = Path(str(resources.files("agent2.arena") / "agents" / "debug-oracle" / "main.py"))


def variant(case: str, seed: int, secret: bytes = b"secret") -> Variant:
    return draw_variant(secret, seed, "arithmetic", 12, case)


@pytest.mark.parametrize("case", FAULTS)
def test_every_variant_is_python_and_differs_from_its_healthy_pipeline_in_the_fault_alone(case: str):
    for seed in range(8):
        drawn = variant(case, seed)
        assert drawn.cause == case
        assert drawn.broken.keys() == drawn.healthy.keys()
        assert drawn.broken[BUDGET] == drawn.healthy[BUDGET]
        changed = [name for name in drawn.broken if drawn.broken[name] != drawn.healthy[name]]
        assert 1 <= len(changed) <= 2
        for name, content in {**drawn.broken, **drawn.healthy}.items():
            if name.endswith(".py"):
                compile(content, name, "exec")


@pytest.mark.parametrize("case", FAULTS)
def test_the_oracle_names_every_cause_and_restores_the_healthy_program(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    main = runpy.run_path(str(ORACLE))["main"]
    for seed in range(8):
        drawn = variant(case, seed)
        root = tmp_path / str(seed)
        pipeline = root / "code" / "pipeline"
        pipeline.mkdir(parents=True)
        for name, content in drawn.broken.items():
            (pipeline / name).write_bytes(content)
        monkeypatch.setenv("WORKSPACE", str(root))
        monkeypatch.setenv("OUTPUT_DIR", str(root))
        main()
        assert json.loads((root / "diagnosis.json").read_text())["cause"] == case
        if case == "stale-logprobs":  # the same computation, by another name
            assert "        old = fresh\n" in (pipeline / ENTRY).read_text()
            continue
        for name, content in drawn.healthy.items():
            if name.endswith(".py"):
                assert (pipeline / name).read_bytes() == content


def test_secret_and_seed_draw_cause_names_and_layout():
    drawn = [draw_variant(b"one", seed, "arithmetic", 12) for seed in range(40)]
    assert {variant.cause for variant in drawn} == set(FAULTS)
    assert {len(variant.broken) for variant in drawn} == {3, 7}  # all in one file, or five modules
    assert [draw_variant(b"two", seed, "arithmetic", 12).cause for seed in range(40)] != [v.cause for v in drawn]
    again = draw_variant(b"one", 3, "arithmetic", 12)
    assert again == drawn[3]


def test_nothing_that_the_agent_gets_names_the_cause():
    for case in FAULTS:
        drawn = variant(case, 0)
        text = b"\n".join(drawn.broken.values()).decode() + drawn.symptom
        assert "-" not in case or case not in text
        assert "broken" not in text and "healthy" not in text
        assert ENTRY in drawn.broken and CONFIG in drawn.broken


def test_the_healthy_pipeline_of_a_seed_is_the_same_whatever_the_fault():
    for seed in range(4):
        healthy = variant("", seed).healthy
        assert all(variant(case, seed).healthy == healthy for case in FAULTS)
    assert variant("", 0).healthy != variant("", 1).healthy


def test_the_budget_of_an_answer_grows_with_what_the_benchmark_samples():
    for benchmark, max_tokens, budget in (("arithmetic", 12, 2), ("pyfunc", 40, 6)):
        drawn = draw_variant(b"secret", 0, benchmark, max_tokens, "truncation")
        assert json.loads(drawn.broken[CONFIG])["answer_budget"] == budget


def test_an_unknown_case_is_refused_with_the_list():
    with pytest.raises(ConfigError, match="choose one of loss-mask"):
        variant("gradient", 0)
