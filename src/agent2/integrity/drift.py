"""What a submission contains besides its weights, against the base model: tokenizer, template, settings.

Scoring uses the base's, so a difference changes no score; it shows what the submitter expected to be used. Files are
compared by content, bounded in size; no template is rendered and no tokenizer is loaded. Entries that libraries are
known to rewrite are ignored. A template that prints more than the conversation is recognised by its literal text.
"""

import filecmp
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from agent2.errors import CheckpointError, quoted
from agent2.integrity import Effect, IntegrityCheck, IntegrityFinding, Proof, Severity, proof
from agent2.models.checkpoint import (
    CHAT_TEMPLATE,
    CONFIG,
    TOKENIZER,
    TOKENIZER_CONFIG,
    CheckpointInfo,
    read_json,
    read_small,
)
from agent2.records import JsonValue

GENERATION_CONFIG = "generation_config.json"
MAX_PARSED_BYTES = 16 << 20
"""Larger files are compared byte by byte and not parsed."""
MAX_LITERAL = 200
"""Characters of literal text that a template may add to the base's before a person should look."""
INCIDENTAL: Mapping[str, frozenset[str]] = {
    CONFIG: frozenset({"transformers_version", "_name_or_path", "dtype", "torch_dtype", "use_cache", "architectures"}),
    GENERATION_CONFIG: frozenset({"transformers_version", "_from_model_config"}),
    TOKENIZER: frozenset({"padding", "truncation"}),
    TOKENIZER_CONFIG: frozenset(
        {"chat_template", "tokenizer_class", "is_local", "local_files_only", "backend", "model_max_length"}
    ),
}
"""Entries that saving alone may change, or that have a check of their own."""
COMPARED_FILES: Mapping[str, str] = {
    TOKENIZER: "tokenizer",
    TOKENIZER_CONFIG: "tokenizer settings",
    GENERATION_CONFIG: "generation config",
    CONFIG: "model config",
}
"""File -> what findings call it."""
_LOOP = re.compile(r"{%-?\s*for\s+\w+\s+in\s+range\s*\(\s*(\d+)")
_OPEN, _CLOSE = re.compile(r"{[{%#]"), re.compile(r"[}%#]}")
LONG_LOOP = 10_000
"""Rounds of a template's loop from which on it is flagged."""


def drift_check(candidate: CheckpointInfo, base: CheckpointInfo, subject: str) -> IntegrityCheck:
    """What differs from the base model in a submission's other files. An adapter's model config does not count."""
    findings: list[IntegrityFinding] = []
    unread: list[str] = []
    n_files = 0
    for name, title in COMPARED_FILES.items():
        if name not in candidate.files:
            continue
        n_files += 1
        try:
            changed = _changed_keys(candidate.path / name, base.path / name, INCIDENTAL[name])
        except CheckpointError as error:
            unread.append(f"{title}: {str(error).replace(str(candidate.path), subject)}")
            continue
        if changed and not (candidate.is_adapter and name == CONFIG):
            keys = ", ".join(quoted(key) for key in changed[:5])
            keys += f" and {len(changed) - 5} more" if len(changed) > 5 else ""
            sentence = f"its {title} differs from the base model's in {keys}; scoring uses the base model's"
            findings.append(IntegrityFinding(f"{title} differs", Severity.LOW, Effect.NOTE, sentence, (), subject))
    findings += _template_findings(candidate, base, subject)
    looked_at = f"{subject}: {n_files} files of settings and the chat template against the base model's"
    if unread:
        looked_at += f"; not compared in detail: {'; '.join(unread)[:300]}"
    return IntegrityCheck("drift", looked_at, tuple(findings), is_complete=not unread)


