"""Pictures: what may be one, where they are kept, and how they are made ready for a model.

A picture is the file that somebody brought, named by the SHA-256 of its bytes. It is checked once, when it is read, and
kept in the installation under that name; a card keeps those of its rollouts beside itself. Messages hold the name and
how the picture is prepared, never bytes, so that the same file has the same name everywhere and a protocol can say what
a model was shown.

Prepared means: turned as its EXIF tag says, on white where it is transparent, in 8-bit RGB, its longer side at most
`max_side` (with the aspect ratio kept, or as a square). A PNG or JPEG that needs none of it is sent as it was brought;
any other is sent as PNG.

Promises: the content decides what a file is, not its name; sizes are checked before anything is unpacked; a file that
cannot be unpacked whole is refused when it is read, not when it is sent. Does NOT read moving pictures, vector graphics
or documents, and downloads nothing.
"""

import base64
import hashlib
import io
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent2 import installation
from agent2.errors import ConfigError, quoted
from agent2.files import atomic_write
from agent2.foreign_files import read_limited
from agent2.records import JsonValue, Message, Picture

if TYPE_CHECKING:
    from PIL import Image

MAX_BYTES = 20 << 20
MAX_PIXELS = 40_000_000
MAX_COMPARED = 8_000_000
"""Pixels in which two pictures are compared; a screenshot 1,280 wide has as many at a height of 6,250."""
MAX_SIDE = 30_000
MAX_IN_MESSAGE = 16
MEDIA_TYPES: Mapping[str, str] = {
    "PNG": "image/png",
    "JPEG": "image/jpeg",
    "MPO": "image/jpeg",  # a JPEG with further pictures behind it, as phones write it; the first one counts
    "WEBP": "image/webp",
    "GIF": "image/gif",
    "BMP": "image/bmp",
}
"""Formats that are read, as Pillow names them."""
FORMATS = tuple(name for name in MEDIA_TYPES if name != "MPO")
"""Those that a file is tried as."""
SENT_AS_BROUGHT = frozenset({"PNG", "JPEG"})
FOLDER = "pictures"
"""Of a card: its pictures, each named by its digest."""
PICTURES = "pictures"
"""Payload key of an item's pictures."""
SAME_COLOUR = 8
"""Of 255, by which a colour may differ in two pixels that count as the same."""
DIFFERING = "#c2410c"
_MARK = re.compile(r"<image (\d{1,2})>")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ORIENTATION = 0x0112


@dataclass(frozen=True, slots=True)
class Preparation:
    """How pictures are made ready for a model."""

    max_side: int | None = None
    """Most pixels of the longer side; None: as many as it has."""
    keep_ratio: bool = True
    """False: it becomes a square of `max_side`."""

    def __post_init__(self) -> None:
        if not self.keep_ratio and (self.max_side or 0) ** 2 > MAX_PIXELS:
            raise ConfigError(
                f"square pictures with a side of {self.max_side} have more than {MAX_PIXELS:,} pixels; give less"
            )

    @property
    def name(self) -> str:
        """As records and protocols have it: `1344`, `1344-square`, `as-brought`."""
        if self.max_side is None:
            return "as-brought"
        return f"{self.max_side}{'' if self.keep_ratio else '-square'}"

    @classmethod
    def named(cls, name: str) -> "Preparation":
        """The preparation of a name. Raises ConfigError."""
        match = re.fullmatch(r"(\d{2,5})(-square)?", name)
        if match is None and name != "as-brought":
            raise ConfigError(f"{quoted(name)} is no preparation of pictures; it is as-brought, 1344 or 1344-square")
        return cls() if match is None else cls(int(match[1]), match[2] is None)


