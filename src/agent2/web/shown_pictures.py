"""Pictures on the page of a rollout: those of its messages, and screenshots of the web page that it delivered.

Screenshots are those that the scorer `page_checks` wrote with the setting `screenshots=CARD/screenshots`. Two of the
same item and width, or one and that of the reference, are compared pixel by pixel.

On the server a picture has an address of its own, so that a page with many comes at once and each as it is scrolled to;
in a file it is part of the page, smaller. Whatever a card's folder contains is made a new PNG before a browser sees it.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent2.errors import ConfigError
from agent2.foreign_files import read_limited
from agent2.pictures import (
    FOLDER,
    MAX_BYTES,
    MAX_IN_MESSAGE,
    MAX_SIDE,
    Preparation,
    content_of,
    data_address,
    difference,
    size_of,
    smaller,
)
from agent2.records import Message, Picture
from agent2.reports.text import clean
from agent2.scorers.page_checks import REFERENCE, WIDTHS, screenshot_name

SCREENSHOTS = "screenshots"
"""Folder of a card."""
SIDE, SIDE_IN_FILE = 1_600, 480
"""Pixels of the longer side of a picture with an address, and of one that is part of a page."""
SIDE_OF_DIFFERENCE = 960
SIDE_IN_LIST = 64
"""Of a picture in a row of a list."""
MAX_KEPT = 24
"""Differences that are kept, some hundred kB each: a page has up to three."""


@dataclass(frozen=True, slots=True)
class ShownPicture:
    """A picture as a page has it."""

    source: str
    """An address; empty: it cannot be shown."""
    description: str
    width: int = 0
    height: int = 0
    """In pixels; 0: not known."""


@dataclass(frozen=True, slots=True)
class PictureShelf:
    """Where the pictures of a card are, and their addresses."""

    folder: Path | None = None
    """Of the card; None: pictures of this installation alone."""
    address: Callable[[str], str] = lambda name: ""
    """The address of a picture by its name; empty: it becomes part of the page."""
    small_address: Callable[[str], str] = lambda name: ""
    """The same of a picture in a list."""

    def of_message(self, message: Message) -> tuple[ShownPicture, ...]:
        """The pictures of a message; of one that cannot be read, why."""
        pictures = []
        for number, picture in enumerate((message.pictures or ())[:MAX_IN_MESSAGE], start=1):
            size = f"{picture.width} x {picture.height} pixels, sent {picture.prepared}, SHA-256 {picture.digest[:12]}"
            caption = clean(f"picture {number} before character {picture.at}: {size}", 300)
            try:
                content = content_of(picture, None if self.folder is None else self.folder / FOLDER)
                pictures.append(self.shown(picture.digest, content, caption))
            except ConfigError as error:
                pictures.append(ShownPicture("", clean(f"{caption}: {error}", 300)))
        return tuple(pictures)

    def in_list(self, messages: Sequence[Message]) -> ShownPicture | None:
        """The first picture of a prompt's last message, small enough for a row; None: it has none that can be shown."""
        picture = next(iter(messages[-1].pictures or ()), None) if messages else None
        if picture is None:
            return None
        width, height = _within(picture.width, picture.height, SIDE_IN_LIST)
        description = "picture of the question"
        if address := self.small_address(picture.digest):
            return ShownPicture(address, description, width, height)
        try:
            content = content_of(picture, None if self.folder is None else self.folder / FOLDER)
            return ShownPicture(
                data_address("image/png", smaller(content, SIDE_IN_LIST, description)), description, width, height
            )
        except ConfigError:  # the page of the rollout says why
            return None

    def named(self, name: str, side: int = SIDE) -> bytes:
        """A picture as a PNG. name: a digest, or the file of a screenshot. Raises ConfigError, OSError."""
        if name.endswith(".png"):
            return smaller(self.screenshot(name), side, "a screenshot")
        picture = Picture(name, "image/png", 0, 0, 0, Preparation().name)
        return smaller(content_of(picture, None if self.folder is None else self.folder / FOLDER), side, "a picture")

    def screenshot(self, name: str) -> bytes:
        """The bytes of a screenshot. Raises OSError if there is none."""
        folder = None if self.folder is None else self.folder / SCREENSHOTS
        if folder is None or folder.is_symlink() or "/" in name:
            raise FileNotFoundError(2, "no such screenshot", name)
        return read_limited(folder / name, MAX_BYTES)

    def shown(self, name: str, content: bytes, caption: str) -> ShownPicture:
        """A picture that was read. Raises ConfigError for what is none."""
        width, height = size_of(content, caption)
        address = self.address(name) or data_address("image/png", smaller(content, SIDE_IN_FILE, caption))
        return ShownPicture(address, caption, width, height)


