"""A store: products by number, and a BM25 index over their words that is kept on disk and memory-mapped.

    <worlds>/<store name>/
    ├── index/           bm25s: term weights (.npy, memory-mapped) and the vocabulary
    ├── products.jsonl   one product a line; only of a catalogue that was read from files
    ├── places.npy       where each line begins, memory-mapped
    └── store.json       number of products, digest of their texts, version of this layout

A generated catalogue computes each product from its number, so that a million of them take no memory. Words are runs
of letters and digits in lower case, without stemming; ranking is BM25 with k1 = 0.9 and b = 0.4, ties by number.

Promises: the same catalogue gives the same ranking on every machine; a folder appears whole or not at all, and of two
builders at once the first to finish wins. Does NOT download.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from agent2.errors import ConfigError, EnvironmentFailed, shown

K1, B = 0.9, 0.4
"""Of BM25; what the published search engine is set to."""
MOST_FOUND = 50
"""Results of one search; as published."""
MAX_QUERY_WORDS = 50
RECENT = 4096
"""Products that are kept in memory."""
LAYOUT = 1
RECORD, LINES, PLACES, INDEX = "store.json", "products.jsonl", "places.npy", "index"
_WORD = re.compile(r"[a-z0-9]+")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Product:
    """What is on sale."""

    id: str
    title: str
    """As shown."""
    name: str
    """What its type is read from; of the published catalogue the title, of a generated one the bare noun."""
    query: str
    """The search word under which it is filed."""
    category: str
    """From the department down, divided by ›."""
    price: float
    """In dollars."""
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Axis (color, size) -> values."""
    attributes: Sequence[str] = ()
    """What annotators say of it; shown nowhere."""
    features: Sequence[str] = ()
    description: str = ""

    @property
    def text(self) -> str:
        """What is searched: title, description, first feature and options, as published, and the other features."""
        options = (f"{axis} {' '.join(values)}" for axis, values in self.options.items())
        return " ".join((self.title, self.description, *self.features, *options))


class Products(Protocol):
    """A catalogue: products by number from 0."""

    def __len__(self) -> int:
        """How many there are."""

    def __getitem__(self, number: int) -> Product:
        """One product."""


def words_of(text: str) -> list[str]:
    """Runs of letters and digits, in lower case."""
    return _WORD.findall(text.lower())


@dataclass(frozen=True, slots=True)
class Store:
    """A catalogue that can be searched."""

    name: str
    size: int
    """Products."""
    product: Callable[[int], Product]
    """By number; the last ones that were asked for are kept."""
    engine: Any
    """A `bm25s.BM25` whose weights are memory-mapped."""

    def search(self, query: str) -> list[int]:
        """Numbers of the products that share a word with the query, best first, at most `MOST_FOUND`."""
        vocabulary = self.engine.vocab_dict
        ids = [vocabulary[word] for word in words_of(query)[:MAX_QUERY_WORDS] if word in vocabulary]
        if not ids:
            return []
        scores_N: NDArray[np.float32] = self.engine.get_scores_from_ids(ids)
        n_wanted = min(MOST_FOUND, int(np.count_nonzero(scores_N)))
        if n_wanted == len(scores_N):
            found = np.arange(n_wanted)
        else:
            least = np.partition(scores_N, len(scores_N) - n_wanted)[len(scores_N) - n_wanted]
            above = np.flatnonzero(scores_N > least)
            found = np.concatenate([above, np.flatnonzero(scores_N == least)[: n_wanted - len(above)]])
        return [int(number) for number in found[np.lexsort((found, -scores_N[found]))]]


def open_store(folder: Path, products: Products | None = None) -> Store:
    """The store in a folder. products: None: those of its own file.

    Raises EnvironmentFailed if there is no whole store in the folder, or its index is of another catalogue.
    """
    import bm25s

    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        found = ProductFile(folder) if products is None else products
        engine = bm25s.BM25.load(folder / INDEX, mmap=True, show_progress=False)
    except (OSError, ValueError, KeyError) as error:
        raise EnvironmentFailed(f"{folder}: holds no store ({type(error).__name__}: {error}); remove it") from error
    if record.get("layout") != LAYOUT or record.get("n_products") != len(found):
        raise EnvironmentFailed(
            f"{folder}: is a store of {record.get('n_products')} products in layout {record.get('layout')}, "
            f"{len(found)} in layout {LAYOUT} are needed; remove the folder, and it is made again"
        )
    return Store(folder.name, len(found), lru_cache(RECENT)(found.__getitem__), engine)


