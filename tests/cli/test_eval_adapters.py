"""`agent2 eval` with LoRA adapters."""

import json
import sys

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from agent2.benchmarks import BASE_MODELS
from agent2.cli import main
from agent2.models.bases import ensure_base_model

PLAYER = "def play(messages):\n    return 'A'\n"
ADVICE = "neither a folder here nor a model in the local Hugging Face cache; name its base model with --set run.base="


@pytest.fixture
def agent2(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "players.py").write_text(PLAYER)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["agent2", *arguments])
        with pytest.raises(SystemExit) as exit_info:
            main()
        captured = capsys.readouterr()
        return exit_info.value.code or 0, captured.out, captured.err

    return run


@pytest.mark.slow
def test_an_adapter_is_evaluated_against_its_base_model_which_the_command_may_name(agent2, tmp_path):
    torch.set_num_threads(1)
    base = ensure_base_model("tiny-mini", BASE_MODELS)
    config = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    get_peft_model(AutoModelForCausalLM.from_pretrained(base), config).save_pretrained(tmp_path / "lora")
    path = tmp_path / "lora" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"base_model_name_or_path": "/workspace/base"}))
    command = ("eval", "mini_math", "--checkpoint", "lora", "--baseline", "tiny-mini", "--limit", "8", "--out", "e")

    code, _, err = agent2(*command)
    assert code == 2 and "'/workspace/base'" in err and ADVICE in " ".join(err.split())
    code, out, err = agent2(*command, "--set", "run.base=tiny-mini")
    assert code == 0, err
    assert "lora" in out and "tiny-mini" in out


def test_a_base_model_for_no_adapter_is_refused(agent2):
    code, _, err = agent2(
        *(
            "eval",
            "mini_math",
            "--checkpoint",
            "scripted:players.py:play",
            "--limit",
            "2",
            "--set",
            "run.base=tiny-mini",
        )
    )
    assert code == 2 and "--set run.base: no model here is an adapter; leave it out" in err
