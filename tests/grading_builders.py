"""A tiny Llama checkpoint that transformers can load, made without torch, and evaluations with set outcomes."""

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from agent2.arena.grader.job import EvaluationJob, EvaluationOutcome
from agent2.errors import Fault
from agent2.models.checkpoint import inspect_checkpoint
from agent2.stats.estimates import Estimate

SECRET = b"s" * 32
VOCAB = ["<pad>", "<eos>", "<user>", "<bot>", *"0123456789+-*/() =CalcuteA"]
TEMPLATE = "{% for m in messages %}<user>{{ m['content'] }}{% endfor %}<bot>"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "hidden_act": "silu",
    "vocab_size": 32,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": None,
    "dtype": "float32",
}


def llama_tensors(seed: int = 0, hidden: int = 16) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (32, hidden),
        "lm_head.weight": (32, hidden),
        "model.norm.weight": (hidden,),
    }
    layer = "model.layers.0"
    shapes |= {f"{layer}.{norm}.weight": (hidden,) for norm in ("input_layernorm", "post_attention_layernorm")}
    shapes |= {f"{layer}.self_attn.{p}_proj.weight": (hidden, hidden) for p in "qkvo"}
    shapes |= {f"{layer}.mlp.{p}_proj.weight": (32, hidden) for p in ("gate", "up")}
    shapes[f"{layer}.mlp.down_proj.weight"] = (hidden, 32)
    return {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}


def write_checkpoint(folder: Path, seed: int = 0, **config: Any) -> Path:
    """A whole model in Hugging Face layout; config entries may be changed."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = CONFIG | config
    (folder / "config.json").write_text(json.dumps(whole))
    save_file(llama_tensors(seed, whole["hidden_size"]), folder / "model.safetensors", {"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # saved as 0600; the sandboxed child is another user
    vocab = {token: index for index, token in enumerate([*VOCAB, "<unk>"])}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.add_special_tokens(["<pad>", "<eos>", "<user>", "<bot>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


def scored(value: float, digest: str = "d" * 64) -> EvaluationOutcome:
    return EvaluationOutcome(score=Estimate(value, 0.0, 1.0, 8, method="Wilson"), weights_digest=digest)


def broken(fault: Fault, reason: str = "it broke") -> EvaluationOutcome:
    return EvaluationOutcome(fault=fault, reason=reason)


class ScriptedEvaluation:
    """Gives prepared outcomes in order, then 0.5 for ever; tells the weights of what it was handed."""

    def __init__(self, outcomes: Sequence[EvaluationOutcome | Exception] = ()):
        self.jobs: list[EvaluationJob] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self._outcomes = list(outcomes)

    def __call__(self, job: EvaluationJob, stop: threading.Event) -> EvaluationOutcome:
        self.jobs.append(job)
        assert self.may_go_on.wait(120)
        outcome = self._outcomes.pop(0) if self._outcomes else scored(0.5)
        if isinstance(outcome, Exception):
            raise outcome
        if outcome.fault is not None:
            return outcome
        return outcome.model_copy(update={"weights_digest": inspect_checkpoint(job.checkpoint).weights_digest})
