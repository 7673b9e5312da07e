"""Code revisions: every small text file of the workspace, one commit for each change.

Blobs and trees are written straight into a bare repository outside the workspace, so a nested .git, an
ignore file or a hook of the agent hides nothing. A revision is taken every few seconds when something
changed, and always when a submission arrives. Changes undone between two looks are not seen.
"""

import threading
import time
from pathlib import Path

from dulwich.objects import Blob, Commit, Tree
from dulwich.repo import Repo

from agent2.arena.eventlog import EventLog
from agent2.arena.recorder.files import walk_files

MAX_FILE_BYTES = 256 * 1024
GIVEN_FILES = frozenset({"data", "ASSIGNMENT.md", "assignment.json"})
"""Put there by the arena: no revision of the agent's."""
BRANCH = b"refs/heads/main"
AUTHOR = b"agent2 recorder <recorder@localhost>"
REGULAR_FILE = 0o100644
FOLDER = 0o040000


class RevisionRecorder:
    """Takes revisions of one workspace; safe to call from several threads."""

    def __init__(self, workspace: Path, repository: Path, log: EventLog):
        self._workspace = workspace
        self._log = log
        self._lock = threading.Lock()
        if repository.exists():
            self._repo = Repo(str(repository))
        else:
            repository.mkdir(parents=True)
            self._repo = Repo.init_bare(str(repository))
        self._repo.refs.set_symbolic_ref(b"HEAD", BRANCH)

    def capture(self, submission: int | None = None) -> str | None:
        """Commit what the workspace holds now.

        submission: the number that the revision is taken for; then an unchanged tree is logged as well.
        Returns the id of the revision that now stands, None while there has been none.
        """
        with self._lock:
            tree = self._write_tree()
            head = self._head()
            changed = tree is not None and (head is None or self._tree_of(head) != tree)
            if changed and tree is not None:
                head = self._commit(tree, head, submission)
            revision = head.decode() if head else None
            if revision and (changed or submission is not None):
                self._log.append("revision", id=revision, submission=submission)
            return revision

    def _write_tree(self) -> bytes | None:
        """Store the text files; the id of their tree, None when there is none."""
        root: dict[str, object] = {}
        for found in walk_files(self._workspace, MAX_FILE_BYTES, skip=GIVEN_FILES):
            if b"\0" in found.data:
                continue
            blob = Blob.from_string(found.data)
            self._repo.object_store.add_object(blob)
            *parents, name = found.path.split("/")
            folder = root
            for parent in parents:
                folder = folder.setdefault(parent, {})  # type: ignore[assignment]
            folder[name] = blob.id
        return self._store_folder(root) if root else None

    def _store_folder(self, folder: dict[str, object]) -> bytes:
        tree = Tree()
        for name, entry in folder.items():
            if isinstance(entry, dict):
                tree.add(name.encode(), FOLDER, self._store_folder(entry))
            else:
                tree.add(name.encode(), REGULAR_FILE, entry)
        self._repo.object_store.add_object(tree)
        return bytes(tree.id)

    def _commit(self, tree: bytes, parent: bytes | None, submission: int | None) -> bytes:
        commit = Commit()
        commit.tree = tree
        commit.parents = [parent] if parent else []
        commit.author = commit.committer = AUTHOR
        commit.author_time = commit.commit_time = int(time.time())
        commit.author_timezone = commit.commit_timezone = 0
        commit.encoding = b"UTF-8"
        commit.message = (f"submission {submission}" if submission is not None else "revision").encode()
        self._repo.object_store.add_object(commit)
        self._repo.refs[BRANCH] = commit.id
        return bytes(commit.id)

    def _head(self) -> bytes | None:
        return bytes(self._repo.refs[BRANCH]) if BRANCH in self._repo.refs else None

    def _tree_of(self, commit: bytes) -> bytes:
        return bytes(self._repo[commit].tree)

    def close(self) -> None:
        """Release the repository."""
        self._repo.close()
