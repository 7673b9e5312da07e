"""Suites as files, and what differs between two of them.

Suites as files: found by name or path, frozen with their digest, and listed.

A frozen suite is the full form, nothing left to fill in, with its digest in the first lines; it reads back to an
equal suite. Promises: a frozen version never changes: freezing other content under the same name and version is
refused, and a frozen file whose content no longer has its stated digest is refused when it is read.

What differs between two suites, and whether scores made under them may still be compared.

Every differing field is named with both values and with what it changes: *scores* (all of them, or those of one
benchmark), *decisions* (metrics, gates, who sees what), or *neither* (text, names). Scores stay comparable where
nothing differs that changes scores; a gate may change without a single rollout being played again.
"""

import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from pathlib import Path

import yaml

from agent2.cards.compare import ORDER, FieldDifference, field_differences
from agent2.config import YamlText, read_yaml, read_yaml_text
from agent2.contract.shorthand import Expansion, expand
from agent2.contract.suite import Suite
from agent2.errors import ConfigError
from agent2.plugins import find, is_code, is_located, path_of, relative_to

FOLDER = resources.files("agent2") / "suites"
FROZEN_SUFFIX = ".suite.yaml"
_DIGEST_LINE = re.compile(r"^# digest: ([0-9a-f]{64})$", re.MULTILINE)


def suite_names() -> list[str]:
    """The packaged suites."""
    found = FOLDER.iterdir()
    return sorted(entry.name.removesuffix(".yaml") for entry in found if entry.name.endswith(".yaml"))


def load_suite(name_or_path: str, overrides: Sequence[str] = ()) -> Suite:
    """A packaged or installed suite by name, or one by path (with a slash or ending in .yaml), fully expanded.

    overrides: "a.b=value" strings, applied to the file before it is expanded.
    Raises ConfigError as `expand` does, for an unknown name, and for a frozen suite that was changed.
    """
    return open_suite(name_or_path, overrides).suite


def open_suite(name_or_path: str, overrides: Sequence[str] = ()) -> Expansion:
    """Like `load_suite`, with a note on every part that the file did not say itself."""
    file, text = _read(name_or_path, overrides)
    _locate_sources(file)
    stated = _DIGEST_LINE.search(text)
    expansion = expand(file, {} if stated else None)  # a frozen suite is not touched by later templates
    if stated is not None and not overrides and stated[1] != expansion.suite.digest:
        raise ConfigError(
            f"{file.where}: the suite was frozen with digest {stated[1][:16]}, its content now has "
            f"{expansion.suite.digest[:16]}; undo the change, or give it a new version and freeze that"
        )
    return expansion


def frozen_text(suite: Suite) -> str:
    """The full form of a suite as YAML, its digest first. Equal suites give equal bytes."""
    body = yaml.safe_dump(suite.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=110)
    head = f"# Frozen suite {suite.id}; made by `agent2 suite freeze`, not meant to be edited.\n"
    return f"{head}# digest: {suite.digest}\n{body}"


def freeze(suite: Suite, folder: Path) -> Path:
    """Write the full suite to `folder`/<name>-vX.Y.suite.yaml, all at once; frozen already: nothing changes.

    Raises ConfigError if that version is frozen with other content.
    """
    path = folder / f"{suite.id}{FROZEN_SUFFIX}"
    if path.exists():
        there = load_suite(str(path))
        if there.digest != suite.digest:
            raise ConfigError(
                f"{path}: version {suite.version} of {suite.name} is frozen with digest {there.digest[:16]}, this one "
                f"has {suite.digest[:16]}; give the changed suite a new version (agent2 suite diff shows what differs)"
            )
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".part", encoding="utf-8", delete=False) as part:
        part.write(frozen_text(suite))
    try:
        os.link(part.name, path)  # fails if another process froze it meanwhile; a rename would replace it
    except FileExistsError:
        return freeze(suite, folder)
    finally:
        os.unlink(part.name)
    path.chmod(0o644)
    return path


def _locate_sources(file: YamlText) -> None:
    """Make the sources of benchmarks that are relative paths independent of where the command is run."""
    entries = file.data.get("benchmarks")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("source"), str):
            entry["source"] = relative_to(entry["source"], Path(file.where).parent)


def _read(name_or_path: str, overrides: Sequence[str]) -> tuple[YamlText, str]:
    if is_located(name_or_path) and not is_code(name_or_path):
        file = read_yaml(Path(name_or_path), overrides)
        return file, Path(name_or_path).read_text(encoding="utf-8")
    place = find("suite", name_or_path, {name: name for name in suite_names()})
    if not place.is_packaged:
        path = path_of(place)
        return read_yaml(path, overrides), path.read_text(encoding="utf-8")
    text = (FOLDER / f"{name_or_path}.yaml").read_text(encoding="utf-8")
    return read_yaml_text(text, f"suites/{name_or_path}.yaml", overrides), text


