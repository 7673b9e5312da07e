"""The folder of an evaluation: what it contains, which evaluation it is of, and a lock for one writer at a time.

    evaluation.json   what is evaluated; written first, never changed; also the lock
    suite.json        the contract with every default filled in
    lock.json         what the last session ran on: versions, hardware, times
    references.json   reference answers of the items, for the report; absent where the items are hidden
    places.json       file and row that an item is from, where there is one; absent as well
    payloads.json     short fields of the items' payloads, by benchmark and item; absent as well
    cards/<side>/<benchmark>-<split>/
    judged/<benchmark>-<split>/   which side's answers a judge prefers, where the suite names one
    report.yaml report.json report.md report.html change.svg

Promises: a folder that holds anything else, or another evaluation, is left exactly as it was; of two processes
one gets the folder and the other an error. The lock is the kernel's: it ends with its process, even a killed one.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from agent2.errors import ConfigError
from agent2.files import lock_file
from agent2.foreign_files import read_limited

IDENTITY_FILE = "evaluation.json"
SUITE_FILE = "suite.json"
LOCK_FILE = "lock.json"
REFERENCES_FILE = "references.json"
PLACES_FILE = "places.json"
PAYLOADS_FILE = "payloads.json"
Stored = TypeVar("Stored")
LOOK_FILE = "first_look.json"
"""In the folder of a first look (`evaluation.first_look`), which is no evaluation."""
BASELINE, CHECKPOINT = "baseline", "checkpoint"
SIDES = (BASELINE, CHECKPOINT)
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two checkpoints."""

    name: str
    digest: str
    kind: str
    caveats: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Identity:
    """What makes two runs of the command the same evaluation."""

    suite: str
    suite_digest: str
    role: str
    split: str
    seed: int
    sides: Mapping[str, Side]
    """`BASELINE` and `CHECKPOINT`."""
    secret_digest: str | None
    """Names the installation secret behind hidden items; None: the items are visible."""
    format: int = FORMAT


def card_path(out: Path, side: str, benchmark: str, split: str) -> Path:
    """The card of one side on one benchmark."""
    return out / "cards" / side / f"{benchmark}-{split}"


def judgement_path(out: Path, benchmark: str, split: str) -> Path:
    """The judgement of both sides' answers to one benchmark."""
    return out / "judged" / f"{benchmark}-{split}"


def read_identity(out: Path) -> Identity:
    """The evaluation that a folder is of. Raises ConfigError for a folder of something else."""
    file = out / IDENTITY_FILE
    if (out / LOOK_FILE).is_file():
        raise ConfigError(
            f"{out}: is a first look, from which nothing is decided; run agent2 eval with --baseline and without "
            "--limit"
        )
    try:
        return msgspec.json.decode(read_limited(file, follow=True), type=Identity)
    except OSError as error:
        raise ConfigError(
            f"{out}: contains no evaluation ({error.strerror}: {IDENTITY_FILE}); check the folder"
        ) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"{file}: is damaged ({error}); evaluate into another folder") from error


def read_references(out: Path) -> Mapping[str, Mapping[str, str]]:
    """Benchmark -> item -> reference answer; empty where none were stored. Raises ConfigError for a damaged file."""
    return _read_by_item(out / REFERENCES_FILE)


def read_places(out: Path) -> Mapping[str, Mapping[str, str]]:
    """Benchmark -> item -> file and row it comes from (`data.csv:12`), as `read_references`."""
    return _read_by_item(out / PLACES_FILE)


def read_payloads(out: Path) -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    """Benchmark -> item -> field of its payload -> text, as `read_references`."""
    return _read_stored(out / PAYLOADS_FILE, dict[str, dict[str, dict[str, str]]])


def _read_by_item(file: Path) -> Mapping[str, Mapping[str, str]]:
    return _read_stored(file, dict[str, dict[str, str]])


def _read_stored(file: Path, kind: type[Stored]) -> Stored | dict[str, Any]:
    try:
        return msgspec.json.decode(read_limited(file, follow=True), type=kind)
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"{file}: cannot be read ({error}); delete it and run the evaluation again") from error


@contextmanager
def owned_folder(out: Path, identity: Identity) -> Iterator[None]:
    """Lock the folder of an evaluation, made if missing, while the block runs.

    Raises ConfigError for a folder of something else and while another process holds it.
    """
    _require_own(out, identity)
    out.mkdir(parents=True, exist_ok=True)
    handle = os.open(out / IDENTITY_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            lock_file(handle)
        except OSError as error:
            raise ConfigError(
                f"{out}: another process is writing this evaluation; wait for it, or give another --out"
            ) from error
        if os.fstat(handle).st_size == 0:
            os.write(handle, msgspec.json.format(msgspec.json.encode(identity), indent=1) + b"\n")
            os.fsync(handle)
        # Again under the lock: another process may have written its evaluation here between the first check and it.
        _require_own(out, identity)
        yield
    finally:
        os.close(handle)


def _require_own(out: Path, identity: Identity) -> None:
    if not out.exists():
        return
    if not out.is_dir():
        raise ConfigError(f"{out}: is not a directory; give another --out")
    names = {path.name for path in out.iterdir()}
    if not names or (names == {IDENTITY_FILE} and (out / IDENTITY_FILE).stat().st_size == 0):
        return  # empty, or left by a process that was killed before its first byte
    if IDENTITY_FILE not in names:
        raise ConfigError(f"{out}: holds other files (such as {min(names)!r}); give another --out")
    differing = _differences(_plain(read_identity(out)), _plain(identity))
    if differing:
        raise ConfigError(f"{out}: contains another evaluation ({'; '.join(differing)}); give another --out")


def _plain(identity: Identity) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(msgspec.json.encode(identity))
    return plain


def _differences(stored: dict[str, Any], requested: dict[str, Any], prefix: str = "") -> list[str]:
    differences = []
    for key, value in requested.items():
        stored_value = stored.get(key)
        if key == "caveats" or value == stored_value:
            continue
        if isinstance(value, dict) and isinstance(stored_value, dict):
            differences += _differences(stored_value, value, f"{prefix}{key} ")
        else:
            differences.append(f"{prefix}{key} {_short(stored_value)}, not {_short(value)}")
    return differences


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 24 else f"{text[:12]}…"
