"""What may be a picture, what is refused, how one is made ready for a model, and that texts are as they were."""

import base64
import hashlib
import io
import struct
import zlib

import msgspec
import pytest
from PIL import Image

from agent2 import installation
from agent2.errors import ConfigError
from agent2.pictures import (
    MAX_BYTES,
    Preparation,
    content_of,
    content_parts,
    keep_beside,
    of_payload,
    place_pictures,
    prepared,
    read_field,
    read_picture,
    thumbnail,
    to_payload,
)
from agent2.records import Message, Picture, canonical_json, digest_of

AS_BROUGHT = Preparation()


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    prepared.cache_clear()


def encoded(image, kind="PNG", **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def plain(width=8, height=4, color="red"):
    return Image.new("RGB", (width, height), color)


def sent(picture):
    media_type, content = prepared(picture)
    return media_type, Image.open(io.BytesIO(content)).convert("RGB")


def png_header(width, height):
    """A PNG that states a size and holds nothing of it."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"\0")), (b"IEND", b"")]
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


def test_a_text_is_stored_and_digested_as_before_there_were_pictures():
    message = Message("user", "2+2?")
    stored = b'{"role":"user","content":"2+2?"}'
    assert msgspec.json.encode(message) == canonical_json(message) == stored
    assert digest_of([message]) == hashlib.sha256(b"[" + stored + b"]").hexdigest()
    assert msgspec.json.decode(b'{"role":"user","content":"2+2?"}', type=Message) == message
    assert place_pictures("user", "see <image 1>", []) == Message("user", "see <image 1>")


def test_a_picture_is_named_by_its_bytes_and_kept_once():
    content = encoded(plain())
    picture = read_picture(content, "here", Preparation(1344))
    assert (picture.width, picture.height, picture.media_type, picture.prepared) == (8, 4, "image/png", "1344")
    assert content_of(picture) == content
    assert read_picture(content, "there").digest == picture.digest
    assert [path.name for path in installation.pictures_dir().iterdir()] == [picture.digest]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no picture"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "is no picture"),
        (b"%PDF-1.7 ...", "is no picture"),
        (encoded(plain(), "TIFF"), "is no picture"),
        (encoded(plain(64, 64))[:90], "is broken|is no picture"),
        (png_header(20_000, 5_000), "has 20000 x 5000 pixels"),
        (png_header(8, 8), "is broken"),
        (encoded(plain(), exif=b"garbage!"), "is broken"),
        (encoded(plain(), "GIF", save_all=True, append_images=[plain(color="blue")]), "it moves|moves"),
        (encoded(plain(), "PNG", save_all=True, append_images=[plain(color="blue")]), "moves"),
        (b"\x89PNG" + b"\0" * MAX_BYTES, "bytes"),
    ],
    ids=["empty", "svg", "pdf", "tiff", "cut", "hundred-megapixel", "hollow", "exif", "gif", "apng", "too-large"],
)
def test_what_is_no_still_picture_of_a_known_format_is_refused_with_its_place(content, message):
    with pytest.raises(ConfigError, match=message) as raised:
        read_picture(content, "test.jsonl:3: field 'image'")
    assert str(raised.value).startswith("test.jsonl:3: field 'image'")
    assert not list(installation.pictures_dir().iterdir())


def test_the_content_decides_the_format_not_the_name(tmp_path):
    (tmp_path / "chart.png").write_bytes(encoded(plain(), "JPEG"))
    (picture,) = read_field("chart.png", tmp_path, "row", AS_BROUGHT)
    assert picture.media_type == "image/jpeg"


def test_a_plain_png_or_jpeg_is_sent_as_it_was_brought_and_others_as_png():
    for kind in ("PNG", "JPEG"):
        content = encoded(plain(), kind)
        assert prepared(read_picture(content, "here")) == (f"image/{kind.lower()}", content)
    for kind in ("WEBP", "GIF", "BMP"):
        assert sent(read_picture(encoded(plain(), kind), "here"))[0] == "image/png"


def test_a_picture_is_turned_as_its_exif_tag_says():
    exif = Image.Exif()
    exif[0x0112] = 6
    image = plain(8, 4)
    image.paste("blue", (0, 0, 4, 4))
    picture = read_picture(encoded(image, "PNG", exif=exif), "here")
    assert (picture.width, picture.height) == (4, 8)
    _, turned = sent(picture)
    assert turned.size == (4, 8) and turned.getpixel((0, 0)) == (0, 0, 255) and turned.getpixel((0, 7)) == (255, 0, 0)


def test_what_is_transparent_is_white():
    image = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    assert sent(read_picture(encoded(image), "here"))[1].getpixel((0, 0)) == (255, 255, 255)
    palette = image.convert("P")
    palette.info["transparency"] = palette.getpixel((0, 0))
    picture = read_picture(encoded(palette, transparency=palette.getpixel((0, 0))), "here")
    assert sent(picture)[1].getpixel((0, 0)) == (255, 255, 255)


def test_sixteen_bits_of_grey_keep_their_upper_half():
    image = Image.new("I;16", (4, 4), 0x8000)
    grey = sent(read_picture(encoded(image), "here"))[1].getpixel((0, 0))
    assert grey == (128, 128, 128)


@pytest.mark.parametrize(
    ("preparation", "size"),
    [
        (Preparation(), (80, 40)),
        (Preparation(100), (80, 40)),
        (Preparation(20), (20, 10)),
        (Preparation(20, False), (20, 20)),
    ],
)
def test_the_longer_side_is_limited_and_the_ratio_is_kept_unless_a_square_is_asked_for(preparation, size):
    picture = read_picture(encoded(plain(80, 40)), "here", preparation)
    assert sent(picture)[1].size == size
    assert Preparation.named(preparation.name) == preparation


def test_an_unknown_preparation_is_refused():
    with pytest.raises(ConfigError, match="is no preparation"):
        Preparation.named("1344; rm")


def test_a_field_holds_a_path_base64_bytes_a_record_or_a_list(tmp_path):
    content = encoded(Image.effect_noise((32, 32), 50).convert("RGB"))
    (tmp_path / "a.png").write_bytes(content)
    text = base64.b64encode(content).decode()
    forms = [
        "a.png",
        text,
        f"data:image/png;base64,{text}",
        content,
        {"bytes": content, "path": "x"},
        {"path": "a.png"},
    ]
    pictures = [read_field(form, tmp_path, "row", AS_BROUGHT) for form in forms]
    assert all(picture == pictures[0] and len(picture) == 1 for picture in pictures)
    assert len(read_field(["a.png", "a.png"], tmp_path, "row", AS_BROUGHT)) == 2


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("../secret.png", "is outside"),
        ("link.png", "is outside"),
        ("missing.png", "cannot be read"),
        ("https://host/a.png", "nothing is downloaded"),
        ("data:image/png;base64,@@@", "no base64"),
        ("data:image/png;base64,\u00e9\u00e9\u00e9\u00e9", "no base64"),
        (7, "give the path of a file"),
        ("folder", "cannot be read"),
    ],
)
def test_a_field_that_leads_elsewhere_is_refused(tmp_path, value, message):
    inside = tmp_path / "inside"
    (inside / "folder").mkdir(parents=True)
    (tmp_path / "secret.png").write_bytes(encoded(plain()))
    (inside / "link.png").symlink_to(tmp_path / "secret.png")
    with pytest.raises(ConfigError, match=message):
        read_field(value, inside, "row", AS_BROUGHT)


def test_pictures_stand_where_the_text_marks_them_and_else_before_it():
    first, second = (read_picture(encoded(plain(color=color)), "here") for color in ("red", "blue"))
    message = place_pictures("user", "Is <image 2> like <image 1>? <image 1> <image 9>", [first, second])
    assert message.text == "Is  like ? <image 1> <image 9>"
    assert [(picture.digest, picture.at) for picture in message.pictures] == [(second.digest, 3), (first.digest, 9)]
    unmarked = place_pictures("user", "Which is red?", [first, second])
    assert [picture.at for picture in unmarked.pictures] == [0, 0] and unmarked.text == "Which is red?"
    kinds = [part.get("text", part["type"]) for part in content_parts(message)]
    assert kinds == ["Is ", "image_url", " like ", "image_url", "? <image 1> <image 9>"]
    assert of_payload({"pictures": to_payload([first, second])}) == [first, second]
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message


def test_a_changed_or_missing_picture_is_never_given_out():
    picture = read_picture(encoded(plain()), "here")
    path = installation.pictures_dir() / picture.digest
    path.write_bytes(encoded(plain(color="blue")))
    with pytest.raises(ConfigError, match="was changed"):
        content_of(picture)
    path.unlink()
    with pytest.raises(ConfigError, match="is not on this machine"):
        content_of(picture)
    with pytest.raises(ConfigError, match="is no SHA-256"):
        content_of(Picture("../../etc/passwd", "image/png", 0, 1, 1, "as-brought"))


def test_a_card_keeps_each_picture_once_and_pages_a_small_version(tmp_path):
    picture = read_picture(encoded(plain(800, 400)), "here")
    folder = tmp_path / "pictures"
    messages = [Message("system", "Look."), Message("user", "What?", (picture, picture))]
    keep_beside(messages, folder)
    assert [path.name for path in folder.iterdir()] == [picture.digest]
    (installation.pictures_dir() / picture.digest).unlink()
    address = thumbnail(picture, 100, folder)
    small = Image.open(io.BytesIO(base64.b64decode(address.removeprefix("data:image/png;base64,"))))
    assert small.size == (100, 50)


def test_a_size_that_a_card_claims_is_not_believed():
    picture = read_picture(encoded(Image.new("RGB", (8, 6))), "a test")
    claimed = Picture(picture.digest, picture.media_type, 0, 30_000, 30_000, "as-brought")
    assert prepared(claimed) == prepared(picture)


@pytest.mark.parametrize("name", ["6325-square", "99999-square"])
def test_a_square_of_more_pixels_than_are_read_is_refused(name):
    with pytest.raises(ConfigError, match="square pictures with a side of"):
        Preparation.named(name)
