"""A benchmark whose items come over a bridge from a set: of files (`lm-eval:FOLDER/TASK.yaml`), or of the package.

The data of a task in a file is in the file's folder. Of a task by name (`inspect:NAME`) it has to be in the package.

Hidden items are those that the package evaluates, halved under the installation secret; train and dev are the package's
own, and without a part for dev a fifth of the evaluated items is dev, by a public hash. The version carries a digest of
everything in the folder. Does NOT play in trials: agents have no bridge, and the folder holds what is hidden.
"""

import hashlib
import hmac
import weakref
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from agent2.benchmarks.bridges import find_bridge
from agent2.benchmarks.bridges.bridged import QUESTION, BridgedScorer
from agent2.benchmarks.bridges.channel import BridgeChannel, BridgeFailed
from agent2.benchmarks.data_files import file_digest
from agent2.benchmarks.home import keyed_id
from agent2.engines.environments import require_environment
from agent2.environments import QuestionEnvironment
from agent2.environments.chat import ChatEnvironment
from agent2.environments.likelihood import LikelihoodEnvironment
from agent2.errors import ConfigError, quoted, unknown_name
from agent2.installation import log_private_items
from agent2.plugins import NAME
from agent2.records import HIDDEN_SPLITS, Environment, Item, JsonValue, SamplingSettings, Scorer, Split, digest_of

DEV_SHARE = 5
"""One in so many of the evaluated items is dev, where the package has no items for it."""
FLOOR_AT_MOST = 0.05
"""What an agent that says nothing may score, unless the package says that on more items nothing is the right thing."""
MAX_FILES = 2_000
PORTION_OF = {Split.TRAIN: "train", Split.DEV: "dev"}


