"""What a submission brings besides its weights, against the base model's: tokenizer, template, generation config.

Scoring takes all of it from the base model, so a difference changes no score; it tells what the submitter expected to
be used. Files are compared by content, bounded in size, as data: no template is rendered and no tokenizer is loaded.

Does NOT say why something differs: libraries rewrite these files when they save (known incidental entries are left
out). A template that prints more than the conversation is named by its literal text, not by what it would do.
"""

import filecmp
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from agent2.errors import CheckpointError, shown
from agent2.integrity.finding import Effect, IntegrityCheck, IntegrityFinding, Proof, Severity, proof
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
"""Files that differ and are larger are not looked into."""
MAX_LITERAL = 200
"""Characters that a template adds to the base's before a person should look."""
INCIDENTAL: Mapping[str, frozenset[str]] = {
    CONFIG: frozenset({"transformers_version", "_name_or_path", "dtype", "torch_dtype", "use_cache", "architectures"}),
    GENERATION_CONFIG: frozenset({"transformers_version", "_from_model_config"}),
    TOKENIZER: frozenset({"padding", "truncation"}),
    TOKENIZER_CONFIG: frozenset(
        {"chat_template", "tokenizer_class", "is_local", "local_files_only", "backend", "model_max_length"}
    ),
}
"""Entries that saving alone may change, or that have a check of their own."""
NAMES: Mapping[str, str] = {
    TOKENIZER: "tokenizer",
    TOKENIZER_CONFIG: "tokenizer settings",
    GENERATION_CONFIG: "generation config",
    CONFIG: "model config",
}
_LOOP = re.compile(r"{%-?\s*for\s+\w+\s+in\s+range\s*\(\s*(\d+)")
_OPEN, _CLOSE = re.compile(r"{[{%#]"), re.compile(r"[}%#]}")
LONG_LOOP = 10_000


def drift_check(candidate: CheckpointInfo, base: CheckpointInfo, subject: str) -> IntegrityCheck:
    """What differs from the base model in a submission's other files. An adapter brings none that count."""
    findings: list[IntegrityFinding] = []
    unread: list[str] = []
    n_files = 0
    for name, what in NAMES.items():
        if name not in candidate.files:
            continue
        n_files += 1
        try:
            changed = _changed_keys(candidate.path / name, base.path / name, INCIDENTAL[name])
        except CheckpointError as error:
            unread.append(f"{what}: {str(error).replace(str(candidate.path), subject)}")
            continue
        if changed and not (candidate.is_adapter and name == CONFIG):
            findings.append(_differs(what, changed, subject))
    findings += _template_findings(candidate, base, subject)
    looked = f"{subject}: {n_files} files of settings and the chat template against the base model's"
    if unread:
        looked += f"; not compared in detail: {'; '.join(unread)[:300]}"
    return IntegrityCheck("drift", looked, tuple(findings), is_complete=not unread)


def template_text(info: CheckpointInfo) -> str:
    """The chat template that a checkpoint brings; empty without one. Raises CheckpointError if it cannot be read."""
    if CHAT_TEMPLATE in info.files:
        return read_small(info.path / CHAT_TEMPLATE, MAX_PARSED_BYTES).decode(errors="replace")
    if TOKENIZER_CONFIG not in info.files:
        return ""
    _require_small(info.path / TOKENIZER_CONFIG)
    template = read_json(info.path / TOKENIZER_CONFIG).get("chat_template")
    return template if isinstance(template, str) else str(template or "")


def _differs(what: str, changed: list[str], subject: str) -> IntegrityFinding:
    names = ", ".join(shown(key) for key in changed[:5]) + (f" and {len(changed) - 5} more" if len(changed) > 5 else "")
    words = f"its {what} differs from the base model's in {names}; scoring uses the base model's"
    return IntegrityFinding(f"{what} differs", Severity.LOW, Effect.NOTE, words, (), subject)


def _template_findings(candidate: CheckpointInfo, base: CheckpointInfo, subject: str) -> list[IntegrityFinding]:
    brings = CHAT_TEMPLATE in candidate.files or TOKENIZER_CONFIG in candidate.files
    if not brings or candidate.chat_template_digest == base.chat_template_digest:
        return []
    try:
        own, expected = template_text(candidate), template_text(base)
    except CheckpointError as error:
        words = f"its chat template could not be compared: {str(error).replace(str(candidate.path), subject)}"
        return [IntegrityFinding("chat template differs", Severity.MEDIUM, Effect.FLAG, words, (), subject)]
    if not own:
        return []
    added = _added_literal(own, expected)
    loops = [float(rounds[:300]) for rounds in _LOOP.findall(own) if float(rounds[:300]) >= LONG_LOOP]
    proofs: tuple[Proof, ...] = (proof("chat template", f"{len(own)} characters, the base model's {len(expected)}"),)
    if loops:
        words = f"its chat template has a loop of {loops[0]:.3g} rounds; it is never rendered"
        return [IntegrityFinding("chat template loops", Severity.HIGH, Effect.FLAG, words, proofs, subject)]
    if len(added) > MAX_LITERAL:
        words = (
            f"its chat template says {len(added)} characters that the base model's does not; scoring uses the base "
            "model's"
        )
        return [IntegrityFinding("chat template carries text", Severity.MEDIUM, Effect.FLAG, words, proofs, subject)]
    words = "its chat template differs from the base model's; scoring uses the base model's"
    return [IntegrityFinding("chat template differs", Severity.LOW, Effect.NOTE, words, proofs, subject)]


def _added_literal(own: str, expected: str) -> str:
    """Text between the expressions of a template, and quoted inside them, that the other template does not have."""
    before = set(_literals(expected))
    return "".join(piece for piece in _literals(own) if piece not in before)


def _literals(template: str) -> list[str]:
    outside = [piece.strip() for piece in _outside(template)]
    quoted = re.findall(r"'([^']*)'|\"([^\"]*)\"", template)
    return [piece for piece in (*outside, *(one or other for one, other in quoted)) if piece]


def _outside(template: str) -> Iterator[str]:
    """Text between expressions, in one pass: an expression that is never closed is text."""
    at = 0
    while opened := _OPEN.search(template, at):
        closed = _CLOSE.search(template, opened.end())
        if closed is None:
            break
        yield template[at : opened.start()]
        at = closed.end()
    yield template[at:]


def _changed_keys(own: Path, expected: Path, incidental: frozenset[str]) -> list[str]:
    """Top-level entries that differ; empty if the files mean the same."""
    if expected.is_file() and filecmp.cmp(own, expected, shallow=False):
        return []
    _require_small(own)
    mine = _without(read_json(own), incidental)
    theirs = _without(read_json(expected), incidental) if expected.is_file() else {}
    return sorted(key for key in {*mine, *theirs} if mine.get(key) != theirs.get(key))


def _require_small(path: Path) -> None:
    size = path.stat().st_size
    if size > MAX_PARSED_BYTES:
        raise CheckpointError(f"{path.name} has {size} bytes, at most {MAX_PARSED_BYTES} are looked into")


def _without(content: Mapping[str, JsonValue], incidental: frozenset[str]) -> dict[str, JsonValue]:
    return {key: value for key, value in content.items() if key not in incidental and value not in (None, [], {})}
