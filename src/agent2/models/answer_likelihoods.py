"""How likely a causal language model finds each of some answers after one text.

The text is computed once and its key-value cache is cut back between answers. Tokens are those of text and answer
together, because a tokenizer may merge the end of one with the beginning of the other. Does NOT batch items.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache

from agent2.errors import SamplerFailed


@dataclass(frozen=True, slots=True)
class AnswerLikelihood:
    """One answer after a text."""

    logprob: float
    """Sum over the answer's tokens, in nats."""
    n_tokens: int
    is_greedy: bool
    """Whether each token is the likeliest one."""


@torch.inference_mode()
def answer_likelihoods(
    model: Any, tokenizer: Any, max_tokens: int, text: str, answers: Sequence[str], *, with_special_tokens: bool
) -> tuple[list[AnswerLikelihood], int]:
    """The likelihood of each answer, in order, and how many tokens were computed.

    with_special_tokens: whether the tokenizer adds its own, as for the beginning; a rendered chat has them.
    Raises SamplerFailed if text and answer have more than max_tokens tokens, and for an answer without tokens.
    """

    def tokens_of(part: str) -> list[int]:
        return list(tokenizer(part, add_special_tokens=with_special_tokens)["input_ids"])

    text_tokens = tokens_of(text)
    rows = [tokens_of(text + answer) for answer in answers]
    longest = max(map(len, rows))
    if longest > max_tokens:
        raise SamplerFailed(f"the prompt of {longest} tokens does not fit the model's context of {max_tokens}")
    starts = [_n_shared(text_tokens, row) for row in rows]
    for answer, row, start in zip(answers, rows, starts, strict=True):
        if not 0 < start < len(row):
            raise SamplerFailed(f"the answer {answer!r} adds no token to its prompt, or the prompt has none")
    n_cached = min(starts) - 1
    cache = DynamicCache()
    if n_cached:
        model(input_ids=_batch(model, text_tokens[:n_cached]), past_key_values=cache, use_cache=True, logits_to_keep=1)
    likelihoods = []
    for row, start in zip(rows, starts, strict=True):
        logits_TV = (
            model(input_ids=_batch(model, row[n_cached:-1]), past_key_values=cache, use_cache=True)
            .logits[0]
            .float()[start - 1 - n_cached :]
        )
        targets = torch.tensor(row[start:], device=logits_TV.device)
        logprobs_T = torch.log_softmax(logits_TV, dim=-1).gather(1, targets[:, None])[:, 0]
        is_greedy = bool((logits_TV.argmax(dim=-1) == targets).all())
        likelihoods.append(AnswerLikelihood(float(logprobs_T.sum()), len(targets), is_greedy))
        # negative: how many to remove; newer versions of transformers refuse how many to keep
        if n_cached:
            cache.crop(n_cached + 1 - len(row))
        else:
            cache = DynamicCache()
    return likelihoods, n_cached + sum(len(row) - 1 - n_cached for row in rows)


def _batch(model: Any, tokens: Sequence[int]) -> torch.Tensor:
    return torch.tensor([list(tokens)], device=model.device)


def _n_shared(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two rows begin with in common."""
    n = 0
    while n < min(len(first), len(second)) and first[n] == second[n]:
        n += 1
    return n
