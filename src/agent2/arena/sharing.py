"""Recordings of finished trials that can be shared: `agent2 share TRIAL OUT`.

A recording is enough to read a trial's report and to replay it. Included: configuration and lock, the agent's files,
LLM traffic, events, code revisions, the log, and submissions.json (state, digests and public scores of the
submissions); the command computes the report from these. With `with_cards` also the cards that verification reads,
which hold the hidden items of the exam: whoever has them can train on them. Left out: the grader's database, snapshots
of checkpoints, the workspace, and, without `with_cards`, all cards.

Folders and addresses of this machine are taken out of the configuration, the logs, the cards' headers and the LLM
traffic (`agent2.arena.host_folders`); the lock then names the digest of the configuration as it is shared. What this
installation had marked is marked again as it is shared.

Promises: neither the installation secret nor a key that is set now, in the driver's variable or in one whose name says
so (..._KEY, ..._TOKEN, ...), is in any file (compressed ones included); else nothing is written. Does NOT look for
secrets that the agent itself made up or brought along, and does NOT change code that the agent wrote.
"""

import hashlib
import os
import re
import shutil
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePath

import msgspec
import zstandard

from agent2 import installation
from agent2.arena.evidence import MarkState
from agent2.arena.host_folders import HostFolders
from agent2.arena.spec import GIVES_OUT_HIDDEN, TrialConfig, config_digest
from agent2.arena.submissions import read_submissions_of
from agent2.arena.trial_folder import TrialPaths, read_config, read_events
from agent2.arena.trial_mark import is_own_lock, marked_lock, read_mark, write_mark
from agent2.cards.folder import (
    CARD_JSON,
    OLD_ROLLOUTS,
    card_exists,
    closed_lines,
    header_digests,
    load_card,
    store_card,
)
from agent2.config import load_yaml
from agent2.errors import ConfigError
from agent2.files import write_json
from agent2.foreign_files import MAX_LOG_BYTES, MAX_TEXT_BYTES, open_regular, read_limited, require_plain_files
from agent2.llm.gateway.settings import PriceFile
from agent2.records import Split

SHARED_FILES = ("lock.json", "agent.log", "integrity.json")
SHARED_FOLDERS = ("agent", "llm", "events", "revisions.git")
PRICES = "prices.yaml"
NO_ADDRESS = "https://recorded.invalid"
"""In place of the provider's addresses; nothing is ever sent there."""
_SECRET_NAME = re.compile(r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS)$", re.IGNORECASE)
"""Usual names of variables that hold keys."""
MIN_SECRET_CHARS = 8
"""A shorter key would be found by chance."""


def share_trial(source: Path, out: Path, *, with_cards: bool = False) -> Path:
    """Write the recording of a finished trial to the new folder `out`; returns it.

    with_cards: also the cards that verification reads, hidden items included. Raises ConfigError if the source is not a
    finished trial, `out` exists, a secret was found, or, without `with_cards`, where the agent was shown a hidden item;
    CardError if a card is damaged.
    """
    paths, shared = TrialPaths(source.resolve()), TrialPaths(out.resolve())
    config = read_config(paths.trial_json)
    if read_events(paths.trial_log).last("finished") is None:
        raise ConfigError(
            f"{source}: is not finished; let it finish, or resume it with: {TrialPaths(source).resume_command}"
        )
    assignment = config.task.assignment
    if assignment is not None and assignment.kind in GIVES_OUT_HIDDEN and not with_cards:
        raise ConfigError(
            f"{source}: its agent was shown a hidden request, which its conversation, log and code quote; share it "
            "with people who may know hidden items: --with-cards"
        )
    if shared.root.exists():
        raise ConfigError(f"{out}: already exists; pass a new folder")
    draft = TrialPaths(shared.root.with_name(f".{shared.root.name}.{os.getpid()}"))
    is_marked = read_mark(paths).state is MarkState.OWN
    draft.root.mkdir(parents=True)
    try:
        _copy(paths, draft)
        if with_cards:
            _copy_cards(paths, draft)
        if config.prices is not None and Path(config.prices).is_file():
            load_yaml(Path(config.prices), PriceFile)  # not any file that a trial of others calls so
            (draft.root / PRICES).write_bytes(read_limited(Path(config.prices), MAX_TEXT_BYTES, follow=True))
        write_json(draft.shared_submissions, read_submissions_of(paths))
        write_json(draft.trial_json, _without_host_paths(config).model_dump(mode="json"))
        _replace_folders(draft, HostFolders(paths.root))
        _relock(paths, draft, config)
        _require_clean(draft.root, _secrets(config))
        if is_marked:
            write_mark(draft)
        draft.root.rename(shared.root)
    finally:
        shutil.rmtree(draft.root, ignore_errors=True)
    return shared.root


