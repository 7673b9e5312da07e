"""Immutable collections of documents, searched by BM25 (bm25s), in memory or memory-mapped from a folder.

A corpus is made from documents, a folder of text files, or a JSONL dump (`id`, `title`, `text` a line). `save` writes
documents and index to a folder, and `Corpus.load` maps them, so that half a million documents take hardly any memory
and many processes share them; `index_documents` keeps such a folder for a user's documents. Other search engines
implement `SearchBackend`: recorded answers (`read_recorded`), or a live service, found by `load_backend` as every
plug-in is (entry points `agent2.search_backends`).

Promises: the same documents and query give the same hits in the same order, in memory and from disk; ties go to the
document that came first. Does NOT stem, does NOT know stop words, and does NOT embed: a query has to share words with
a document to find it.
"""

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from agent2.errors import ConfigError, EnvironmentFailed, quoted
from agent2.files import atomic_write, numbered_lines
from agent2.foreign_files import MAX_LOG_BYTES, digest_limited, open_regular, read_limited
from agent2.installation import worlds_dir
from agent2.plugins import build, find, source_digest
from agent2.records import JsonValue, digest_of
from agent2.texts import parse_json

if TYPE_CHECKING:
    from bm25s import BM25

T = TypeVar("T")
WORD = re.compile(r"\w+")
SNIPPET_CHARS = 160
MAX_QUERY_WORDS = 64
"""Further words of a query are ignored."""
SUFFIXES = (".txt", ".md")
MAX_DOCUMENTS = 25_000_000
MAX_DOCUMENT_BYTES = 64 << 20
"""Of one text file, or line of a dump."""
MAX_BYTES = 16 << 30
"""Of all documents."""
MAX_ID_CHARS = 500
_DOCUMENTS, _OFFSETS, _KEYS, _INDEX = "documents.jsonl", "offsets.npy", "keys.npy", "index"
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_LAYOUT = 1
"""Version of saved indexes; raise it when a change of indexing changes what is found."""
_UNCITABLE = re.compile(r"[;|\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Characters that an action cannot name in a list of pages."""
KIND = "search_backend"
"""Of plug-ins: entry points `agent2.search_backends`."""
SEARCH_BACKENDS: Mapping[str, str] = MappingProxyType(
    {
        "recorded": "agent2.environments.search.corpus:read_recorded",
        "index": "agent2.environments.search.corpus:saved_corpus",
    }
)
"""Packaged back ends: name -> "module:function", called with the settings; installed packages add to it."""


@dataclass(frozen=True, slots=True)
class Document:
    """One page."""

    id: str
    """The name by which it is opened and cited."""
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One search result."""

    document: str
    """Id."""
    title: str
    snippet: str


class SearchBackend(Protocol):
    """Searches and returns documents. Raises EnvironmentFailed when it does not work."""

    version: str
    """Identifies all that its answers depend on; part of the protocol."""

    def search(self, query: str, k: int) -> Sequence[SearchHit]:
        """At most k hits, best first."""

    def open(self, document: str) -> Document | None:
        """The document of an id; None: there is none."""


def tokenize(text: str) -> list[str]:
    """The words of a text as they are indexed: in lower case, at most 40 characters each."""
    return [word[:40] for word in WORD.findall(text.lower())]


def sentences_of(text: str) -> list[str]:
    """The sentences and lines of a text."""
    return [sentence.strip() for sentence in _SENTENCE.split(text) if sentence.strip()]


def snippet_of(document: Document) -> str:
    """The first sentence, shortened."""
    first = next(iter(sentences_of(document.text)), "")
    return first if len(first) <= SNIPPET_CHARS else first[: SNIPPET_CHARS - 1].rstrip() + "…"


class Corpus:
    """Documents and their BM25 index."""

    def __init__(self, documents: Sequence[Document], index: "BM25", positions: "Mapping[str, int] | _IdIndex") -> None:
        """Use `of` or `load`. positions: id -> position."""
        self._documents, self.engine, self._positions = documents, index, positions
        self.version = f"bm25-{len(documents)}"

    def __len__(self) -> int:
        return len(self._documents)

    @staticmethod
    def of(documents: Iterable[Document]) -> "Corpus":
        """A corpus in memory. Raises ConfigError for no documents, for a repeated id, and if there are no words."""
        all_documents = list(documents)
        if not all_documents:
            raise ConfigError("corpus: there are no documents; give at least one")
        positions: dict[str, int] = {}
        for number, document in enumerate(all_documents):
            if document.id in positions:
                raise ConfigError(
                    f"corpus: documents {positions[document.id]} and {number} have the same id {quoted(document.id)}; "
                    "give each its own"
                )
            positions[document.id] = number
        from bm25s import BM25  # here: it loads scipy, which takes a second, and only worlds that are played need it

        index = BM25()
        vocabulary: dict[str, int] = {}
        ids = [
            [vocabulary.setdefault(word, len(vocabulary)) for word in tokenize(f"{document.title} {document.text}")]
            for document in all_documents
        ]
        if not vocabulary:
            raise ConfigError(f"corpus: none of {len(all_documents)} documents contains a word; check what was read")
        index.index((ids, vocabulary), show_progress=False, create_empty_token=True)
        return Corpus(all_documents, index, positions)

    @staticmethod
    def load(folder: Path) -> "Corpus":
        """The corpus that `save` wrote, memory-mapped. Raises ConfigError for another folder."""
        from bm25s import BM25

        try:
            index = BM25.load(folder / _INDEX, mmap=True)
            stored = _StoredDocuments(folder)
            return Corpus(stored, index, _IdIndex(np.load(folder / _KEYS, mmap_mode="r"), stored))
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(f"{folder}: is not a saved corpus ({error}); write one with Corpus.save") from error

    def save(self, folder: Path) -> None:
        """Write documents and index; together about twice the size of the documents."""
        folder.mkdir(parents=True, exist_ok=True)
        offsets = np.zeros(len(self) + 1, np.int64)
        with (folder / _DOCUMENTS).open("wb") as file:
            for number, document in enumerate(self._documents):
                file.write(json.dumps([document.id, document.title, document.text]).encode() + b"\n")
                offsets[number + 1] = file.tell()
        keys = np.array([_key(document.id) for document in self._documents], np.uint64)
        order = np.argsort(keys, kind="stable").astype(np.uint64)
        np.save(folder / _OFFSETS, offsets)
        np.save(folder / _KEYS, np.stack([keys[order.astype(np.int64)], order]))
        self.engine.save(folder / _INDEX, show_progress=False)

    def search(self, query: str, k: int) -> list[SearchHit]:
        """The k documents with the highest BM25 score, none of which is 0."""
        token_ids = self.engine.get_tokens_ids(tokenize(query)[:MAX_QUERY_WORDS])
        if not token_ids:
            return []
        scores = self.engine.get_scores_from_ids(token_ids)
        documents = (self._documents[int(number)] for number in top_k(scores, k))
        return [SearchHit(document.id, document.title, snippet_of(document)) for document in documents]

    def open(self, document: str) -> Document | None:
        """The document of an id; None: there is none."""
        number = self._positions.get(document)
        return None if number is None else self._documents[number]

    def document(self, number: int) -> Document:
        """The document at a position."""
        return self._documents[number]


def top_k(scores: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Positions of the k highest scores above 0, highest first; of equal ones the first, on every machine."""
    # rounded to four decimals, so that the order does not depend on how a machine rounds float32
    k = min(k, len(scores))
    threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
    candidates = np.flatnonzero(scores >= max(threshold - 1e-4, 1e-6))
    order = np.lexsort((candidates, -np.round(scores[candidates], 4)))
    return candidates[order[:k]]


class _StoredDocuments(Sequence[Document]):
    """The documents of a file, read one at a time."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / _DOCUMENTS).open("rb", buffering=0)
        self._offsets = np.load(folder / _OFFSETS, mmap_mode="r")

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, number: int) -> Document:  # type: ignore[override]
        start, end = int(self._offsets[number]), int(self._offsets[number + 1])
        # pread: threads and forked processes share the file without a common position in it
        return Document(*json.loads(os.pread(self._file.fileno(), end - start, start)))


class _IdIndex:
    """Positions of ids in sorted arrays of hashes, which are memory-mapped where a dictionary would be in memory."""

    def __init__(self, keys_2N: NDArray[np.uint64], documents: _StoredDocuments) -> None:
        self._keys_2N, self._documents = keys_2N, documents

    def get(self, document: str) -> int | None:
        """The position of an id."""
        key = np.uint64(_key(document))
        first, after = (int(np.searchsorted(self._keys_2N[0], key, side)) for side in ("left", "right"))
        # several ids may have the same hash
        for index in range(first, after):
            if self._documents[int(self._keys_2N[1, index])].id == document:
                return int(self._keys_2N[1, index])
        return None


def _key(document: str) -> int:
    return int.from_bytes(blake2b(document.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def text_files(folder: Path) -> list[Path]:
    """The text files of a folder and the folders in it, in order; links to folders are not followed.

    Raises ConfigError if there are none, and beyond `MAX_DOCUMENTS`.
    """
    members = (file for file in folder.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    files = sorted(islice(members, MAX_DOCUMENTS + 1))
    if not files:
        raise ConfigError(f"{folder}: contains no {' or '.join(SUFFIXES)} file; put the documents there")
    if len(files) > MAX_DOCUMENTS:
        raise ConfigError(f"{folder}: contains more than {MAX_DOCUMENTS:,} documents, the limit; take a part of them")
    return files


def documents_digest(path: Path) -> str:
    """SHA-256 of a JSONL dump, or of a folder's text files with their names.

    Raises ConfigError for a path that is neither, and for a folder without text files.
    """
    try:
        if not path.is_dir():
            return digest_limited(path, MAX_BYTES, follow=True)
        digests, n_bytes = [], 0
        for file in text_files(path):
            n_bytes += file.stat().st_size
            _require_size(path, n_bytes)
            digests.append([file.relative_to(path).as_posix(), digest_limited(file, MAX_DOCUMENT_BYTES, follow=True)])
        return digest_of(digests)
    except OSError as error:
        raise ConfigError(
            f"{error.filename or path}: cannot be read ({error.strerror}); give a folder of text files or a JSONL file"
        ) from error


def _require_size(path: Path, n_bytes: int) -> None:
    if n_bytes > MAX_BYTES:
        raise ConfigError(
            f"{path}: contains more than {MAX_BYTES >> 30} GiB of documents, the limit; take a part of them"
        )


def index_documents(documents: Path, digest: str) -> Path:
    """The folder in `worlds_dir()` with the saved corpus of documents of this digest, made on first use.

    The documents themselves are not read where the folder exists, as in a sandbox that mounts it.
    Raises ConfigError as `read_documents` and `Corpus.of`, for ids that an action cannot name, and for documents that
    have another digest.
    """
    folder = worlds_dir() / f"documents-{_LAYOUT}-{digest[:16]}"
    if not folder.is_dir():
        if documents_digest(documents) != digest:
            raise ConfigError(f"{documents}: changed while it was in use; start again")
        parsed = list(read_documents(documents))
        for document in parsed:
            if (
                not 0 < len(document.id) <= MAX_ID_CHARS
                or document.id != document.id.strip()
                or _UNCITABLE.search(document.id)
            ):
                raise ConfigError(
                    f"{documents}: document id {quoted(document.id)} cannot be cited; use at most {MAX_ID_CHARS} "
                    "characters, none of them ; | or a control character, and no blank at its ends"
                )
        # beside the target, so that the rename stays in one file system and is atomic
        with tempfile.TemporaryDirectory(prefix=".documents-", dir=folder.parent) as scratch:
            draft = Path(scratch) / folder.name
            try:
                Corpus.of(parsed).save(draft)
            except ConfigError as error:
                raise ConfigError(f"{documents}: {error}") from error
            try:
                draft.rename(folder)
            except OSError:
                if not folder.is_dir():  # else another process has made the same one
                    raise
    return folder


@lru_cache(4)
def open_corpus(folder: Path) -> Corpus:
    """The saved corpus of a folder, shared by all worlds of a process. Raises ConfigError as `Corpus.load`."""
    return Corpus.load(folder)


def read_documents(path: Path) -> Iterator[Document]:
    """The documents of a folder of text files (id: the path inside it) or of a JSONL dump.

    Raises ConfigError for a path that is neither, a folder without text files, an id on two lines, and what cannot be
    read.
    """
    yield from _documents_in_folder(path) if path.is_dir() else _documents_in_dump(path)


def _documents_in_folder(folder: Path) -> Iterator[Document]:
    n_bytes = 0
    for file in text_files(folder):
        try:
            data = read_limited(file, MAX_DOCUMENT_BYTES, follow=True)
            text = data.decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"{file}: cannot be read as UTF-8 text ({reason}); convert or remove it") from error
        n_bytes += len(data)
        _require_size(folder, n_bytes)
        yield Document(file.relative_to(folder).as_posix(), file.stem, _with_plain_ends(text))


def _documents_in_dump(path: Path) -> Iterator[Document]:
    n_bytes = 0
    first: dict[str, int] = {}
    try:
        with open_regular(path, follow=True) as stored:
            # one byte beyond the limit shows that a line is too long, however long it is
            lines = iter(lambda: stored.readline(MAX_DOCUMENT_BYTES + 1), b"")
            for number, line in enumerate(lines, 1):
                n_bytes += len(line)
                _require_size(path, n_bytes)
                if len(line) > MAX_DOCUMENT_BYTES or len(first) >= MAX_DOCUMENTS:
                    limit = f"a line of {MAX_DOCUMENT_BYTES >> 20} MiB or {MAX_DOCUMENTS:,} documents"
                    raise ConfigError(f"{path}:{number}: is beyond {limit}, the limits; take a part of the documents")
                if not line.strip():
                    continue
                document = _read_document(f"{path}:{number}", line.decode("utf-8"))
                if first.setdefault(document.id, number) != number:
                    raise ConfigError(
                        f"{path}:{number}: documents of lines {first[document.id]} and {number} have the same id "
                        f"{quoted(document.id)}; give each its own"
                    )
                yield document
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}: cannot be read ({reason}); give a folder of text files or a JSONL file") from error


def _with_plain_ends(text: str) -> str:
    """The text with its lines ended as Python ends them in a file opened as text."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _read_document(where: str, line: str) -> Document:
    try:
        row = parse_json(line)
        return Document(str(row["id"]), str(row.get("title", row["id"])), str(row["text"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"{where}: is not a document ({type(error).__name__}: {error}); each line is an object with id, title and "
            "text"
        ) from error


class RecordedSearch:
    """Answers that were recorded: queries with their results, and the pages that were opened."""

    def __init__(self, queries: Mapping[str, Sequence[str]], pages: Corpus) -> None:
        """queries: in lower case -> ids of pages; a query that was not recorded is searched for among the pages."""
        self._queries, self._pages = queries, pages
        self.version = f"recorded-{len(queries)}-{pages.version}"

    def search(self, query: str, k: int) -> Sequence[SearchHit]:
        """The recorded results, else those of BM25 over the recorded pages."""
        recorded = self._queries.get(" ".join(tokenize(query)))
        if recorded is None:
            return self._pages.search(query, k)
        pages = (self._pages.open(document) for document in recorded[:k])
        return [SearchHit(page.id, page.title, snippet_of(page)) for page in pages if page is not None]

    def open(self, document: str) -> Document | None:
        """The page as it was recorded."""
        return self._pages.open(document)


class RecordingSearch:
    """Asks another back end and appends its answers to a file of `record_search`, so that they can be replayed.

    Pages among the results are opened at once, since a replay has only pages that were recorded.
    """

    def __init__(self, backend: SearchBackend, path: Path) -> None:
        self._backend, self._path = backend, path
        self.version = backend.version

    def search(self, query: str, k: int) -> Sequence[SearchHit]:
        """The back end's hits, recorded."""
        hits = self._backend.search(query, k)
        self._append(_recorded_lines(self._backend, query, hits))
        return hits

    def open(self, document: str) -> Document | None:
        """The back end's page, recorded."""
        page = self._backend.open(document)
        if page is not None:
            self._append([{"id": page.id, "title": page.title, "text": page.text}])
        return page

    def _append(self, lines: Iterable[JsonValue]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:  # one write, so that concurrent games do not mix lines
            is_torn = file.tell() > 0 and not _ends_with_newline(self._path)  # by a killed recording
            file.write(b"\n" * is_torn + "".join(json.dumps(line) + "\n" for line in lines).encode())


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def record_search(backend: SearchBackend, queries: Iterable[str], k: int, path: Path) -> None:
    """Ask a back end and write its answers for `read_recorded`: a line for each query and each page."""
    lines = [line for query in queries for line in _recorded_lines(backend, query, backend.search(query, k))]
    distinct = {json.dumps(line): None for line in lines}
    atomic_write(path, (text.encode() + b"\n" for text in distinct))


def _recorded_lines(backend: SearchBackend, query: str, hits: Sequence[SearchHit]) -> list[JsonValue]:
    pages = [page for hit in hits if (page := backend.open(hit.document)) is not None]
    page_lines: list[JsonValue] = [{"id": page.id, "title": page.title, "text": page.text} for page in pages]
    return [{"query": query, "results": [hit.document for hit in hits]}, *page_lines]


def read_recorded(path: Path | str) -> RecordedSearch:
    """The back end of a file of `record_search`; of a query or page that was recorded twice the first one counts.

    Raises ConfigError for another kind of file, or one without pages.
    """
    return recorded_search(read_recorded_rows(path), str(path))


def read_recorded_rows(path: Path | str) -> list[JsonValue]:
    """The rows of a file of `record_search`, each once. Raises ConfigError for a file that is not one."""
    path = Path(path)
    try:
        text = _with_plain_ends(read_limited(path, MAX_LOG_BYTES, follow=True).decode("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}: cannot be read ({reason}); record searches with record_search") from error
    rows: dict[str, JsonValue] = {}
    lines = list(numbered_lines(text))
    for index, (number, line) in enumerate(lines):
        try:
            row = _recorded_row(f"{path}:{number}", line)
        except ConfigError:
            if _is_cut_off(line) and (index + 1 < len(lines) or not text.endswith("\n")):
                continue  # the recording was killed while it wrote this line; it will be recorded again
            raise
        rows.setdefault(
            f"query {' '.join(tokenize(str(row['query'])))}" if "query" in row else f"page {row['id']}", row
        )
    return list(rows.values())


def _is_cut_off(line: str) -> bool:
    """Whether a line begins as a row and breaks off."""
    if not line.startswith("{"):
        return False
    try:
        json.loads(line)
    except json.JSONDecodeError as error:
        return error.pos >= len(line.rstrip()) - 1 or "Unterminated" in error.msg
    except (ValueError, RecursionError):  # a number of thousands of digits, lists in lists without end
        return False
    return False


def recorded_search(rows: Sequence[JsonValue], where: str) -> RecordedSearch:
    """The back end of such rows. where: for messages. Raises ConfigError if no page is among them."""
    queries = {" ".join(tokenize(str(row["query"]))): list(row["results"]) for row in rows if "query" in row}
    pages = [Document(row["id"], row["title"], row["text"]) for row in rows if "query" not in row]
    try:
        return RecordedSearch(queries, Corpus.of(pages))
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _recorded_row(where: str, line: str) -> dict[str, JsonValue]:
    try:
        row = json.loads(line)
        if isinstance(row, dict) and "query" in row:
            return {"query": str(row["query"]), "results": [str(document) for document in row["results"]]}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"{where}: is not a recorded search ({error}); it needs query and results") from error
    page = _read_document(where, line)
    return {"id": page.id, "title": page.title, "text": page.text}


def saved_corpus(path: Path | str) -> Corpus:
    """The corpus of a folder that `Corpus.save` wrote. Raises ConfigError for another folder."""
    return Corpus.load(Path(path))


def load_backend(name: str, settings: Mapping[str, JsonValue] | None = None, where: str = KIND) -> SearchBackend:
    """A back end by any name that `agent2.plugins` knows; exceptions of a plug-in become EnvironmentFailed.

    where: file and key, for messages. Raises ConfigError for an unknown name or setting, and for an object that is not
    a `SearchBackend`.
    """
    plugin = find(KIND, name, SEARCH_BACKENDS, where)
    backend = build(plugin, settings)
    missing = [method for method in ("search", "open") if not callable(getattr(backend, method, None))]
    if missing or not isinstance(getattr(backend, "version", None), str):
        lacks = " and ".join([*missing, *([] if isinstance(getattr(backend, "version", None), str) else ["version"])])
        raise ConfigError(f"{where}: {plugin} has no {lacks}; see agent2.environments.search.corpus.SearchBackend")
    return (
        cast(SearchBackend, backend)
        if plugin.is_packaged
        else _PluginBackend(backend, str(plugin), source_digest(plugin))
    )


class _PluginBackend:
    """A user's back end; its failures are faults of the environment."""

    def __init__(self, backend: SearchBackend, origin: str, digest: str) -> None:
        self._backend, self._positions = backend, origin
        self.version = f"{backend.version}+{digest[:8]}"

    def search(self, query: str, k: int) -> Sequence[SearchHit]:
        """Its hits. Raises EnvironmentFailed for any exception, and for anything but hits."""
        hits = self._call_plugin(lambda: list(self._backend.search(query, k)))
        if not all(isinstance(hit, SearchHit) for hit in hits):
            raise EnvironmentFailed(f"{self._positions}: search has to return a list of SearchHit")
        return hits[:k]

    def open(self, document: str) -> Document | None:
        """Its page. Raises EnvironmentFailed for any exception, and for anything but a Document."""
        page = self._call_plugin(lambda: self._backend.open(document))
        if page is not None and not isinstance(page, Document):
            raise EnvironmentFailed(f"{self._positions}: open has to return a Document or None")
        return page

    def _call_plugin(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except EnvironmentFailed:
            raise
        except Exception as error:  # boundary: third-party code can raise anything
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            raise EnvironmentFailed(f"{self._positions}: {reason}") from error
