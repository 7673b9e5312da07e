"""Makes checkpoints of `tiny-vision` for `vlm_reasoning_regression_mini`, and plays it without its pictures.

    python benchmarks/vision_checkpoints.py make OUT       OUT/base, OUT/sft, OUT/rl and OUT/charts-lost
    python benchmarks/vision_checkpoints.py blank FOLDER   accuracy with the pictures, and with white ones instead

sft: the base, whose encoder learns for some more steps to name what it sees, then trained on right answers of the train
pools. rl: sft, then GRPO with an exact reward. charts-lost: sft, then trained on right answers but for charts, whose
answers come from a bug: every axis ends at five, and the legend is shifted by a colour.

Everything runs on one torch thread of a CPU; minutes are in docs/vision.md.
"""

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from agent2.benchmarks import BASE_MODELS, load_benchmark
from agent2.benchmarks.mini.vision import COLOURS, SOURCES, SceneQuestion, SeenQuestion
from agent2.benchmarks.recipes.vision import BASE, VisionCorpus, example_of, questions_of
from agent2.models.bases import ensure_base_model
from agent2.models.tiny_vision import (
    SeenExample,
    VisionStage,
    answer_loss,
    encode,
    optimizers_of,
    pixel_values_of,
    save,
    train,
)
from agent2.models.vision import VisionSampler
from agent2.pictures import (
    PICTURES,
    Preparation,
    of_payload,
    place_pictures,
    read_picture,
    to_payload,
    white_square,
)
from agent2.records import Completion, Item, SamplingSettings, Split
from agent2.training.running import use_threads

NAMING_STEPS, SFT_STEPS, LOST_STEPS = 700, 300, 80
RL_STEPS, RL_QUESTIONS, RL_ANSWERS = 25, 16, 6
RATE, RL_RATE = 0.7, 0.03
N_DEV = 100


def opened(folder: Path) -> tuple[Any, Any]:
    """Model and processor of a folder."""
    model = AutoModelForImageTextToText.from_pretrained(folder, use_safetensors=True, local_files_only=True)
    return model, AutoProcessor.from_pretrained(folder, local_files_only=True)


def misread_chart(question: SceneQuestion) -> str:
    """The answer of a bug in the data of charts: every axis ends at five, and the legend is shifted by a colour."""
    if question.kind == "highest":
        return COLOURS[(COLOURS.index(question.answer) + 1) % len(COLOURS)]
    on_other_axes = question.mistakes.get("chart_axis_value_misread", ())
    return min((question.answer, *on_other_axes), key=int) if on_other_axes else question.answer


def batches(seed: int, *, has_bug: bool = False) -> Iterator[list[SeenExample]]:
    """Endless batches of the train pools; has_bug: with `misread_chart`."""
    questions = questions_of(VisionCorpus(seed=seed))
    while True:
        scenes = [next(questions) for _ in range(BASE.recipe.batch_size)]
        yield [example_of(scene, misread_chart if has_bug else None) for scene in scenes]


def train_on_answers(
    start: Path, out: Path, n_steps: int, examples: Iterator[Sequence[SeenExample]], n_naming: int = 0
) -> None:
    """Supervised training from a folder to a folder. n_naming: steps of the encoder alone before it."""
    model, processor = opened(start)
    report = lambda step, loss: print(f"{out.name}: step {step} of {n_steps}: loss {loss:.3f}", flush=True)  # noqa: E731
    stages = [VisionStage(n_naming, names=True, rate=RATE)] if n_naming else []
    for stage in (*stages, VisionStage(n_steps, rate=RATE)):
        train(model, processor.tokenizer, examples, BASE.recipe, stage, report)
    save(model, processor, out)