def _copy(paths: TrialPaths, draft: TrialPaths) -> None:
    for name in SHARED_FILES:
        if (paths.root / name).is_file():
            _copy_file(paths.root / name, draft.root / name)
    for name in SHARED_FOLDERS:
        if (paths.root / name).is_dir():
            require_plain_files(paths.root / name)
            # links stay links: one that the agent made must not bring a file of this host into the recording
            shutil.copytree(paths.root / name, draft.root / name, symlinks=True)


def _copy_file(source: Path, target: Path) -> None:
    """Copy a file. Raises OSError for a link, which in a trial of others may lead to any file of this host."""
    with open_regular(source) as stored, target.open("xb") as copy:
        shutil.copyfileobj(stored, copy)


def _copy_cards(paths: TrialPaths, draft: TrialPaths) -> None:
    """The cards of every score that a trial reports. Raises CardError for one that is not closed, or damaged."""
    private, public = Split.TEST_PRIVATE, Split.TEST_PUBLIC
    pairs = [
        (paths.card(side, split), draft.card(side, split)) for side in ("base", "final") for split in (private, public)
    ]
    pairs.append((paths.noise_card, draft.noise_card))
    pairs += [(paths.submission_card(s.number), draft.submission_card(s.number)) for s in read_submissions_of(paths)]
    for card, copy in pairs:
        if not card_exists(card):
            continue
        copy.mkdir(parents=True)
        names = [CARD_JSON, *load_card(card).parts]
        names += [OLD_ROLLOUTS] if (card / OLD_ROLLOUTS).is_file() else []
        for name in dict.fromkeys(names):
            _copy_file(card / name, copy / name)
            (copy / name).chmod(0o644)


def _relock(paths: TrialPaths, draft: TrialPaths, config: TrialConfig) -> None:
    """Let the lock name the configuration as it is shared, if it named that of the trial, and mark it if it was."""
    try:
        lock, shared_lock = (msgspec.json.decode(read_limited(folder.lock_json)) for folder in (paths, draft))
    except (OSError, msgspec.DecodeError, RecursionError):  # readers report it
        return
    if not isinstance(lock, dict):
        return
    if lock.get("config_digest") == config_digest(config):
        shared_lock["config_digest"] = config_digest(read_config(draft.trial_json))
    write_json(draft.lock_json, marked_lock(shared_lock) if is_own_lock(lock) else shared_lock)