def template_text(info: CheckpointInfo) -> str:
    """The chat template of a checkpoint; empty without one. Raises CheckpointError if it cannot be read."""
    if CHAT_TEMPLATE in info.files:
        return read_small(info.path / CHAT_TEMPLATE, MAX_PARSED_BYTES).decode(errors="replace")
    if TOKENIZER_CONFIG not in info.files:
        return ""
    _require_small(info.path / TOKENIZER_CONFIG)
    template = read_json(info.path / TOKENIZER_CONFIG).get("chat_template")
    return template if isinstance(template, str) else str(template or "")


def _template_findings(candidate: CheckpointInfo, base: CheckpointInfo, subject: str) -> list[IntegrityFinding]:
    has_template = CHAT_TEMPLATE in candidate.files or TOKENIZER_CONFIG in candidate.files
    if not has_template or candidate.chat_template_digest == base.chat_template_digest:
        return []
    try:
        template, base_template = template_text(candidate), template_text(base)
    except CheckpointError as error:
        sentence = f"its chat template could not be compared: {str(error).replace(str(candidate.path), subject)}"
        return [IntegrityFinding("chat template differs", Severity.MEDIUM, Effect.FLAG, sentence, (), subject)]
    if not template:
        return []
    base_literals = set(_literals(base_template))
    added = "".join(literal for literal in _literals(template) if literal not in base_literals)
    # The first 300 digits: a float holds them, whatever number the template names.
    loops = [float(rounds[:300]) for rounds in _LOOP.findall(template) if float(rounds[:300]) >= LONG_LOOP]
    size = f"{len(template)} characters, the base model's {len(base_template)}"
    proofs: tuple[Proof, ...] = (proof("chat template", size),)
    if loops:
        sentence = f"its chat template has a loop of {loops[0]:.3g} rounds; it is never rendered"
        return [IntegrityFinding("chat template loops", Severity.HIGH, Effect.FLAG, sentence, proofs, subject)]
    if len(added) > MAX_LITERAL:
        sentence = (
            f"its chat template says {len(added)} characters that the base model's does not; scoring uses the base "
            "model's"
        )
        return [IntegrityFinding("chat template carries text", Severity.MEDIUM, Effect.FLAG, sentence, proofs, subject)]
    sentence = "its chat template differs from the base model's; scoring uses the base model's"
    return [IntegrityFinding("chat template differs", Severity.LOW, Effect.NOTE, sentence, proofs, subject)]


def _literals(template: str) -> list[str]:
    """Text between the expressions of a template, and literals inside them."""
    outside = [piece.strip() for piece in _outside(template)]
    literals = re.findall(r"'([^']*)'|\"([^\"]*)\"", template)
    return [piece for piece in (*outside, *(single or double for single, double in literals)) if piece]


def _outside(template: str) -> Iterator[str]:
    """Text between expressions, in one pass: an expression that is never closed is text."""
    # Not one regular expression: over many openings without a close it would take quadratic time.
    start = 0
    while opened := _OPEN.search(template, start):
        closed = _CLOSE.search(template, opened.end())
        if closed is None:
            break
        yield template[start : opened.start()]
        start = closed.end()
    yield template[start:]


def _changed_keys(path: Path, base_path: Path, incidental: frozenset[str]) -> list[str]:
    """Top-level entries that differ; empty if the files mean the same."""
    if base_path.is_file() and filecmp.cmp(path, base_path, shallow=False):
        return []
    _require_small(path)
    entries = _without(read_json(path), incidental)
    base_entries = _without(read_json(base_path), incidental) if base_path.is_file() else {}
    return sorted(key for key in {*entries, *base_entries} if entries.get(key) != base_entries.get(key))


def _require_small(path: Path) -> None:
    size = path.stat().st_size
    if size > MAX_PARSED_BYTES:
        raise CheckpointError(f"{path.name} has {size} bytes; at most {MAX_PARSED_BYTES} are parsed")


def _without(content: Mapping[str, JsonValue], incidental: frozenset[str]) -> dict[str, JsonValue]:
    return {key: value for key, value in content.items() if key not in incidental and value not in (None, [], {})}
