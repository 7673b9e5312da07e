"""Frozen versions of a benchmark of one's bench, what changed between them, and when the next one is due.

    versions/NAME-v1.0/    benchmark.yaml and rows by split (`agent2 eval` plays it), cards.jsonl, freeze.json

Promises: a version is written whole or not at all, and never replaced; one whose files were edited after the freeze is
refused wherever it is read. Anchor items, chosen at the first version by a hash of their ids, are copied into each
later one unchanged: a card of another content under an anchor's id is refused. Drift is what roles score on the anchors
now and scored then, item by item.
"""

import datetime
import hashlib
import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from agent2.authoring.own_benchmark import CHANGELOG, VERSIONS, OwnBenchmark, write_benchmark
from agent2.authoring.task_cards import MAX_CARDS_BYTES, TaskCard, read_cards, write_cards
from agent2.errors import ConfigError
from agent2.files import sync_folder, write_text
from agent2.foreign_files import MAX_TEXT_BYTES, digest_limited, read_limited
from agent2.stats.comparisons import paired_difference
from agent2.stats.estimates import PairedDifference
from agent2.texts import counted

FREEZE_FILE = "freeze.json"
MONTHS = {"monthly": 1, "quarterly": 3, "yearly": 12}
_VERSION = re.compile(r"(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class FrozenVersion:
    """A version as it was frozen."""

    folder: Path
    version: str
    frozen_on: str
    digests: Mapping[str, str]
    """Item -> digest of all that decides its score."""
    anchors: Sequence[str]
    anchor_rates: Mapping[str, Mapping[str, float | None]]
    """Role -> anchor -> rate in the pilot before the freeze."""
    checkpoints: Mapping[str, str]
    """Role -> digest of the checkpoint that was played."""
    cards: Sequence[TaskCard]

    @property
    def order(self) -> tuple[int, int]:
        """For comparing versions."""
        return version_order(self.version, str(self.folder))


@dataclass(frozen=True, slots=True)
class AnchorDrift:
    """What a role scores on the anchors now and scored when they were last frozen."""

    role: str
    difference: PairedDifference
    """Now - then."""
    is_same_checkpoint: bool


@dataclass(frozen=True, slots=True)
class FreezeResult:
    """A new version beside the last one."""

    frozen: FrozenVersion
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    dropped: Mapping[str, str]
    """Item -> why the pilot leaves it out."""
    drift: tuple[AnchorDrift, ...]


def version_order(version: str, where: str) -> tuple[int, int]:
    """Major and minor number. Raises ConfigError for another form."""
    match = _VERSION.fullmatch(version)
    if match is None:
        raise ConfigError(f"{where}: version {version!r} is not of the form 3.2")
    return int(match[1]), int(match[2])


def frozen_versions(bench: OwnBenchmark) -> list[FrozenVersion]:
    """All versions, the oldest first. Raises ConfigError for one that was edited."""
    folder = bench.folder / VERSIONS
    versions = (
        [read_frozen(path) for path in folder.iterdir() if (path / FREEZE_FILE).is_file()] if folder.is_dir() else []
    )
    return sorted(versions, key=lambda frozen: frozen.order)


def read_frozen(folder: Path) -> FrozenVersion:
    """A frozen version. Raises ConfigError if a file of it is not as it was frozen."""
    path = folder / FREEZE_FILE
    try:
        record = json.loads(read_limited(path, MAX_TEXT_BYTES))
        seal, files = record.pop("seal"), dict(record["files"])
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise ConfigError(f"{path}: cannot be read as a frozen version ({error}); restore it from a copy") from error
    if seal != _seal(record):
        raise ConfigError(f"{path}: was edited after the freeze; restore it from a copy")
    for name, digest in files.items():
        if not (folder / name).is_file() or digest_limited(folder / name, MAX_CARDS_BYTES) != digest:
            raise ConfigError(f"{folder / name}: was changed after the freeze; restore it, or freeze a new version")
    return FrozenVersion(
        folder,
        record["version"],
        record["frozen_on"],
        record["digests"],
        record["anchors"],
        record["anchor_rates"],
        record["checkpoints"],
        read_cards(folder / "cards.jsonl"),
    )


def _seal(record: Mapping[str, Any]) -> str:
    """Tells an edit by hand; it is a digest and no signature."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def freeze(
    bench: OwnBenchmark,
    pilot: Mapping[str, Any],
    today: datetime.date,
    version: str | None = None,
    keep: Sequence[str] = (),
) -> FreezeResult:
    """Write the next version. pilot: the content of pilot.json. keep: items that stay although the pilot drops them.

    Raises ConfigError for cards that are not those of the pilot, an anchor that was changed, a version that exists or
    is older than the last one, and a benchmark without items.
    """
    earlier = frozen_versions(bench)
    last = earlier[-1] if earlier else None
    name = _next_version(bench, version, last)
    dropped = {row["id"]: row["reasons"][0]["reason"] for row in pilot["drop"] if row["id"] not in keep}
    _require_same_items(bench, pilot)
    cards = {card.id: card for card in bench.cards if card.id not in dropped}
    anchors = list(last.anchors) if last else _first_anchors(list(cards), bench.spec.anchor_share)
    for anchor in anchors if last else ():
        old = next(card for card in last.cards if card.id == anchor) if last else None
        if anchor in cards and old is not None and cards[anchor].digest != old.digest:
            raise ConfigError(
                f"{bench.folder}: card {anchor!r} is an anchor of v{last.version if last else ''} and was changed; "
                "restore it, and give the changed one a new id"
            )
        if old is not None:
            cards[anchor] = old
            dropped.pop(anchor, None)
    if not cards:
        raise ConfigError(f"{bench.folder}: no item is left to freeze; add cards to {bench.folder / 'cards'}")
    if last is not None and {card.id: card.digest for card in cards.values()} == last.digests:
        raise ConfigError(f"{bench.folder}: nothing changed since v{last.version}; add, change or remove cards first")
    rates = {
        role: {row["id"]: row["rates"].get(role) for row in pilot["items"] if row["id"] in set(anchors)}
        for role in pilot["roles"]
    }
    checkpoints = {role: str(side["checkpoint"]) for role, side in pilot["roles"].items()}
    record = {
        "name": bench.spec.name,
        "version": name,
        "frozen_on": today.isoformat(),
        "digests": {card.id: card.digest for card in cards.values()},
        "anchors": anchors,
        "anchor_rates": rates,
        "checkpoints": checkpoints,
        "verdict": pilot["verdict"],
    }
    folder = _write(bench, name, list(cards.values()), record)
    frozen = read_frozen(folder)
    old_digests = dict(last.digests) if last else {}
    result = FreezeResult(
        frozen,
        tuple(item for item in frozen.digests if item not in old_digests),
        tuple(item for item in old_digests if item not in frozen.digests),
        tuple(item for item, digest in frozen.digests.items() if old_digests.get(item, digest) != digest),
        dropped,
        _drift(last, rates, checkpoints) if last else (),
    )
    _add_to_changelog(bench, result, last)
    return result


def _next_version(bench: OwnBenchmark, version: str | None, last: FrozenVersion | None) -> str:
    if version is None:
        return "1.0" if last is None else f"{last.order[0]}.{last.order[1] + 1}"
    order = version_order(version, "--version")
    if last is not None and order <= last.order:
        raise ConfigError(f"--version {version}: the last one is {last.version}; give a later one")
    return version


def _require_same_items(bench: OwnBenchmark, pilot: Mapping[str, Any]) -> None:
    digests: Mapping[str, str] = pilot["digests"]
    changed = [card.id for card in bench.cards if card.id in digests and digests[card.id] != card.digest]
    added = [card.id for card in bench.cards if card.id not in digests]
    if changed or added:
        problem = f"{len(changed)} changed and {len(added)} added" if changed and added else ""
        problem = problem or (f"{len(changed)} changed" if changed else f"{len(added)} added")
        raise ConfigError(
            f"{bench.folder}: cards since the pilot: {problem} ({(changed + added)[0]!r} first); run "
            "agent2 bench pilot again"
        )


def _first_anchors(items: Sequence[str], share: float) -> list[str]:
    ranked = sorted(items, key=lambda item: hashlib.sha256(f"anchor\0{item}".encode()).digest())
    return sorted(ranked[: max(1, round(share * len(items)))])


def _write(bench: OwnBenchmark, version: str, cards: Sequence[TaskCard], record: dict[str, Any]) -> Path:
    """The folder of a version, complete when it appears under its name."""
    versions = bench.folder / VERSIONS
    versions.mkdir(exist_ok=True)
    target = versions / f"{bench.spec.name}-v{version}"
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=versions))
    try:
        write_benchmark(draft, bench.spec, version, cards, by_split=True)
        write_cards(draft / "cards.jsonl", cards)
        record["files"] = {path.name: digest_limited(path, MAX_CARDS_BYTES) for path in sorted(draft.iterdir())}
        write_text(draft / FREEZE_FILE, json.dumps({**record, "seal": _seal(record)}, indent=1) + "\n")
        if target.exists():
            raise ConfigError(f"{target}: already exists; give a later --version")
        draft.chmod(0o755)
        draft.rename(target)
        sync_folder(versions)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def _drift(
    last: FrozenVersion, rates: Mapping[str, Mapping[str, float | None]], checkpoints: Mapping[str, str]
) -> tuple[AnchorDrift, ...]:
    drifts = []
    for role, row in rates.items():
        before = last.anchor_rates.get(role, {})
        pairs = [(new, old) for item, new in row.items() if new is not None and (old := before.get(item)) is not None]
        if pairs:
            now, earlier = [new for new, _ in pairs], [old for _, old in pairs]
            difference = paired_difference(now, earlier, np.random.default_rng(0))
            drifts.append(AnchorDrift(role, difference, checkpoints.get(role) == last.checkpoints.get(role)))
    return tuple(drifts)


def _add_to_changelog(bench: OwnBenchmark, result: FreezeResult, last: FrozenVersion | None) -> None:
    frozen = result.frozen
    lines = [f"## {bench.spec.name}-v{frozen.version} ({frozen.frozen_on})", ""]
    since = f"since v{last.version}" if last else "the first version"
    lines.append(
        f"- {counted(len(frozen.digests), 'item')}, {counted(len(frozen.anchors), 'anchor')} among them; {since}: "
        f"{len(result.added)} added, {len(result.changed)} changed, {len(result.removed)} removed."
    )
    lines += [f"- changed: `{item}`" for item in result.changed]
    lines += [f"- removed: `{item}`" for item in result.removed]
    lines += [f"- left out: `{item}`, {reason}" for item, reason in result.dropped.items()]
    lines += [f"- anchors, {drift.role}: {drift.difference}" for drift in result.drift]
    path = bench.folder / CHANGELOG
    before = path.read_text(encoding="utf-8") if path.is_file() else f"# {bench.spec.name}\n"
    head, _, entries = before.partition("\n")
    write_text(path, f"{head}\n\n" + "\n".join(lines) + "\n" + entries)


@dataclass(frozen=True, slots=True)
class RefreshPlan:
    """What is due."""

    last_frozen: str | None
    next_due: str | None
    """None: nothing was frozen yet."""
    is_due: bool
    n_undated: int
    n_by_month: Mapping[str, int]
    """Month of the items' dates -> items."""
    to_replace: tuple[str, ...]
    """Items older than the rule allows."""
    after_cutoff: tuple[str, ...] | None
    """Items dated after the cutoff; None: none was given."""


def plan_refresh(bench: OwnBenchmark, today: datetime.date, cutoff: datetime.date | None) -> RefreshPlan:
    """What the schedule of bench.yaml and the items' dates say."""
    earlier = frozen_versions(bench)
    due = None
    if earlier:
        due = _months_later(datetime.date.fromisoformat(earlier[-1].frozen_on), MONTHS[bench.spec.refresh.every])
    age = bench.spec.refresh.max_age_days
    dated = [(card.id, card.date) for card in bench.cards if card.date is not None]
    months = Counter(f"{day:%Y-%m}" for _, day in dated)
    return RefreshPlan(
        earlier[-1].frozen_on if earlier else None,
        None if due is None else due.isoformat(),
        due is not None and due <= today,
        len(bench.cards) - len(dated),
        dict(sorted(months.items())),
        tuple(item for item, day in dated if age is not None and (today - day).days > age),
        None if cutoff is None else tuple(item for item, day in dated if day > cutoff),
    )


def write_after_cutoff(bench: OwnBenchmark, out: Path, cutoff: datetime.date) -> int:
    """Write the items dated after a cutoff as a benchmark that plays; returns their number. Raises ConfigError."""
    cards = [card for card in bench.cards if card.date is not None and card.date > cutoff]
    if not cards:
        raise ConfigError(f"{bench.folder}: no card is dated after {cutoff}; date the cards, or take an earlier cutoff")
    if (out / "benchmark.yaml").exists():
        raise ConfigError(f"{out / 'benchmark.yaml'}: already exists; choose another folder")
    write_benchmark(out, bench.spec, f"after-{cutoff}", cards, by_split=True)
    return len(cards)


def _months_later(day: datetime.date, months: int) -> datetime.date:
    year, month = divmod(day.month - 1 + months, 12)
    return datetime.date(day.year + year, month + 1, min(day.day, 28))


class _Reason(msgspec.Struct):
    kind: str
    reason: str


class _Dropped(msgspec.Struct):
    id: str
    reasons: Annotated[list[_Reason], msgspec.Meta(min_length=1)]


class _Rates(msgspec.Struct):
    id: str
    rates: dict[str, float | None]


class _Role(msgspec.Struct):
    checkpoint: str


class _PilotFile(msgspec.Struct):
    """What `freeze` reads of pilot.json."""

    verdict: str
    drop: list[_Dropped]
    items: list[_Rates]
    roles: dict[str, _Role]
    digests: dict[str, str]


def read_pilot(path: Path) -> dict[str, Any]:
    """The content of pilot.json. Raises ConfigError."""
    file = path / "pilot.json" if path.is_dir() else path
    try:
        content = read_limited(file, MAX_CARDS_BYTES, follow=True)
        msgspec.json.decode(content, type=_PilotFile)
        record: dict[str, Any] = msgspec.json.decode(content)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: cannot be read as a pilot ({error}); run agent2 bench pilot") from error
    return record
