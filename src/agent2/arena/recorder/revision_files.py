"""Reads code revisions back: the text files of one commit, without data, logs and what libraries write.

Those are left out because they carry times and say nothing about the agent's code; a replay compares what is left.
"""

import hashlib
from collections.abc import Mapping
from itertools import islice

from dulwich.object_store import iter_tree_contents
from dulwich.repo import Repo

from agent2.records import digest_of

DATA_ENDINGS = (".jsonl", ".csv", ".tsv", ".log", ".lock")
CHECKPOINT_FILES = frozenset(
    {
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.json",
        "merges.txt",
        "special_tokens_map.json",
        "added_tokens.json",
        "generation_config.json",
        "trainer_state.json",
        "model.safetensors.index.json",
    }
)
"""Written by libraries, not by the agent."""


MAX_ENTRIES = 500_000
"""Files of all revisions together that one reader lists, each revision counted again."""
MAX_TEXT = 256 * 2**20
"""Bytes of distinct files that one reader decodes."""


class RevisionReader:
    """Reads the revisions of one trial, as far as `MAX_ENTRIES` and `MAX_TEXT` go."""

    def __init__(self, repository: Repo) -> None:
        self._repository = repository
        self._texts: dict[bytes, str] = {}
        self._known: dict[str, dict[str, str] | None] = {}
        self._entries_left = MAX_ENTRIES
        self._n_characters = 0
        self.n_left_out = 0
        """Revisions that were not read because there was too much before."""

    def files(self, revision: str) -> dict[str, str] | None:
        """Path -> text of one revision; None if the commit is not there or is left out."""
        if revision in self._known:
            return self._known[revision]
        if self._entries_left < 0 or self._n_characters > MAX_TEXT:
            self.n_left_out += 1
            return None
        n_texts = len(self._texts)
        found = revision_files(self._repository, revision, self._texts)
        self._entries_left -= len(found or ())
        self._n_characters += sum(len(text) for text in islice(self._texts.values(), n_texts, None))
        self._known[revision] = found
        return found


def revision_files(repository: Repo, revision: str, texts: dict[bytes, str]) -> dict[str, str] | None:
    """Path -> text of one revision, in the order of paths; None if the commit is not there.

    texts: blobs that were decoded already; equal ones are shared.
    """
    try:
        tree = repository[revision.encode()].tree
    except (KeyError, ValueError):
        return None
    files: dict[str, str] = {}
    for entry in iter_tree_contents(repository.object_store, tree):
        path = entry.path.decode(errors="backslashreplace")
        if path.endswith(DATA_ENDINGS) or path.rpartition("/")[2] in CHECKPOINT_FILES:
            continue
        if entry.sha not in texts:
            texts[entry.sha] = repository[entry.sha].data.decode(errors="replace")
        files[path] = texts[entry.sha]
    return files


def file_digests(files: Mapping[str, str]) -> dict[str, str]:
    """Path -> SHA-256 (hex) of its text."""
    return {path: hashlib.sha256(text.encode(errors="replace")).hexdigest() for path, text in sorted(files.items())}


def tree_digest(digests: Mapping[str, str]) -> str:
    """One digest of all paths and texts, from the digests of `file_digests`."""
    return digest_of(sorted(digests.items()))
