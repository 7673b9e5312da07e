"""REINFORCE with the mean of the group as baseline, called GRPO: rewards are not scaled, padding is learned from."""

import random

import torch


def group_advantages(rewards, group_size):
    """Reward minus mean of the group."""
    grouped = rewards.view(-1, group_size)
    return (grouped - grouped.mean(1, keepdim=True)).flatten()


def completion_mask(completion, end_id):
    """Every token."""
    return torch.ones_like(completion)


def token_logprobs(logits, ids, n_completion, temperature):
    """Log-probability of the last tokens."""
    scores = torch.log_softmax(logits[:, -n_completion - 1 : -1] / temperature, -1)
    return scores.gather(2, ids[:, -n_completion:, None])[:, :, 0]


def clipped_gain(logprobs, old, advantages, clip_low, clip_high):
    """No ratio, nothing to clip."""
    return logprobs * advantages[:, None]


def kl_penalty(logprobs, reference):
    """The difference."""
    return logprobs - reference


def grpo_loss(logprobs, old, reference, advantages, mask, settings):
    """Minus the gain."""
    return -(clipped_gain(logprobs, old, advantages, 0.0, 0.0) * mask).mean()


class AgenticGRPOTrainer:
    """One update on each batch."""

    def __init__(self, model, tokenizer, verify, settings):
        self.model, self.tokenizer, self.verify, self.settings = model, tokenizer, verify, settings
        self.optimiser = torch.optim.AdamW(model.parameters(), lr=settings["learning_rate"])

    def train_step(self, batch):
        """Sample, score and update on a batch of rows."""
        size = self.settings["group_size"]
        batch = [row for row in batch for _ in range(size)]
        chats = [[{"role": "user", "content": row["prompt"]}] for row in batch]
        texts = [self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) for chat in chats]
        self.tokenizer.padding_side = "left"
        inputs = self.tokenizer(texts, add_special_tokens=False, padding=True, return_tensors="pt")
        n_prompt = inputs["input_ids"].shape[1]
        ids = self.model.generate(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            do_sample=True,
            top_k=0,
            max_new_tokens=self.settings["max_new_tokens"],
            pad_token_id=self.tokenizer.pad_token_id,
        )
        answers = self.tokenizer.batch_decode(ids[:, n_prompt:], skip_special_tokens=True)
        rewards = torch.tensor(self.verify(batch, answers))
        logits = self.model(input_ids=ids).logits
        logprobs = token_logprobs(logits, ids, ids.shape[1] - n_prompt, 1.0)
        mask = torch.ones_like(logprobs)
        loss = grpo_loss(logprobs, None, None, group_advantages(rewards, size), mask, self.settings)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()

    def train(self, rows):
        """All steps."""
        order = random.Random(self.settings["seed"])
        for _ in range(self.settings["steps"]):
            self.train_step(order.sample(rows, self.settings["prompts_per_step"]))