def _replace_folders(draft: TrialPaths, folders: HostFolders) -> None:
    """Replace this machine's folders in every text that is not code.

    Raises ConfigError where a card's rollouts, which cannot be changed, name one.
    """
    files = [draft.root / name for name in ("agent.log", "trial.json", "lock.json") if (draft.root / name).is_file()]
    for folder in (draft.events, draft.llm):
        files += [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    for path in files:
        stored = path.read_bytes()
        if path.suffix == ".zst":
            unpacked = _unpacked(path, stored)
            if (replaced := folders.replaced(unpacked)) != unpacked:
                path.write_bytes(zstandard.compress(replaced))
        elif (replaced := folders.replaced(stored)) != stored:
            path.write_bytes(replaced)
    _replace_in_audit(draft, folders)
    for file in sorted(draft.root.rglob(CARD_JSON)):
        text = file.read_bytes()
        if (replaced := folders.replaced(text)) != text:
            file.write_bytes(replaced)
            store_card(file.parent, replace(load_card(file.parent), header_digest=header_digests(file.parent)[0]))
        for _, lines in closed_lines(file.parent, load_card(file.parent)):
            if any(map(folders.occur_in, lines)):
                raise ConfigError(
                    f"{file.parent.relative_to(draft.root)}: its rollouts name a folder of this machine; share the "
                    "trial without cards"
                )


def _replace_in_audit(draft: TrialPaths, folders: HostFolders) -> None:
    """The log has a digest of the audit, which follows it."""
    if not draft.integrity.is_file():
        return
    stored = draft.integrity.read_bytes()
    if (replaced := folders.replaced(stored)) == stored:
        return
    draft.integrity.write_bytes(replaced)
    before, after = (hashlib.sha256(content).hexdigest().encode() for content in (stored, replaced))
    draft.trial_log.write_bytes(draft.trial_log.read_bytes().replace(before, after))


def _without_host_paths(config: TrialConfig) -> TrialConfig:
    """The configuration without folders and addresses of this machine."""
    driver = config.driver_record
    if driver is not None:
        driver = driver.model_copy(update={"endpoints": dict.fromkeys(driver.endpoints, NO_ADDRESS)})
    replay = config.replay
    if replay is not None:
        replay = replay.model_copy(update={"trial": PurePath(replay.trial).name})
    names = {name: PurePath(getattr(config.task, name)).name for name in ("base_model", "benchmark")}
    task = config.task.model_copy(update=names)
    return config.model_copy(
        update={
            "task": task,
            "agent": PurePath(config.agent).name,
            "base_model": PurePath(config.base_model).name,
            "prices": PRICES if config.prices is not None else None,
            "driver_record": driver,
            "replay": replay,
            "data": PurePath(config.data).name if config.data is not None else None,
        }
    )


def _secrets(config: TrialConfig) -> dict[str, bytes]:
    """Name -> bytes that must not be in a recording."""
    secret = installation.secret()
    secrets = {"the installation secret": secret, "the installation secret in hexadecimal": secret.hex().encode()}
    driver_variable = config.driver_record.api_key_env if config.driver_record is not None else ""
    for name, value in os.environ.items():
        if (name == driver_variable or _SECRET_NAME.search(name)) and len(value) >= MIN_SECRET_CHARS:
            secrets[f"the key in {name}"] = os.fsencode(value)
    return secrets


def _require_clean(folder: Path, secrets: dict[str, bytes]) -> None:
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
        for data in _contents(path):
            for label, secret in secrets.items():
                if secret in data:
                    raise ConfigError(
                        f"{path.relative_to(folder)}: contains {label}; nothing was written: find out how it got "
                        "there, and do not share this trial"
                    )


def _contents(path: Path) -> Iterator[bytes]:
    """The bytes of a file and, of a compressed file, a git object or a card, of its content."""
    stored = path.read_bytes()
    yield stored
    if path.suffix == ".zst":
        yield _unpacked(path, stored)
    elif path.parent.parent.name == "objects":  # a loose object of revisions.git
        try:
            unpacker = zlib.decompressobj()
            yield unpacker.decompress(stored, MAX_LOG_BYTES)
        except zlib.error as error:
            raise _unknown_content(path, error) from error
        if not unpacker.eof:
            raise _unknown_content(path, f"torn, or more than {MAX_LOG_BYTES >> 20} MiB")
    elif path.name == CARD_JSON:
        for _, lines in closed_lines(path.parent, load_card(path.parent)):
            yield from lines


def _unpacked(path: Path, stored: bytes) -> bytes:
    try:
        with zstandard.ZstdDecompressor().stream_reader(stored, read_across_frames=True) as stream:
            unpacked = stream.read(MAX_LOG_BYTES + 1)
    except zstandard.ZstdError as error:
        raise _unknown_content(path, error) from error
    if len(unpacked) > MAX_LOG_BYTES:
        raise _unknown_content(path, f"more than {MAX_LOG_BYTES >> 20} MiB")
    return unpacked


def _unknown_content(path: Path, error: object) -> ConfigError:
    return ConfigError(f"{path}: cannot be unpacked ({error}), so its content is unknown; restore it")