class BridgedSet:
    """The items of one task's files."""

    primary_metric = "score"
    max_turns = 1
    attempts = 1
    takes_images: bool
    """Whether a model is shown pictures."""

    def __init__(self, bridge: str, path: str, where: str = "benchmark", channel: BridgeChannel | None = None) -> None:
        """channel: for tests. Raises ConfigError if the bridge is not installed or the file does not exist."""
        self._bridge = find_bridge(bridge, where)
        ready = require_environment(self._bridge.pinned, where)
        names = [str(known_name) for known_name in ready.facts.get("names", ())]
        inner_name, self._bridge = self._bridge.observed(path)
        self.takes_images = inner_name != path
        if inner_name in names:
            folder, self._task, files_digest = None, path, ""
            self.name, place = f"{bridge}.{path}", self._bridge.distribution
        else:
            file, inner_name = self._file(path, names, where)
            folder, files_digest = file.parent, _folder_digest(file.parent)
            self._task = f"{file.name if file.suffix == '.py' else file.stem}{'@' if inner_name else ''}{inner_name}"
            self.name, place = ".".join(filter(None, (bridge, file.stem, inner_name))), file.parent.name
        self.version = f"{ready.version}+{digest_of([self._bridge.source_digest, files_digest])[:8]}"
        self.description = f"{self._task} of {place}, played as {self._bridge.distribution} {ready.version}"
        self._channel = channel or BridgeChannel(bridge, ready.folder, self._bridge.worker, data=folder)
        self._finalizer = weakref.finalize(self, BridgeChannel.close, self._channel)

    def _file(self, path: str, names: Sequence[str], where: str) -> tuple[Path, str]:
        """The file of a task, and the task in it. Raises ConfigError."""
        bridge = self._bridge
        text, _, inner_name = path.partition("@")
        if names and "/" not in text and not text.endswith(bridge.suffixes):
            raise unknown_name(f"name of bridge {bridge.name}", path, names, where)
        file = Path(text).expanduser().resolve()
        if file.suffix not in bridge.suffixes or not file.is_file():
            raise ConfigError(
                f"{where}: {bridge.name}:{path}: is no task's file; name one as {bridge.name}:{bridge.example}"
            )
        for name in filter(None, (file.stem, inner_name)):
            if NAME.fullmatch(name) is None:
                raise ConfigError(f"{where}: {path}: rename it; a name has only letters, digits, '.', '_' and '-'")
        return file, inner_name

    @cached_property
    def _opened(self) -> dict[str, Any]:
        """What the package says of the task. Raises BridgeRaised and BridgeFailed."""
        opened = self._channel.ask("open_set", name=self._task)
        try:
            return {
                "compares": bool(opened["compares"]),
                "max_tokens": max(1, int(opened["max_tokens"])),
                "is_chat": bool(opened.get("is_chat", False)),
                "max_turns": max(1, int(opened.get("max_turns", 1))),
                "floor": float(opened.get("floor", FLOOR_AT_MOST)),
                "engine": str(opened.get("engine", "")),
                "portions": {str(name): int(n) for name, n in opened["portions"].items()},
            }
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise BridgeFailed(f"bridge {self._channel.name}: gave {quoted(opened)} for {self._task}") from error

    @property
    def sampling(self) -> SamplingSettings:
        """Greedy, as long as the task allows."""
        return SamplingSettings(temperature=0.0, max_tokens=self._opened["max_tokens"])

    @property
    def needs_chat_template(self) -> bool:
        """Whether a model without a chat template cannot be asked."""
        return not self.compares_answers

    @property
    def compares_answers(self) -> bool:
        """Whether a model is asked for likelihoods, which not every checkpoint can give."""
        return bool(self._opened["compares"])

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The first n items of a split. Raises ConfigError without the secret for a hidden one, or if it has fewer."""
        if split is Split.TEST_PRIVATE and secret:
            log_private_items(self.name, n, secret)
        members = self._members(split, secret)
        if len(members) < n:
            raise ConfigError(
                f"{self.name}: {n} items of split {split.value!r} were asked for, there are {len(members)}; ask for "
                "fewer, or play another split"
            )
        return [
            Item(keyed_id(self.name, item.prompt, split, secret), split, item.prompt, item.reference, item.payload)
            for item in members[:n]
        ]

    def count(self, split: Split, secret: bytes | None) -> int:
        """How many items a split has."""
        return len(self._members(split, secret))

    def _members(self, split: Split, secret: bytes | None) -> list[Item]:
        if split in HIDDEN_SPLITS and not secret:
            raise ConfigError(
                f"split {split.value!r} of {self.name} is hidden and needs the installation secret; only the grader "
                "may ask for it"
            )
        has_dev = self._opened["portions"].get("dev", 0) > 0
        if split is Split.TRAIN or (split is Split.DEV and has_dev):
            evaluated = {item.prompt for item in self._portion("test")}
            return [item for item in self._portion(PORTION_OF[split]) if item.prompt not in evaluated]
        is_dev = {
            item.prompt: not has_dev and _hash(b"", item.prompt)[0] % DEV_SHARE == 0 for item in self._portion("test")
        }
        if split is Split.DEV:
            return [item for item in self._portion("test") if is_dev[item.prompt]]
        hidden = [item for item in self._portion("test") if not is_dev[item.prompt]]
        # keyed, so that the order of a file does not say which half of it is private
        hidden.sort(key=lambda item: _hash(secret or b"", item.prompt))
        n_public = (len(hidden) + 1) // 2
        return hidden[:n_public] if split is Split.TEST_PUBLIC else hidden[n_public:]

    def _portion(self, portion: str) -> list[Item]:
        """The items of a part of the data, each prompt once."""
        if portion not in self._portions:
            by_prompt: dict[str, Item] = {}
            n_items = self._opened["portions"].get(portion, 0)
            number = 0
            while number < n_items:
                page = self._channel.ask("items", name=self._task, portion=portion, start=number)
                if not isinstance(page, list) or not page:
                    raise BridgeFailed(f"bridge {self._channel.name}: gave {quoted(page)} as items of {self._task}")
                for record in page:
                    item = self._item(record, portion, number)
                    by_prompt.setdefault(item.prompt, item)
                    number += 1
            self._portions[portion] = list(by_prompt.values())
        return self._portions[portion]

    @cached_property
    def _portions(self) -> dict[str, list[Item]]:
        return {}

    def _item(self, record: Any, portion: str, number: int) -> Item:
        fields = record if isinstance(record, dict) else {}
        prompt, reference, options = fields.get("prompt"), fields.get("reference"), fields.get("options")
        has_options = isinstance(options, list) and len(options) > 1 and all(isinstance(text, str) for text in options)
        if (
            not isinstance(prompt, str)
            or not prompt
            or not isinstance(reference, str | None)
            or (self._opened["compares"] and not has_options)
        ):
            raise BridgeFailed(f"bridge {self._channel.name}: gave {quoted(record)} as an item of {self._task}")
        payload: dict[str, JsonValue] = {QUESTION: {"portion": portion, "number": number}}
        if self._opened["compares"]:
            payload["options"] = options
        if self._opened["is_chat"]:
            payload["messages"] = self._chat(fields.get("messages"))
        return Item("", Split.TRAIN, prompt, reference, payload)

    def _chat(self, messages: object) -> list[dict[str, str]]:
        """The messages of an item. Raises BridgeFailed for anything else."""
        chat = messages if isinstance(messages, list) else []
        texts = [(part.get("role"), part.get("content")) for part in chat if isinstance(part, dict)]
        if not texts or len(texts) < len(chat) or not all(isinstance(text, str) for pair in texts for text in pair):
            raise BridgeFailed(f"bridge {self._channel.name}: gave {quoted(messages)} as messages of {self._task}")
        return [{"role": str(role), "content": str(content)} for role, content in texts]

    def environment(self) -> Environment:
        """A fresh question, chat, or question whose answers are compared by their likelihood."""
        return self._world()

    @property
    def _world(self) -> type[QuestionEnvironment]:
        if self._opened["compares"]:
            return LikelihoodEnvironment
        return ChatEnvironment if self._opened["is_chat"] else QuestionEnvironment

    def scorer(self) -> Scorer:
        """The verdicts of the package."""
        return BridgedScorer(self._channel, self._task, self.version)

    def environment_version(self) -> str:
        """Name and version of the world."""
        return f"{self._world.name}-v{self._world.version}"

    def close(self) -> None:
        """End the package's process."""
        self._channel.close()


def _hash(key: bytes, text: str) -> bytes:
    """Of a prompt, keyed for hidden splits."""
    return hmac.new(key, b"agent2 bridge\0" + text.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()


def _folder_digest(folder: Path) -> str:
    """Of every file in a folder, hidden ones and compiled Python left out. Raises ConfigError for too many."""
    paths = []
    for path in folder.rglob("*"):
        inner = path.relative_to(folder)
        if any(part.startswith(".") or part == "__pycache__" for part in inner.parts) or not path.is_file():
            continue
        paths.append(path)
        if len(paths) > MAX_FILES:
            raise ConfigError(f"{folder}: has more than {MAX_FILES} files; put the task and its data in a folder alone")
    return digest_of([[str(path.relative_to(folder)), file_digest(path)] for path in sorted(paths)])