def read_picture(content: bytes, where: str, preparation: Preparation | None = None) -> Picture:
    """Check a picture and keep it in the installation. where: for messages.

    Raises ConfigError for what is no picture, is broken, moves, or has too many bytes or pixels.
    """
    if len(content) > MAX_BYTES:
        raise ConfigError(
            f"{where}: the picture has {len(content):,} bytes, and {MAX_BYTES:,} are read; make it smaller"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of large pictures, which are refused here anyway
        image = open_picture(content, where)
    with image:
        width, height = _shown_size(image)
        media_type = MEDIA_TYPES[image.format or ""]
    digest = hashlib.sha256(content).hexdigest()
    path = installation.pictures_dir() / digest
    if not path.exists():
        atomic_write(path, content)
    return Picture(digest, media_type, 0, width, height, (preparation or Preparation()).name)


def read_field(value: object, folder: Path, where: str, preparation: Preparation) -> list[Picture]:
    """The pictures in a field of a row: a path inside a folder, base64, a record of bytes or path, or a list of these.

    Raises ConfigError for anything else, a path that leads out of the folder, and as `read_picture` does.
    """
    if isinstance(value, list | tuple):
        return [picture for part in value for picture in read_field(part, folder, where, preparation)]
    if isinstance(value, Mapping):  # as the library `datasets` stores pictures
        content = value.get("bytes")
        value = content if content is not None else value.get("path")
    if isinstance(value, bytes):
        return [read_picture(value, where, preparation)]
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{where}: a picture is {quoted(value)}; give the path of a file, base64, or its bytes")
    if value.startswith(("http:", "https:")):
        raise ConfigError(f"{where}: {quoted(value[:80])} is an address, and nothing is downloaded; give a file")
    encoded = value.partition(";base64,")[2] if value.startswith("data:") else value
    if value.startswith("data:") or (len(value) > 200 and re.fullmatch(r"[A-Za-z0-9+/\s]+=*\s*", value)):
        if len(encoded) > 2 * MAX_BYTES:
            raise ConfigError(f"{where}: the picture has more than {MAX_BYTES:,} bytes; make it smaller")
        try:
            return [read_picture(base64.b64decode("".join(encoded.split()), validate=True), where, preparation)]
        except ValueError as error:
            raise ConfigError(f"{where}: a picture is no base64 ({error}); write it again") from error
    path = (folder / value).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ConfigError(f"{where}: the picture {quoted(value)} is outside {folder}; move it there")
    try:
        content = read_limited(path, MAX_BYTES, follow=True)
    except OSError as error:
        raise ConfigError(f"{where}: the picture {quoted(value)} cannot be read ({error.strerror}); add it") from error
    return [read_picture(content, f"{where}: {value}", preparation)]


def files_of_field(value: object, folder: Path) -> list[Path]:
    """The files that a field of a row names; none where it holds the pictures themselves, or nothing usable."""
    if isinstance(value, list | tuple):
        return [path for part in value for path in files_of_field(part, folder)]
    if isinstance(value, Mapping):
        return [] if value.get("bytes") is not None else files_of_field(value.get("path"), folder)
    if not isinstance(value, str) or not value.strip():
        return []
    with suppress(OSError):  # base64 is too long for the name of a file
        return [folder / value] if (folder / value).is_file() else []
    return []


def of_payload(payload: Mapping[str, JsonValue]) -> list[Picture]:
    """The pictures of an item, as `to_payload` wrote them."""
    return [Picture(**entry) for entry in payload.get(PICTURES) or ()]


def to_payload(pictures: Sequence[Picture]) -> list[dict[str, JsonValue]]:
    """Pictures as a payload has them; their places follow from the prompt."""
    names = ("digest", "media_type", "at", "width", "height", "prepared")
    return [{name: getattr(picture, name) for name in names} for picture in pictures]


def place_pictures(role: str, text: str, pictures: Sequence[Picture]) -> Message:
    """A message with pictures: each where the text says `<image 1>` (which is taken out), the others before the text.

    A mark that comes again stays in the text. Without pictures it is the message of the text.
    """
    if not pictures:
        return Message(role, text)
    pieces: list[str] = []
    places: dict[int, int] = {}
    n_characters = end = 0
    for mark in _MARK.finditer(text):
        index = int(mark[1]) - 1
        if not 0 <= index < len(pictures) or index in places:
            continue
        pieces.append(text[end : mark.start()])
        n_characters += mark.start() - end
        places[index], end = n_characters, mark.end()
    pieces.append(text[end:])
    placed = [_at(picture, places.get(index, 0)) for index, picture in enumerate(pictures)]
    return Message(role, "".join(pieces), tuple(sorted(placed, key=lambda picture: picture.at)))


def _at(picture: Picture, place: int) -> Picture:
    return Picture(picture.digest, picture.media_type, place, picture.width, picture.height, picture.prepared)


def content_of(picture: Picture, folder: Path | None = None) -> bytes:
    """The bytes as they were brought, from a folder (of a card) or the installation.

    Raises ConfigError if they are not there or are not what the digest says.
    """
    if _DIGEST.fullmatch(picture.digest) is None:  # a card is a file that others may have written
        raise ConfigError(f"{quoted(picture.digest[:80])} is no SHA-256 of a picture")
    for place in (folder, installation.pictures_dir()):
        path = None if place is None else place / picture.digest
        if path is None or not path.is_file():
            continue
        try:
            content = read_limited(path, MAX_BYTES)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read ({error.strerror}); restore it") from error
        if hashlib.sha256(content).hexdigest() != picture.digest:
            raise ConfigError(f"{path}: was changed since it was stored; restore it or delete it")
        return content
    raise ConfigError(f"the picture {picture.digest[:12]} is not on this machine; read its benchmark again")


@lru_cache(maxsize=32)
def prepared(picture: Picture) -> tuple[str, bytes]:
    """Media type and bytes of a picture as a model is shown it. Raises ConfigError as `content_of` does."""
    from PIL import Image

    content = content_of(picture)
    preparation = Preparation.named(picture.prepared)
    with open_picture(content, f"picture {picture.digest[:12]}") as image:
        is_turned = image.getexif().get(_ORIENTATION, 1) not in (0, 1)
        # of the bytes: the figures of a picture on a card are what its writer says
        size = _fitted(*_shown_size(image), preparation)
        is_plain = image.mode in ("RGB", "L") and not is_turned and "transparency" not in image.info
        if is_plain and image.format in SENT_AS_BROUGHT and size == image.size:
            return picture.media_type, content
        image_sent = _on_white(_upright(image, f"picture {picture.digest[:12]}"))
        if image_sent.size != size:
            image_sent = image_sent.resize(size, Image.Resampling.BICUBIC)
    return "image/png", _as_png(image_sent)


def thumbnail(picture: Picture, side: int, folder: Path | None = None) -> str:
    """A small version as a `data:` address, for pages. Raises ConfigError as `content_of` does."""
    return data_address("image/png", smaller(content_of(picture, folder), side, f"picture {picture.digest[:12]}"))


def size_of(content: bytes, where: str) -> tuple[int, int]:
    """Width and height of a picture as it is shown. Raises ConfigError for what is none."""
    with open_picture(content, where) as image:
        return _shown_size(image)


def smaller(content: bytes, side: int, where: str) -> bytes:
    """A picture as a PNG whose longer side has at most so many pixels. Raises ConfigError for what is none."""
    with open_picture(content, where) as image:
        image_sent = _on_white(_upright(image, where))
        image_sent.thumbnail((side, side))
    return _as_png(image_sent)


@dataclass(frozen=True, slots=True)
class PictureDifference:
    """How two pictures differ."""

    picture: bytes
    """A PNG: the new one in pale grey, with what differs from the old one in red."""
    share: float
    """Of the pixels that differ, 0 to 1."""
    scale: float
    """Size at which they were compared, 1 for the whole one: of large pictures, what is finer is averaged out."""


def difference(new: bytes, old: bytes, where: str) -> PictureDifference:
    """What differs between two pictures, compared in at most `MAX_COMPARED` pixels.

    A pixel differs if a colour of it does by more than `SAME_COLOUR` of 255, or if only one of the two has it. Raises
    ConfigError for what is no picture, and for two that together would have more pixels than are read.
    """
    from PIL import Image, ImageChops

    shapes = [size_of(content, where) for content in (new, old)]
    width, height = max(shape[0] for shape in shapes), max(shape[1] for shape in shapes)
    if width * height > MAX_PIXELS:
        raise ConfigError(f"{where}: both together have {width} x {height} pixels, and {MAX_PIXELS:,} are compared")
    scale = min(1.0, math.sqrt(MAX_COMPARED / (width * height)))
    sides = [_scaled(content, scale, where) for content in (new, old)]
    size = max(image.width for image in sides), max(image.height for image in sides)
    sheets = []
    for image in sides:
        sheet = Image.new("RGBA", size)  # where a picture has no pixel it is transparent, which differs from any colour
        sheet.paste(image)
        sheets.append(sheet)
    bands = ImageChops.difference(*sheets).split()
    largest = bands[0]
    for band in bands[1:]:
        largest = ImageChops.lighter(largest, band)
    differing = largest.point(lambda value: 255 * (value > SAME_COLOUR))
    pale = _on_white(sheets[0]).convert("L").point(lambda value: 200 + value * 55 // 255).convert("RGB")
    marked = Image.composite(Image.new("RGB", size, DIFFERING), pale, differing)
    return PictureDifference(_as_png(marked), differing.histogram()[255] / (size[0] * size[1]), scale)


def _scaled(content: bytes, scale: float, where: str) -> "Image.Image":
    """A picture on white, its sides times `scale`."""
    from PIL import Image

    with open_picture(content, where) as image:
        whole = _on_white(_upright(image, where))
    if scale == 1.0:
        return whole
    return whole.resize((max(1, round(whole.width * scale)), max(1, round(whole.height * scale))), Image.Resampling.BOX)


def keep_beside(messages: Sequence[Message], folder: Path) -> None:
    """Copy the pictures of messages into a folder of a card, each once.

    Raises ConfigError as `content_of` does, OSError for a full disk.
    """
    for picture in (picture for message in messages for picture in message.pictures or ()):
        path = folder / picture.digest
        if not path.is_file():
            content = content_of(picture)
            folder.mkdir(exist_ok=True)
            atomic_write(path, content, durable=True)


def copy_beside(card: Path, target: Path) -> None:
    """Copy a card's pictures to another folder, as where its rollouts are scored again. Raises OSError."""
    source = card / FOLDER
    for path in sorted(source.iterdir()) if source.is_dir() else ():
        if _DIGEST.fullmatch(path.name) and not (target / FOLDER / path.name).exists():
            (target / FOLDER).mkdir(parents=True, exist_ok=True)
            atomic_write(target / FOLDER / path.name, read_limited(path, MAX_BYTES))


def problems_beside(card: Path) -> list[str]:
    """Pictures of a card that are not what their names say, one sentence each."""
    source = card / FOLDER
    problems = []
    for path in sorted(source.iterdir()) if source.is_dir() else ():
        try:
            content = read_limited(path, MAX_BYTES)
        except OSError as error:
            problems.append(f"{path}: cannot be read ({error.strerror})")
            continue
        if hashlib.sha256(content).hexdigest() != path.name:
            problems.append(f"{path}: was changed: its content does not match its name")
    return problems


def open_picture(
    content: bytes, where: str, formats: tuple[str, ...] = FORMATS, named: str = ", ".join(FORMATS)
) -> "Image.Image":
    """A picture that was unpacked whole. named: the formats, for messages. Raises ConfigError."""
    from PIL import Image

    try:
        image: Image.Image = Image.open(io.BytesIO(content), formats=list(formats))
    except Exception as error:  # boundary: a hostile header makes the readers raise whatever they run into
        beginning = quoted(content[:16])
        raise ConfigError(
            f"{where}: is no picture that can be read (it begins with {beginning}); give one of {named}"
        ) from error
    width, height = image.size
    if width * height > MAX_PIXELS or max(width, height) > MAX_SIDE or min(width, height) < 1:
        raise ConfigError(
            f"{where}: the picture has {width} x {height} pixels, and {MAX_PIXELS:,} are read; make it smaller"
        )
    try:
        moves = image.format != "MPO" and bool(getattr(image, "is_animated", False))
        if not moves:
            image.load()
            image.getexif().get(_ORIENTATION)
    except Exception as error:  # boundary: as above
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:160]
        raise ConfigError(f"{where}: the picture is broken ({reason}); write it again") from error
    if moves:
        raise ConfigError(f"{where}: the picture moves (it has several frames); give one frame as a picture of its own")
    return image


def _upright(image: "Image.Image", where: str) -> "Image.Image":
    """Turned as its EXIF tag says. Raises ConfigError for tags that cannot be written again."""
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(image)
    except Exception as error:  # boundary: hostile tags make it raise whatever it runs into
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:160]
        raise ConfigError(f"{where}: the picture's EXIF tags are broken ({reason}); write it again") from error