def index_products(name: str, products: Products) -> Store:
    """A store whose index is in memory, for catalogues of thousands. Raises ConfigError for an empty one."""
    engine, _, _ = _indexed(name, (products[number].text for number in range(len(products))))
    return Store(name, len(products), lru_cache(RECENT)(products.__getitem__), engine)


def build_store(folder: Path, products: Products | Iterator[Product], keeps_products: bool = False) -> None:
    """Index a catalogue in a folder that is not there yet.

    products: an iterator is read once, so that a file need not fit into memory. keeps_products: write them too.

    Drafts that a killed process left of this folder are removed first.
    Raises ConfigError for an empty catalogue and for an id that appears twice.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft, lock = _draft_of(folder)
    try:
        each = products if isinstance(products, Iterator) else (products[n] for n in range(len(products)))
        texts = _written(draft, each, folder.name) if keeps_products else (product.text for product in each)
        engine, digest, n_products = _indexed(folder.name, texts)
        engine.save(draft / INDEX, show_progress=False)
        record = {"layout": LAYOUT, "n_products": n_products, "texts": digest}
        (draft / RECORD).write_text(json.dumps(record) + "\n", encoding="utf-8")
        for path in (draft, *draft.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)  # a sandboxed process reads it as another user
        try:
            draft.rename(folder)
        except OSError:
            if not (folder / RECORD).is_file():
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        os.close(lock)


def _draft_of(folder: Path) -> tuple[Path, int]:
    """A new draft beside a folder with its lock, which the kernel takes from a killed process; abandoned ones go."""
    around = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(around, fcntl.LOCK_EX)
        for other in folder.parent.glob(f".{folder.name}-*"):
            held = os.open(other, os.O_RDONLY | os.O_DIRECTORY)
            with contextlib.suppress(BlockingIOError):  # somebody is building
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(other, ignore_errors=True)
            os.close(held)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        lock = os.open(draft, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return draft, lock
    finally:
        os.close(around)


def _indexed(name: str, texts: Iterable[str]) -> tuple[Any, str, int]:
    """A `bm25s.BM25` over some texts, and digest and number of the texts."""
    import bm25s  # only worlds of this kind need it

    vocabulary: dict[str, int] = {}
    digest = hashlib.sha256()
    ids = []
    for text in texts:
        digest.update(text.encode())
        ids.append(np.array([vocabulary.setdefault(word, len(vocabulary)) for word in words_of(text)], dtype=np.int32))
    if not ids:
        raise ConfigError(f"{name}: the catalogue has no products; give it at least 1")
    engine = bm25s.BM25(k1=K1, b=B)
    engine.index((ids, vocabulary), show_progress=False)
    return engine, digest.hexdigest(), len(ids)


def _written(folder: Path, products: Iterable[Product], name: str) -> Iterator[str]:
    """Write the lines of a catalogue and give their texts."""
    places, seen = [0], set[str]()
    with (folder / LINES).open("wb") as file:
        for product in products:
            if product.id in seen:
                raise ConfigError(f"{name}: two products have the id {shown(product.id)}; ids must be distinct")
            seen.add(product.id)
            file.write(msgspec.json.encode(asdict(product)) + b"\n")
            places.append(file.tell())
            yield product.text
    np.save(folder / PLACES, np.array(places, dtype=np.int64))


class ProductFile:
    """The catalogue of a store that keeps its products; lines are read when they are asked for."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError if the files are not there."""
        self._lines = np.memmap(folder / LINES, dtype=np.uint8, mode="r")
        self._places = np.load(folder / PLACES, mmap_mode="r")

    def __len__(self) -> int:
        return len(self._places) - 1

    def __getitem__(self, number: int) -> Product:
        line = self._lines[int(self._places[number]) : int(self._places[number + 1])].tobytes()
        return msgspec.json.decode(line, type=Product)


def require_store_name(name: object) -> str:
    """A name that stays inside the folder of stores. Raises EnvironmentFailed for anything else."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise EnvironmentFailed(f"store {shown(str(name))}: is no name of a store; take the item as it was given")
    return name
