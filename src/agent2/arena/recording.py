"""A finished trial as a recording that may be given to others: enough to read its report and to replay it.

    agent2 share TRIAL OUT

What goes: configuration and lock, the agent's files, LLM traffic, events, code revisions, the log, and
submissions.json (state, digests and public scores of what was handed in); the command computes the report from these.
What stays: the grader's file, all cards (they hold hidden items), snapshots of checkpoints, the workspace, and host
paths in the configuration.

Promises: neither the installation secret nor a key that is set now, in the driver's variable or in one whose name says
so (..._KEY, ..._TOKEN, ...), is in any file (compressed ones included); else nothing is written. Does NOT look for
secrets that the agent itself made up or brought along, and leaves what a trial without a sandbox says about this
machine's folders.
"""

import os
import re
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePath

import msgspec
import zstandard

from agent2 import installation
from agent2.arena.assignment import TrialConfig
from agent2.arena.config_file import read_config, write_json
from agent2.arena.eventlog import read_events
from agent2.arena.evidence import SubmissionRecord
from agent2.arena.grader.store import read_submissions
from agent2.arena.paths import TrialPaths
from agent2.errors import ConfigError

SHARED_FILES = ("lock.json", "agent.log", "integrity.json")
SHARED_FOLDERS = ("agent", "llm", "events", "revisions.git")
PRICES = "prices.yaml"
NO_ADDRESS = "https://recorded.invalid"
"""In place of the provider's addresses; nothing is asked there."""
_SECRET_NAME = re.compile(r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS)$", re.IGNORECASE)
"""Variables that hold keys, by what everybody calls them."""
MIN_SECRET_CHARS = 8
"""A shorter key would be found by chance."""


def share_trial(source: Path, out: Path) -> Path:
    """Write the recording of a finished trial to the new folder `out`; returns it.

    Raises ConfigError if the source is not a finished trial, `out` exists, or a secret was found.
    """
    paths, shared = TrialPaths(source.resolve()), TrialPaths(out.resolve())
    config = read_config(paths.trial_json)
    if read_events(paths.trial_log).last("finished") is None:
        raise ConfigError(
            f"{source}: is not finished; let it finish, or resume it with: {TrialPaths(source).resume_command}"
        )
    if shared.root.exists():
        raise ConfigError(f"{out}: already exists; pass a new folder")
    draft = TrialPaths(shared.root.with_name(f".{shared.root.name}.{os.getpid()}"))
    draft.root.mkdir(parents=True)
    try:
        _copy(paths, draft)
        if config.prices is not None and Path(config.prices).is_file():
            shutil.copyfile(config.prices, draft.root / PRICES)
        write_json(draft.shared_submissions, read_submissions_of(paths))
        write_json(draft.trial_json, _without_places(config).model_dump(mode="json"))
        _require_clean(draft.root, _secrets(config))
        draft.root.rename(shared.root)
    finally:
        shutil.rmtree(draft.root, ignore_errors=True)
    return shared.root


def read_submissions_of(paths: TrialPaths) -> tuple[SubmissionRecord, ...]:
    """What was handed in: from the grader's file, or from what a shared recording has in its place.

    Raises ConfigError if the latter is damaged.
    """
    if paths.grader_db.exists():
        return tuple(read_submissions(paths.grader_db))
    if not paths.shared_submissions.exists():
        return ()
    try:
        return msgspec.json.decode(paths.shared_submissions.read_bytes(), type=tuple[SubmissionRecord, ...])
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{paths.shared_submissions}: {error}; it is machine-written, restore it") from error


def _copy(paths: TrialPaths, draft: TrialPaths) -> None:
    for name in SHARED_FILES:
        if (paths.root / name).is_file():
            shutil.copyfile(paths.root / name, draft.root / name)
    for name in SHARED_FOLDERS:
        if (paths.root / name).is_dir():
            shutil.copytree(paths.root / name, draft.root / name, symlinks=True)


def _without_places(config: TrialConfig) -> TrialConfig:
    """The configuration without folders and addresses of this machine."""
    driver = config.driver_record
    if driver is not None:
        driver = driver.model_copy(update={"endpoints": dict.fromkeys(driver.endpoints, NO_ADDRESS)})
    replay = config.replay
    if replay is not None:
        replay = replay.model_copy(update={"trial": PurePath(replay.trial).name})
    task = config.task.model_copy(update={"base_model": PurePath(config.task.base_model).name})
    return config.model_copy(
        update={
            "task": task,
            "agent": PurePath(config.agent).name,
            "base_model": PurePath(config.base_model).name,
            "prices": PRICES if config.prices is not None else None,
            "driver_record": driver,
            "replay": replay,
        }
    )


def _secrets(config: TrialConfig) -> dict[str, bytes]:
    """Name -> what must not be in a recording."""
    secret = installation.secret()
    found = {"the installation secret": secret, "the installation secret in hexadecimal": secret.hex().encode()}
    own = config.driver_record.api_key_env if config.driver_record is not None else ""
    for name, value in os.environ.items():
        if (name == own or _SECRET_NAME.search(name)) and len(value) >= MIN_SECRET_CHARS:
            found[f"the key in {name}"] = os.fsencode(value)
    return found


def _require_clean(folder: Path, secrets: dict[str, bytes]) -> None:
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
        for data in _readings(path):
            for what, secret in secrets.items():
                if secret in data:
                    raise ConfigError(
                        f"{path.relative_to(folder)}: contains {what}; nothing was written: find out how it got there, "
                        "and do not share this trial"
                    )


def _readings(path: Path) -> Iterator[bytes]:
    """The bytes of a file, and what they unpack to."""
    data = path.read_bytes()
    yield data
    try:
        if path.suffix == ".zst":
            with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as stream:
                yield stream.read()
        elif path.parent.parent.name == "objects":
            yield zlib.decompress(data)
    except (zstandard.ZstdError, zlib.error) as error:
        raise ConfigError(
            f"{path}: cannot be unpacked ({error}), so nobody can say what it holds; restore it"
        ) from error
