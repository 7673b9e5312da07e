"""Suites as files: found by name or path, frozen with their digest, and listed.

A frozen suite is the full form, nothing left to fill in, with its digest in the first lines; it reads back to an
equal suite. Promises: a frozen version never changes: freezing other content under the same name and version is
refused, and a frozen file whose content no longer has its stated digest is refused when it is read.
"""

import os
import re
import tempfile
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import yaml

from agent2.config import YamlText, read_yaml, read_yaml_text
from agent2.contract.expand import Expansion, expand
from agent2.contract.suite import Suite
from agent2.errors import ConfigError
from agent2.plugins import find, path_of, relative_to

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
    if "/" in name_or_path or name_or_path.endswith((".yaml", ".yml")):
        file = read_yaml(Path(name_or_path), overrides)
        return file, Path(name_or_path).read_text(encoding="utf-8")
    place = find("suite", name_or_path, {name: name for name in suite_names()})
    if not place.is_packaged:
        path = path_of(place)
        return read_yaml(path, overrides), path.read_text(encoding="utf-8")
    text = (FOLDER / f"{name_or_path}.yaml").read_text(encoding="utf-8")
    return read_yaml_text(text, f"suites/{name_or_path}.yaml", overrides), text
