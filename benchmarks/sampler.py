"""Tokens per second of the hf sampler beside `model.generate`, on the same prompts, in the same process.

    python benchmarks/sampler.py [--model DIR] [--device cpu] [--dtype float32] [--runs 7] [--concurrency 1 16 64 256]
                                 [--continuous]

Equal: as many requests as slots, prompts and completions of one length each. Mixed: several times more
requests than slots, prompts and completions of many lengths; `model.generate` takes them in chunks of the same
concurrency, in the order in which they come, and each chunk runs to its longest completion (at concurrency 1:
each request to its own). Only tokens that were asked for count. Both sample at temperature 1 from the whole
vocabulary; end tokens are suppressed on both sides, so that the lengths are those that were asked for. The
sampler also draws each request from its own stream, keeps log-probabilities and decodes to text, which
`model.generate` does not. Runs alternate, so that a busy machine is busy for both; the ratio is the median of
the ratios of neighbouring runs. One torch thread; about eight minutes on two busy cores.

The default model is a random Llama (d128, 3 layers, vocabulary 320). `--continuous` adds transformers' own
continuous batching (`generate_batch`) as a third column; it is slow on a CPU and reserves gigabytes.

Exit code 1 if a goal is missed.
"""

import argparse
import copy
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from agent2.models.hf import HfSampler
from agent2.records import SamplingSettings

GOALS = {"equal": 0.95, "mixed": 1.3}
VOCABULARY = 320


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt and how many tokens to draw."""

    prompt: list[int]
    new_tokens: int


def random_llama() -> tuple[Any, Any]:
    """A model that nobody trained, and a tokenizer that names its tokens."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=512,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    vocabulary = {f"w{i}": i for i in range(VOCABULARY)}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(vocabulary, unk_token="w3")))
    return LlamaForCausalLM(config).eval(), tokenizer


def suppress_end(model: Any, tokenizer: Any) -> None:
    """No end token for either side: generate has none to look for, the sampler none to stop at."""
    model.generation_config = GenerationConfig(pad_token_id=0)
    model.config.eos_token_id = None
    tokenizer.eos_token = None


def make_requests(shape: str, concurrency: int, vocabulary: int) -> list[Request]:
    """equal: one wave of 24 + 64 tokens. mixed: prompts of 8-40 and completions of 8-128 tokens, several waves."""
    rng = random.Random(concurrency)
    if shape == "equal":
        n = max(concurrency, 4)
        return [Request([rng.randrange(vocabulary) for _ in range(24)], 64) for _ in range(n)]
    n = max(4 * concurrency, 8)
    return [
        Request([rng.randrange(vocabulary) for _ in range(rng.randint(8, 40))], rng.randint(8, 128)) for _ in range(n)
    ]


def run_sampler(sampler: HfSampler, requests: list[Request]) -> None:
    """Keep the queue full until all requests are done; nothing is kept of the run before, with the same prompts."""
    sampler.forget()
    pending = iter(enumerate(requests))
    in_flight = total = 0
    while True:
        while in_flight < sampler.capacity and (entry := next(pending, None)) is not None:
            number, request = entry
            settings = SamplingSettings(temperature=1.0, max_tokens=request.new_tokens, seed=number)
            sampler.submit(number, request.prompt, settings)
            in_flight += 1
        if not in_flight:
            break
        done = sampler.collect()
        in_flight -= len(done)
        total += sum(len(completion.token_ids) for _, completion in done)
    _require_all(total, requests)


@torch.inference_mode()
def run_generate(model: Any, requests: list[Request], concurrency: int) -> None:
    """Chunks of `concurrency` requests, padded on the left, each run to its longest completion."""
    total = 0
    for first in range(0, len(requests), concurrency):
        chunk = requests[first : first + concurrency]
        width = max(len(request.prompt) for request in chunk)
        tokens = torch.zeros(len(chunk), width, dtype=torch.long)
        mask = torch.zeros_like(tokens)
        for row, request in enumerate(chunk):
            tokens[row, width - len(request.prompt) :] = torch.tensor(request.prompt)
            mask[row, width - len(request.prompt) :] = 1
        longest = max(request.new_tokens for request in chunk)
        out = model.generate(
            tokens.to(model.device),
            attention_mask=mask.to(model.device),
            max_new_tokens=longest,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
        )
        assert out.shape[1] == width + longest
        total += sum(request.new_tokens for request in chunk)
    _require_all(total, requests)


def run_continuous(model: Any, requests: list[Request]) -> None:
    """Transformers' own continuous batching; it has one completion length for a call, so one call for each length."""
    by_length: dict[int, list[list[int]]] = {}
    for request in requests:
        by_length.setdefault(request.new_tokens, []).append(request.prompt)
    total = 0
    for new_tokens, prompts in by_length.items():
        config = GenerationConfig(max_new_tokens=new_tokens, do_sample=True, top_k=0, eos_token_id=-1, pad_token_id=0)
        results = model.generate_batch(prompts, generation_config=config, progress_bar=False)
        total += sum(len(result.generated_tokens) for result in results.values())
    _require_all(total, requests)


def _require_all(total: int, requests: list[Request]) -> None:
    n_requested = sum(request.new_tokens for request in requests)
    if total != n_requested:
        raise RuntimeError(f"{total} tokens came, {n_requested} were asked for")


def seconds(run: Callable[[], None]) -> float:
    """Wall clock of one run, until the device has nothing left to do."""
    start = time.perf_counter()
    run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def measure(model: Any, folder: Path, options: argparse.Namespace) -> bool:
    """Print one line for each shape and concurrency; returns whether all goals are met.

    folder: the same model as a checkpoint.
    """
    is_met = True
    paged_model = copy.deepcopy(model) if options.continuous else None  # generate_batch changes its model's attention
    print("lengths  at once  sampler tok/s  generate tok/s  ratio  goal", flush=True)
    for shape, goal in GOALS.items():
        for concurrency in options.concurrency:
            requests = make_requests(shape, concurrency, model.config.vocab_size)
            sampler = HfSampler(folder, max_batch=concurrency, dtype=options.dtype, device=options.device)
            pairs = []
            for _ in range(options.runs + 1):
                ours_s = seconds(lambda s=sampler, r=requests: run_sampler(s, r))
                theirs_s = seconds(lambda r=requests, c=concurrency: run_generate(model, r, c))
                pairs.append((ours_s, theirs_s))
            pairs.pop(0)  # warm-up
            n = sum(request.new_tokens for request in requests)
            ours_s, theirs_s = (n / statistics.median(times) for times in zip(*pairs, strict=True))
            ratio = statistics.median(theirs_s / ours_s for ours_s, theirs_s in pairs)
            is_met &= ratio >= goal
            mark = "ok" if ratio >= goal else "MISSED"
            line = f"{shape:7} {concurrency:8} {ours_s:14.0f} {theirs_s:15.0f} {ratio:6.2f} {goal:5.2f} {mark}"
            if paged_model is not None and shape == "equal":
                line += f"   generate_batch {n / seconds(lambda r=requests: run_continuous(paged_model, r)):.0f} tok/s"
            print(line, flush=True)
    return is_met


def main() -> int:
    """Parse the flags and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="checkpoint folder; default: a random Llama, d128, 3 layers")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 16, 64, 256])
    parser.add_argument("--continuous", action="store_true", help="also time generate_batch (equal lengths, one run)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.model is None:
        model, tokenizer = random_llama()
    else:
        model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(options.model)
    model.to(options.device, getattr(torch, options.dtype))
    suppress_end(model, tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return 0 if measure(model, Path(folder), options) else 1


if __name__ == "__main__":
    sys.exit(main())