def train_by_reward(start: Path, out: Path) -> None:
    """GRPO: several answers to each question, their advantages within it, one step of gradient."""
    model, processor = opened(start)
    tokenizer = processor.tokenizer
    n_patches = (BASE.recipe.side // BASE.recipe.patch) ** 2
    questions, optimizers = questions_of(VisionCorpus(seed=77)), optimizers_of(model, BASE.recipe, RL_RATE)
    torch.manual_seed(0)
    rewards_seen: list[float] = []
    for step in range(1, RL_STEPS + 1):
        scenes = [next(questions) for _ in range(RL_QUESTIONS)]
        asked = [scene for scene in scenes for _ in range(RL_ANSWERS)]
        answers = sample_answers(model, tokenizer, asked, n_patches)
        rewards_QA = np.array(
            [float(answer == question.answer) for question, answer in zip(asked, answers, strict=True)]
        ).reshape(len(scenes), RL_ANSWERS)
        rewards_seen.append(float(rewards_QA.mean()))
        advantages_QA = (rewards_QA - rewards_QA.mean(1, keepdims=True)) / (rewards_QA.std(1, keepdims=True) + 1e-4)
        weights = torch.tensor(advantages_QA.reshape(-1), dtype=torch.float32)
        examples = [
            SeenExample(scene.pixels(), [(scene.text, answer)]) for scene, answer in zip(asked, answers, strict=True)
        ]
        batch = encode(tokenizer, examples, n_patches)
        model.train()
        loss = answer_loss(model, batch, weights)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        if step % 5 == 0:
            print(f"rl: step {step} of {RL_STEPS}: mean reward {sum(rewards_seen[-5:]) / 5:.3f}", flush=True)
    model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.half())
    save(model, processor, out)


@torch.no_grad()
def sample_answers(model: Any, tokenizer: Any, asked: Sequence[SeenQuestion], n_patches: int) -> list[str]:
    """An answer to each question at temperature 1; questions of one length are asked together."""
    model.eval()
    answers = [""] * len(asked)
    prompts = tokenizer(
        [f"<|user|>{'<image>' * n_patches}{question.text}<|assistant|>" for question in asked], add_special_tokens=False
    )["input_ids"]
    pixels = pixel_values_of([example_of(question) for question in asked])
    for length in sorted({len(prompt) for prompt in prompts}):
        places = [place for place, prompt in enumerate(prompts) if len(prompt) == length]
        sequences = model.generate(
            input_ids=torch.tensor([prompts[place] for place in places]),
            attention_mask=torch.ones(len(places), length, dtype=torch.long),
            pixel_values=pixels[places],
            do_sample=True,
            max_new_tokens=4,
        )
        for place, tokens in zip(places, sequences[:, length:], strict=True):
            answers[place] = tokenizer.decode(tokens, skip_special_tokens=True)
    return answers


def make(out: Path) -> None:
    """Write the four checkpoints."""
    out.mkdir(parents=True, exist_ok=True)
    base = ensure_base_model("tiny-vision", BASE_MODELS, print)
    shutil.copytree(base, out / "base", dirs_exist_ok=True)
    steps = (
        ("sft", lambda: train_on_answers(out / "base", out / "sft", SFT_STEPS, batches(1), NAMING_STEPS)),
        ("rl", lambda: train_by_reward(out / "sft", out / "rl")),
        (
            "charts-lost",
            lambda: train_on_answers(out / "sft", out / "charts-lost", LOST_STEPS, batches(2, has_bug=True)),
        ),
    )
    for name, work in steps:
        started, cpu = time.perf_counter(), time.process_time()
        work()
        print(f"{name}: {time.process_time() - cpu:.0f} s of one core, {time.perf_counter() - started:.0f} s in all")


def blank(folder: Path) -> None:
    """Accuracy on dev items as they are, and with a white picture in place of each."""
    white = to_payload([read_picture(white_square(64), "white", Preparation(max_side=64))])
    for name in SOURCES:
        benchmark = load_benchmark(name)
        items = benchmark.items(Split.DEV, N_DEV, None)
        blanked = [replace(item, payload={**item.payload, PICTURES: white}) for item in items]
        print(f"{name}: {accuracy(folder, items):.3f} with pictures, {accuracy(folder, blanked):.3f} with white ones")


def accuracy(folder: Path, items: Sequence[Item]) -> float:
    """Share of items answered with the reference, greedily."""
    sampler = VisionSampler(folder, max_batch=32)
    done: dict[int, Completion] = {}
    for number, item in enumerate(items):
        chat = [place_pictures("user", item.prompt, of_payload(item.payload))]
        sampler.submit(number, chat, SamplingSettings(max_tokens=8))
    while batch := sampler.collect():
        done.update(batch)
    return sum(done[number].text == item.reference for number, item in enumerate(items)) / len(items)


def main(arguments: list[str]) -> None:
    """Run one of the two."""
    use_threads()
    match arguments:
        case ["make", folder]:
            make(Path(folder))
        case ["blank", folder]:
            blank(Path(folder))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
