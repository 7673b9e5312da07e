"""Does the masked option tell a model that has seen a benchmark from one that has not?

    python benchmarks/masked_options.py --out DIR [--model smollm2-135m] [--items 30] [--epochs 15] [--rate 3e-4]

Writes two sets of questions whose options are drawn at random, so that nobody can know them, trains one copy of the
model on the published text of the first set and another copy on that of the second, and plays
`agent2 benchmarks mask FIRST --complete` with both and with the untrained model, all with a chat template that prints
messages alone. What the copy of the second set knows of the first one is what the form of the options gives away.
Prints the share of masked options that each one writes. Needs 4 GB of memory with the default model.

Says nothing about the other form, and about how often a model has to have seen a question.
"""

import argparse
import json
import random
import re
import subprocess
import sys
from pathlib import Path

from agent2.benchmarks import BASE_MODELS
from agent2.files import write_text
from agent2.models.bases import ensure_base_model

WORDS = (
    ["old", "red", "tall", "quiet", "broken", "silver", "sleepy", "frozen", "hidden", "yellow"],
    ["river", "lamp", "castle", "teacher", "wagon", "violin", "garden", "orchard", "engine", "blanket"],
    ["near", "under", "behind", "beyond", "beside", "above"],
)
BENCHMARK = """\
name: {name}
version: "1.0"
files: {{dev: dev.jsonl}}
prompt: "{{question}}\\n{{options}}"
options: options
answer: answer
scorer: choice
"""
BATCH = 8
CONTINUED = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
"""A chat template of a base model whose answer continues the prompt."""


def questions(seed: int, n_items: int) -> list[dict[str, object]]:
    """Questions with four options drawn at random."""
    rng = random.Random(seed)
    kinds, objects, places = WORDS

    def option() -> str:
        return (
            f"{rng.choice(kinds)} {rng.choice(objects)} {rng.choice(places)} {rng.choice(kinds)} {rng.choice(objects)}"
        )

    return [
        {
            "question": f"Where did traveller {1000 * seed + number} sleep?",
            "options": [option() for _ in range(4)],
            "answer": rng.choice("ABCD"),
        }
        for number in range(n_items)
    ]


def published(row: dict[str, object]) -> str:
    """A question as it is printed."""
    options = row["options"]
    assert isinstance(options, list)
    return "\n".join(
        [str(row["question"]), *(f"{letter}. {text}" for letter, text in zip("ABCD", options, strict=True))]
    )


def train(model: Path, texts: list[str], epochs: int, rate: float, folder: Path) -> Path:
    """A copy of a model that was trained on some texts, all of them in each epoch; without epochs a copy."""
    if folder.is_dir():
        return folder
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(0)
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=0.0)
    ids = [torch.tensor(tokenizer(text + "\n").input_ids) for text in texts]
    rng = random.Random(0)
    n_steps, step = epochs * -(-len(ids) // BATCH), 0
    for epoch in range(epochs):
        rng.shuffle(ids)
        for start in range(0, len(ids), BATCH):
            members = ids[start : start + BATCH]
            batch = torch.nn.utils.rnn.pad_sequence(members, batch_first=True, padding_value=-100)
            mask = batch != -100
            step += 1
            optimizer.param_groups[0]["lr"] = rate * min(1.0, step / 10) * (1 - 0.95 * step / n_steps)
            loss = network(batch.clamp(min=0), attention_mask=mask.long(), labels=batch).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
        if epoch % 5 == 4:
            print(f"{folder.name}: epoch {epoch + 1}, loss {loss.item():.3f}", flush=True)
    tokenizer.chat_template = CONTINUED
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def agent2(*words: str) -> str:
    """What a command prints. Raises SystemExit with its errors if it fails."""
    done = subprocess.run([sys.executable, "-m", "agent2", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"agent2 {' '.join(words)}: {done.stderr or done.stdout}")
    return done.stdout


def main() -> None:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="smollm2-135m", help="a base model")
    parser.add_argument("--items", type=int, default=30)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--rate", type=float, default=3e-4, help="of learning, at most")
    arguments = parser.parse_args()
    out = arguments.out.absolute()
    sets = {name: questions(seed, arguments.items) for seed, name in enumerate(("first", "second"), start=1)}
    for name, rows in sets.items():
        (out / name).mkdir(parents=True, exist_ok=True)
        write_text(out / name / "dev.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        write_text(out / name / "benchmark.yaml", BENCHMARK.format(name=name))
    if not (out / "masked").is_dir():
        print(agent2("benchmarks", "mask", str(out / "first"), "--out", str(out / "masked"), "--complete"))
    base = ensure_base_model(arguments.model, BASE_MODELS, lambda message: print(message, flush=True))
    models = {"untrained": train(base, [], 0, arguments.rate, out / "untrained")} | {
        f"trained on the {name}": train(
            base, [published(row) for row in rows], arguments.epochs, arguments.rate, out / f"on-{name}"
        )
        for name, rows in sets.items()
    }
    for name, model in models.items():
        look = out / f"look-{model.name}"
        words = (
            "eval",
            str(out / "masked"),
            "--role",
            "dev",
            "--limit",
            str(arguments.items),
        )
        printed = agent2(*words, "--checkpoint", str(model), "--out", str(look))
        share = re.search(r"\d+\.\d% \[[^\]]+\]", printed)
        print(f"{name}: {share[0] if share else printed}", flush=True)


if __name__ == "__main__":
    main()