def _is_turned_sideways(image: "Image.Image") -> bool:
    return image.getexif().get(_ORIENTATION, 1) in (5, 6, 7, 8)


def _shown_size(image: "Image.Image") -> tuple[int, int]:
    """Width and height once it is turned as EXIF says."""
    width, height = image.size
    return (height, width) if _is_turned_sideways(image) else (width, height)


def _fitted(width: int, height: int, preparation: Preparation) -> tuple[int, int]:
    side = preparation.max_side
    if side is None:
        return width, height
    if not preparation.keep_ratio:
        return side, side
    longer = max(width, height)
    if longer <= side:
        return width, height
    return max(1, round(width * side / longer)), max(1, round(height * side / longer))


def _on_white(image: "Image.Image") -> "Image.Image":
    """In 8-bit RGB; what is transparent is white."""
    from PIL import Image

    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        colours = image.convert("RGBA")
        white = Image.new("RGBA", colours.size, "white")
        return Image.alpha_composite(white, colours).convert("RGB")
    if image.mode.startswith("I"):  # 16 bits of grey, of which `convert` would cut the upper half off
        return image.point(lambda grey: grey / 256).convert("L").convert("RGB")
    return image.convert("RGB")


def _as_png(image: "Image.Image") -> bytes:
    stream = io.BytesIO()
    image.save(stream, "PNG", compress_level=1)  # without loss at any level, and several times faster at 1
    return stream.getvalue()


def white_square(side: int = 32) -> bytes:
    """A white PNG: what a server is asked about to learn whether it takes pictures."""
    from PIL import Image

    return _as_png(Image.new("RGB", (side, side), "white"))


def data_address(media_type: str, content: bytes) -> str:
    """A picture as content parts carry it."""
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def content_parts(message: Message) -> list[dict[str, Any]]:
    """Text and pictures of a message in their order, as chat-completion servers take them.

    Raises ConfigError as `content_of` does.
    """
    parts: list[dict[str, Any]] = []
    end = 0
    for picture in message.pictures or ():
        if message.content[end : picture.at].strip():
            parts.append({"type": "text", "text": message.content[end : picture.at]})
        parts.append({"type": "image_url", "image_url": {"url": data_address(*prepared(picture))}})
        end = max(end, picture.at)
    if message.content[end:].strip():
        parts.append({"type": "text", "text": message.content[end:]})
    return parts
