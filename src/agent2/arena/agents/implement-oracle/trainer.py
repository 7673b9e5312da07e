"""GRPO in plain torch: groups of completions, advantages within the group, a clipped objective, a KL penalty."""

import copy
import json
import random
from dataclasses import dataclass
from pathlib import Path

import torch


def group_advantages(rewards, group_size):
    """Reward minus mean of the group, in units of its standard deviation."""
    grouped = rewards.view(-1, group_size)
    spread = grouped.std(1, keepdim=True)
    return ((grouped - grouped.mean(1, keepdim=True)) / (spread + 1e-4)).flatten()


def completion_mask(completion, end_id):
    """1 up to the first end; rows without one are left out."""
    is_end = completion == end_id
    n_ends_before = is_end.long().cumsum(1) - is_end.long()
    return (n_ends_before == 0).long() * is_end.any(1, keepdim=True).long()


def token_logprobs(logits, ids, n_completion, temperature):
    """Log-probability of the last tokens: logits say what follows, so they are one ahead."""
    scores = torch.log_softmax(logits[:, -n_completion - 1 : -1].float() / temperature, -1)
    return scores.gather(2, ids[:, -n_completion:, None])[:, :, 0]


def clipped_gain(logprobs, old, advantages, clip_low, clip_high):
    """The smaller of the gains with and without clipping."""
    ratio = torch.exp(logprobs - old.detach())
    weight = advantages.detach()[:, None]
    return torch.minimum(ratio * weight, ratio.clamp(1 - clip_low, 1 + clip_high) * weight)


def kl_penalty(logprobs, reference):
    """exp(d) - d - 1."""
    gap = reference.detach() - logprobs
    return torch.exp(gap) - gap - 1


def grpo_loss(logprobs, old, reference, advantages, mask, settings):
    """Mean over the tokens of the mask."""
    gain = clipped_gain(logprobs, old, advantages, settings["clip_low"], settings["clip_high"])
    per_token = settings["kl_coefficient"] * kl_penalty(logprobs, reference) - gain
    return (per_token * mask).sum() / mask.sum().clamp(min=1)


@dataclass
class LogProbs:
    """Of a batch, rows x completion tokens."""

    new: torch.Tensor
    old: torch.Tensor
    reference: torch.Tensor
    mask: torch.Tensor


@dataclass
class Responses:
    """Completions of a batch of prompts, `group_size` of each, in order."""

    ids: torch.Tensor
    """Prompt and completion, rows x tokens, padded on the left."""
    attention: torch.Tensor
    completion: torch.Tensor
    texts: list


class AgenticGRPOTrainer:
    """Samples groups, scores them, updates the model."""

    def __init__(self, model, tokenizer, verify, settings):
        self.model, self.tokenizer, self.verify, self.settings = model, tokenizer, verify, settings
        self.reference_model = copy.deepcopy(model).eval()
        self.optimiser = torch.optim.AdamW(model.parameters(), lr=settings["learning_rate"], weight_decay=0.0)
        self.n_steps = 0

    @torch.no_grad()
    def generate_responses(self, prompts):
        """Draw `group_size` completions of each prompt."""
        chats = [
            [{"role": "user", "content": prompt}] for prompt in prompts for _ in range(self.settings["group_size"])
        ]
        texts = [self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) for chat in chats]
        sequences = [self.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
        pad, width = self.tokenizer.pad_token_id, max(len(row) for row in sequences)
        ids = torch.tensor([[pad] * (width - len(row)) + row for row in sequences])
        attention = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in sequences])
        drawn = self.model.generate(
            input_ids=ids,
            attention_mask=attention,
            do_sample=True,
            temperature=self.settings["temperature"],
            top_k=0,
            max_new_tokens=self.settings["max_new_tokens"],
            pad_token_id=pad,
        )
        completion = drawn[:, width:]
        attention = torch.cat([attention, torch.ones_like(completion)], 1)
        return Responses(drawn, attention, completion, [self._text(row) for row in completion.tolist()])

    def _text(self, row):
        end = self.tokenizer.eos_token_id
        return self.tokenizer.decode(row[: row.index(end)] if end in row else row, skip_special_tokens=True)

    def compute_rewards(self, responses, ground_truth):
        """What the verifier says of each response."""
        return torch.tensor(self.verify(ground_truth, responses.texts))

    def log_probs(self, model, responses):
        """Log-probability of each completion token."""
        positions = (responses.attention.cumsum(1) - 1).clamp(min=0)
        output = model(input_ids=responses.ids, attention_mask=responses.attention, position_ids=positions)
        n = responses.completion.shape[1]
        return token_logprobs(output.logits, responses.ids, n, self.settings["temperature"])

    def compute_grpo_loss(self, log_probs, rewards):
        """The loss of a batch."""
        advantages = group_advantages(rewards, self.settings["group_size"])
        parts = (log_probs.new, log_probs.old, log_probs.reference)
        return grpo_loss(*parts, advantages, log_probs.mask, self.settings)

    def train_step(self, batch):
        """Sample, score and update on a batch of rows."""
        responses = self.generate_responses([row["prompt"] for row in batch])
        rewards = self.compute_rewards(responses, [row for row in batch for _ in range(self.settings["group_size"])])
        mask = completion_mask(responses.completion, self.tokenizer.eos_token_id)
        with torch.no_grad():
            old = self.log_probs(self.model, responses)
            reference = self.log_probs(self.reference_model, responses)
        self.n_steps += 1
        rate = self.settings["learning_rate"] * min(1.0, self.n_steps / self.settings["warmup_steps"])
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        for _ in range(self.settings["updates_per_batch"]):
            new = self.log_probs(self.model, responses)
            loss = self.compute_grpo_loss(LogProbs(new, old, reference, mask), rewards)
            self.optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings["largest_gradient"])
            self.optimiser.step()
        return {"step": self.n_steps, "reward": float(rewards.mean()), "loss": float(loss), "tokens": int(mask.sum())}

    def train(self, rows):
        """All steps, each on rows drawn anew."""
        order = random.Random(self.settings["seed"])
        logs = Path(__file__).resolve().parent / "logs"
        logs.mkdir(exist_ok=True)
        with (logs / "train.jsonl").open("w", encoding="utf-8") as log:
            for _ in range(self.settings["steps"]):
                measures = self.train_step(order.sample(rows, self.settings["prompts_per_step"]))
                log.write(json.dumps(measures) + "\n")
                log.flush()