class Reach(StrEnum):
    """What a differing field changes."""

    SCORES = "scores"
    DECISIONS = "decisions"
    NEITHER = "neither"


NEUTRAL_FIELDS = frozenset({"name", "version", "track", "description", "model", "task_distribution"})
SCORE_FIELDS_OF_BENCHMARK = frozenset({"version", "max_tokens", "scorer", "split", "n_items"})
SCORE_FIELDS_OF_METRIC = frozenset({"benchmark", "measure", "split", "unit"})
SCORE_FIELDS_OF_AGENT = frozenset({"initial_environment", "success_criteria", "budget"})


@dataclass(frozen=True, slots=True)
class SuiteDifference:
    """One field that differs, and what follows."""

    field: FieldDifference
    reach: Reach
    benchmark: str | None
    """Whose scores it changes; None: those of all, or no scores."""


@dataclass(frozen=True, slots=True)
class SuiteDiff:
    """All differences of two suites."""

    left: str
    right: str
    """Names with versions."""
    differences: tuple[SuiteDifference, ...]
    comparable: tuple[str, ...]
    """Benchmarks of both suites whose scores may be compared."""
    incomparable: tuple[str, ...]
    """Benchmarks of both suites whose scores may not."""
    one_sided: tuple[str, ...]
    """Benchmarks of one suite alone."""

    @property
    def scores_stay_comparable(self) -> bool:
        """Whether every score of either suite has a comparable one in the other."""
        return not self.incomparable and not self.one_sided

    @property
    def verdict(self) -> str:
        """One sentence."""
        if not self.differences:
            return "the suites are equal"
        if self.scores_stay_comparable:
            return "scores stay comparable: nothing differs that changes a score"
        parts = []
        if self.incomparable:
            parts.append(f"scores on {', '.join(self.incomparable)} are incomparable")
        if self.one_sided:
            parts.append(f"{', '.join(self.one_sided)}: in one suite only")
        if self.comparable:
            parts.append(f"scores on {', '.join(self.comparable)} stay comparable")
        return "; ".join(parts)


def diff_suites(left: Suite, right: Suite) -> SuiteDiff:
    """Every differing field of two suites, in the order of the fields."""
    ours, theirs = ({entry.name for entry in suite.benchmarks} for suite in (left, right))
    found = field_differences(left.model_dump(mode="json"), right.model_dump(mode="json"))
    differences = tuple(_judged(difference, (left, right)) for difference in found)
    shared = [entry.name for entry in left.benchmarks if entry.name in theirs]
    changed = {one.benchmark for one in differences if one.reach is Reach.SCORES}
    everywhere = None in changed
    return SuiteDiff(
        left=left.id,
        right=right.id,
        differences=differences,
        comparable=tuple(name for name in shared if not everywhere and name not in changed),
        incomparable=tuple(name for name in shared if everywhere or name in changed),
        one_sided=tuple(sorted(ours ^ theirs)),
    )


def _judged(difference: FieldDifference, suites: Sequence[Suite]) -> SuiteDifference:
    top, name, part = _taken_apart(difference.field)
    if top == "protocol":
        return SuiteDifference(difference, Reach.SCORES, None)
    if difference.field.endswith(ORDER):
        return SuiteDifference(difference, Reach.NEITHER, None)
    if top == "benchmarks" and (part is None or part in SCORE_FIELDS_OF_BENCHMARK):
        return SuiteDifference(difference, Reach.SCORES, name)
    if top == "benchmarks" and part == "urls":
        return SuiteDifference(difference, Reach.NEITHER, None)
    if top == "metrics" and part in SCORE_FIELDS_OF_METRIC:
        owners = {metric.benchmark for suite in suites for metric in suite.metrics if metric.name == name}
        return SuiteDifference(difference, Reach.SCORES, owners.pop() if len(owners) == 1 else None)
    if top == "agent" and (part is None or part in SCORE_FIELDS_OF_AGENT):
        return SuiteDifference(difference, Reach.SCORES, None)
    if top in NEUTRAL_FIELDS:
        return SuiteDifference(difference, Reach.NEITHER, None)
    return SuiteDifference(difference, Reach.DECISIONS, None)


def _taken_apart(field: str) -> tuple[str, str | None, str | None]:
    """`benchmarks[gsm8k].scorer.name` -> ("benchmarks", "gsm8k", "scorer")."""
    head, bracket, rest = field.removesuffix(ORDER).partition("[")
    if not bracket:
        top, _, below = head.partition(".")
        return top, None, below.partition(".")[0] or None
    name, _, below = rest.partition("]")
    return head, name, below.lstrip(".").partition(".")[0] or None
