"""Small random models, a tokenizer of numbered words, and a way to run requests through a sampler."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from agent2.models.hf import HfSampler
from agent2.records import Completion, SamplingSettings

torch.set_num_threads(1)  # two threads on shared cores are many times slower at this size

VOCABULARY = 40
CONTEXT = 200
END = 2
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
COMMON = {"vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": END, "pad_token_id": 0}
LLAMA = {**COMMON, **SIZES, "max_position_embeddings": CONTEXT, "num_key_value_heads": 2}


def make_model(name: str = "llama", seed: int = 0, **changes: Any) -> Any:
    torch.manual_seed(seed)
    gpt2 = {**COMMON, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT}
    plain = {**COMMON, **SIZES, "max_position_embeddings": CONTEXT}
    model_class, config_class, values = {
        "llama": (LlamaForCausalLM, LlamaConfig, LLAMA),
        "qwen2": (Qwen2ForCausalLM, Qwen2Config, LLAMA),
        "qwen3": (Qwen3ForCausalLM, Qwen3Config, {**LLAMA, "head_dim": 8}),
        "gpt2": (GPT2LMHeadModel, GPT2Config, gpt2),
        "neox": (GPTNeoXForCausalLM, GPTNeoXConfig, plain),
    }[name]
    model = model_class(config_class(**{**values, **changes})).eval()
    for parameter in model.parameters():  # random models repeat one token; sharper weights give varied text
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def make_tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {"<pad>": 0, "<bos>": 1, "<end>": END} | {f"w{i}": i for i in range(3, VOCABULARY)}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="w3"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>", pad_token="<pad>", bos_token="<bos>")
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m.content }} {% endfor %}{% if add_generation_prompt %}w39{% endif %}"
    )
    return tokenizer


def make_sampler(model: Any = None, max_batch: int = 4) -> HfSampler:
    return HfSampler.from_model(model or make_model(), make_tokenizer(), max_batch)


def save(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


def make_prompts(n: int, shortest: int = 1, longest: int = 30) -> list[list[int]]:
    rng = np.random.default_rng(n)
    return [rng.integers(3, VOCABULARY, rng.integers(shortest, longest + 1)).tolist() for _ in range(n)]


def run(sampler: HfSampler, prompts: list[Any], **settings: Any) -> list[Completion]:
    """Completions in the order of the prompts; request i has seed i."""
    per_request = settings.pop("max_tokens", 20)
    for i, prompt in enumerate(prompts):
        limit = per_request[i] if isinstance(per_request, list) else per_request
        sampler.submit(i, prompt, SamplingSettings(seed=i, max_tokens=limit, **settings))
    done: dict[int, Completion] = {}
    while batch := sampler.collect():
        done.update(batch)
    assert sorted(done) == list(range(len(prompts)))
    return [done[i] for i in range(len(prompts))]


def generate(model: Any, prompt: list[int], max_tokens: int) -> list[int]:
    tokens = torch.tensor([prompt])
    out = model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=max_tokens, do_sample=False)
    return out[0, len(prompt) :].tolist()
