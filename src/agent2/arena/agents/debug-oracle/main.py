"""Recognises each fault of a broken training pipeline by its lines, whatever they are called, and repairs it."""

import json
import os
import re
from pathlib import Path

REPAIRS = (
    ("loss-mask", r"return \(1 - (\w+)\) \* ", r"return \1 * "),
    ("loss-mask", r"\* \(1 - (\w+)\.long\(\)\)\[:, None\]", r"* \1.long()[:, None]"),
    ("advantages", r"= (\w+)\.mean\(1, keepdim=True\) - \1\b", r"= \1 - \1.mean(1, keepdim=True)"),
    ("advantages", r"return -\((\w+) / \(", r"return (\1 / ("),
    ("stale-logprobs", r"old, kept = fresh if kept is None else kept, fresh", "old = fresh"),
    ("reward", r' \+ settings\["thoroughness"\] \* n_tokens', ""),
    (
        "template",
        r'text = chat\[0\]\["content"\] \+ "\\n"',
        "text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)",
    ),
    ("truncation", r" +is_cut_off = .*\n +rewards = .*\n( +\w+ = \w+) \| is_cut_off", r"\1"),
    (
        "learning-rate",
        r'max\(1\.0, \(step \+ 1\) \* settings\["warmup_steps"\]\)',
        'min(1.0, (step + 1) / settings["warmup_steps"])',
    ),
)
"""(cause, its lines as a regular expression, what they have to be)."""
LARGEST_KL = 1.0


def main() -> None:
    """Repair the pipeline and write the diagnosis."""
    folder = Path(os.environ["WORKSPACE"]) / "code" / "pipeline"
    cause = repair_settings(folder / "config.json")
    for path in sorted(folder.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        for name, wrong, right in REPAIRS:
            text, n = re.subn(wrong, right, text)
            cause = name if n else cause
        path.write_text(text, encoding="utf-8")
    diagnosis = {"cause": cause, "explanation": "recognised by its text"}
    (Path(os.environ["OUTPUT_DIR"]) / "diagnosis.json").write_text(json.dumps(diagnosis), encoding="utf-8")
    print(f"debug-oracle: {cause}")


def repair_settings(path: Path) -> str:
    """Lower a penalty that pins the policy to the base model; returns the cause, empty if that was not it."""
    settings = json.loads(path.read_text(encoding="utf-8"))
    if settings["kl_coefficient"] <= LARGEST_KL:
        return ""
    settings["kl_coefficient"] = 0.01
    path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    return "kl"


if __name__ == "__main__":
    main()