NO_SHELF = PictureShelf()


def _within(width: int, height: int, side: int) -> tuple[int, int]:
    """The figures of a picture, as a card states them, made smaller to fit a square; 0 where they are none."""
    longer = max(width, height)
    if min(width, height) < 1 or longer > MAX_SIDE:
        return 0, 0
    scale = min(1.0, side / longer)
    return max(1, round(width * scale)), max(1, round(height * scale))


@dataclass(frozen=True, slots=True)
class ScreenshotRow:
    """Screenshots of one item at one width: a page's, another's or the reference's, and how they differ."""

    title: str
    pictures: tuple[ShownPicture, ...]


def screenshot_rows(
    shelf: PictureShelf, item_id: str, attempt: int, beside: tuple[str, PictureShelf] | None = None
) -> tuple[ScreenshotRow, ...]:
    """The screenshots of a page at each width, beside those of another card (its name and shelf).

    Without another card the widest stands beside the reference's. Empty where there are none.
    """
    rows = []
    for width in WIDTHS:
        name = their_name = screenshot_name(item_id, attempt, str(width))
        ours, pictures = _read(shelf, name), []
        if ours is not None:
            pictures.append(_shown(shelf, name, ours, "this page"))
        if beside is not None:
            caption, their_shelf = beside
        else:
            caption, their_shelf = "the reference", shelf
            their_name = screenshot_name(item_id, attempt, REFERENCE)
        has_other = beside is not None or width == WIDTHS[-1]
        if has_other and (theirs := _read(their_shelf, their_name)) is not None:
            pictures.append(_shown(their_shelf, their_name, theirs, caption))
            pictures += [] if ours is None else [_differing(ours, theirs, caption)]
        if pictures:
            rows.append(ScreenshotRow(f"{width} pixels wide", tuple(pictures)))
    return tuple(rows)


def _read(shelf: PictureShelf, name: str) -> bytes | None:
    try:
        return shelf.screenshot(name)
    except OSError:
        return None


class DifferenceCache:
    """The differences that were computed last, by the digests of both pictures; one is computed at a time."""

    def __init__(self, compute: Callable[[bytes, bytes], tuple[str, str]]) -> None:
        self._compute = compute
        self._kept: OrderedDict[tuple[str, str], tuple[str, str]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, new: bytes, old: bytes) -> tuple[str, str]:
        """The address of a small picture of the difference, and in words how large it is. Raises ConfigError."""
        key = hashlib.sha256(new).hexdigest(), hashlib.sha256(old).hexdigest()
        with self._lock:
            if key not in self._kept:
                self._kept[key] = self._compute(new, old)
            self._kept.move_to_end(key)
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
            return self._kept[key]


def _shown(shelf: PictureShelf, name: str, content: bytes, caption: str) -> ShownPicture:
    try:
        return shelf.shown(name, content, caption)
    except ConfigError as error:
        return ShownPicture("", clean(f"{caption}: {error}", 300))


def _differing(new: bytes, old: bytes, beside: str) -> ShownPicture:
    try:
        address, caption = DIFFERENCES.of(new, old)
    except ConfigError as error:
        return ShownPicture("", clean(f"no difference: {error}", 300))
    return ShownPicture(address, f"from {beside}: {caption}")


def _compute_difference(new: bytes, old: bytes) -> tuple[str, str]:
    comparison = difference(new, old, "screenshots")
    small = smaller(comparison.picture, SIDE_OF_DIFFERENCE, "the difference")
    caption = (
        "no pixel differs" if not comparison.share else f"{100 * comparison.share:.2g}% of the pixels differ, in red"
    )
    if comparison.scale < 1:
        caption += (
            f"; compared at {100 * comparison.scale:.0f}% of their width, so that finer differences are averaged out"
        )
    return data_address("image/png", small), caption


DIFFERENCES = DifferenceCache(_compute_difference)
