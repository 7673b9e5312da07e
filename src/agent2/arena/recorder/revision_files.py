"""Reads code revisions back: the text files of one commit, without data, logs and what libraries write.

Those are left out because they carry times and say nothing about the agent's code; a replay compares what is left.
"""

import hashlib
from collections.abc import Mapping

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
