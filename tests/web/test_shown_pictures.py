"""Screenshots of web pages on the page of a rollout, and how two of them differ."""

import base64
import io
import re
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from msgspec import structs
from PIL import Image, ImageDraw

from agent2.cards.reader import read_page
from agent2.cards.writer import CardWriter
from agent2.errors import ConfigError
from agent2.pictures import DIFFERING, MAX_COMPARED, MAX_SIDE, difference, read_picture
from agent2.records import Message, Split, StopReason, Turn
from agent2.scorers.page_checks import screenshot_name
from agent2.web.catalog import Catalog
from agent2.web.export import export_site
from agent2.web.server import ReaderGuard, make_view_app
from agent2.web.shown_pictures import MAX_KEPT, DifferenceCache, PictureShelf, screenshot_rows
from agent2.web.site import Site
from card_builders import make_header, make_record
from web_builders import write_card


def png(size=(400, 300), box=None):
    image = Image.new("RGB", size, "#dddddd")
    if box is not None:
        ImageDraw.Draw(image).rectangle(box, fill="#112233")
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


def client_of(root, **options):
    app = make_view_app(Site(Catalog(root), **options), ReaderGuard("127.0.0.1", None))
    return TestClient(app, base_url="http://127.0.0.1")


def write_shots(card, **pictures):
    folder = card / "screenshots"
    folder.mkdir(exist_ok=True)
    for name, content in pictures.items():
        (folder / f"item-000-0-{name.removeprefix('w')}.png").write_bytes(content)


def card_ids(root):
    return {entry.path.name: card_id for card_id, entry in Catalog(root).scan().entries.items()}


def test_figures_that_no_picture_has_break_no_list(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    picture = read_picture(png(), "here")
    claimed = structs.replace(picture, width=10**400)
    shown = PictureShelf().in_list([Message("user", "?", (claimed,))])
    assert (shown.width, shown.height) == (0, 0) and shown.source.startswith("data:image/png")


def test_a_difference_shows_what_differs_and_its_share():
    found = difference(png(box=(0, 0, 99, 149)), png(), "here")
    share, image = found.share, Image.open(io.BytesIO(found.picture)).convert("RGB")
    red = Image.new("RGB", (1, 1), DIFFERING).getpixel((0, 0))
    assert image.size == (400, 300) and share == pytest.approx(100 * 150 / (400 * 300))
    assert image.getpixel((50, 50)) == red and image.getpixel((200, 200)) != red
    assert difference(png(), png(), "here").share == 0.0


def test_a_picture_that_is_longer_differs_where_the_other_one_ends():
    assert difference(png((400, 600)), png((400, 300)), "here").share == pytest.approx(0.5)


def test_colours_that_nobody_tells_apart_are_the_same():
    almost = Image.new("RGB", (400, 300), "#e1e1e1")
    stream = io.BytesIO()
    almost.save(stream, "PNG")
    assert difference(stream.getvalue(), png(), "here").share == 0.0


def test_large_pictures_are_compared_smaller_and_the_share_stays():
    side = (1280, 12_500)  # twice the pixels that are compared
    found = difference(png(side, box=(0, 0, 639, 12_499)), png(side), "here")
    width, height = Image.open(io.BytesIO(found.picture)).size
    assert width * height <= 1.01 * MAX_COMPARED and found.scale == pytest.approx(0.5**0.5)
    assert found.share == pytest.approx(0.5, abs=0.01)
    assert difference(png((1280, 900)), png((1280, 900)), "here").scale == 1.0
    client = screenshots_of(png(side, box=(0, 0, 639, 12_499)), png(side))
    assert "compared at 71% of their width" in client[-1].description
    assert "compared at" not in screenshots_of(png(), png((400, 310)))[-1].description


def screenshots_of(ours, reference):
    with tempfile.TemporaryDirectory() as card:
        folder = Path(card) / "screenshots"
        folder.mkdir()
        (folder / "item-0-1280.png").write_bytes(ours)
        (folder / "item-0-reference.png").write_bytes(reference)
        (row,) = screenshot_rows(PictureShelf(Path(card)), "item", 0)
        return row.pictures


def test_a_difference_is_computed_once_while_it_is_among_the_last():
    computed = []
    cache = DifferenceCache(lambda new, old: computed.append((new, old)) or ("address", f"{new!r} and {old!r}"))
    for _ in range(3):
        assert cache.of(b"a", b"b") == ("address", "b'a' and b'b'")
    assert cache.of(b"b", b"a")[1] == "b'b' and b'a'" and len(computed) == 2
    for number in range(MAX_KEPT):
        cache.of(b"%d" % number, b"b")
    cache.of(b"a", b"b")
    assert len(computed) == 2 + MAX_KEPT + 1


def test_items_that_differ_in_signs_alone_have_screenshots_of_their_own(tmp_path):
    ids = ["a_b", "a/b", "a b", "a~b", "\u00e4", "x" * 100, "x" * 101, "x" * 102]
    names = [screenshot_name(item_id, 0, "390") for item_id in ids]
    assert len(set(names)) == len(ids) and all(re.fullmatch(r"[A-Za-z0-9_.~-]+", name) for name in names)
    assert names[0] == "a_b-0-390.png", "a plain id is in the name as it is"
    shelf = PictureShelf(tmp_path)
    (tmp_path / "screenshots").mkdir()
    for number, name in enumerate(names):
        (tmp_path / "screenshots" / name).write_bytes(png((30 + number, 20)))
    for number, item_id in enumerate(ids):
        (row,) = screenshot_rows(shelf, item_id, 0)
        assert row.pictures[0].width == 30 + number
    assert screenshot_rows(shelf, "a?b", 0) == (), "not those of another item"


def test_an_item_without_a_screenshot_is_not_shown_that_of_one_with_a_plain_name(tmp_path):
    (tmp_path / "screenshots").mkdir()
    (tmp_path / "screenshots" / screenshot_name("a_b", 0, "390")).write_bytes(png((30, 20)))
    assert screenshot_rows(PictureShelf(tmp_path), "a/b", 0) == ()
    (row,) = screenshot_rows(PictureShelf(tmp_path), "a_b", 0)
    assert row.pictures[0].width == 30, "the control: its own item is"


def test_two_long_pictures_across_are_not_compared():
    with pytest.raises(ConfigError, match="are compared"):
        difference(png((MAX_SIDE, 1)), png((1, MAX_SIDE)), "here")


def test_a_page_stands_beside_the_reference_and_another_cards_with_the_difference(tmp_path):
    ours, other = write_card(tmp_path / "one", n=2), write_card(tmp_path / "two", n=2, checkpoint="better")
    write_shots(ours, w390=png((390, 900)), w1280=png((1280, 900)), reference=png((1280, 900), (0, 0, 639, 899)))
    write_shots(other, w390=png((390, 900)), w1280=png((1280, 900), (0, 0, 127, 899)))
    client, ids = client_of(tmp_path), card_ids(tmp_path)
    alone = client.get(f"/rollout/{ids['one']}/0").text
    assert "50% of the pixels differ, in red" in alone and "from the reference" in alone
    both = client.get(f"/rollout/{ids['one']}/0?beside={ids['two']}").text
    assert "from better: 10% of the pixels differ, in red" in both and "no pixel differs" in both
    for address in re.findall(r'src="(/picture/[^"]+)"', both):
        assert Image.open(io.BytesIO(client.get(address).content)).height == 900
    saved = client.get(f"/download/rollout/{ids['one']}?part=0&beside={ids['two']}").text
    assert "/picture/" not in saved and saved.count('src="data:image/png') == 6
    assert "Screenshots" not in client.get(f"/rollout/{ids['one']}/1").text


def test_screenshots_of_hidden_items_are_shown_to_nobody_who_may_not_see_them(tmp_path):
    card = write_card(tmp_path / "one", n=1, split=Split.TEST_PRIVATE)
    write_shots(card, w390=png((390, 900)))
    (card_id,) = card_ids(tmp_path).values()
    address = f"/picture/{card_id}/item-000-0-390.png"
    hidden = client_of(tmp_path)
    assert "Screenshots" not in hidden.get(f"/rollout/{card_id}/0").text
    assert hidden.get(address).status_code == 404
    assert client_of(tmp_path, shows_hidden=True).get(address).status_code == 200


def test_what_a_card_calls_a_screenshot_is_read_as_a_picture_or_not_at_all(tmp_path):
    card, outside = write_card(tmp_path / "one", n=1), tmp_path / "outside.png"
    outside.write_bytes(png())
    write_shots(card, w390=b"<svg onload=alert(1)>", w768=b"")
    (card / "screenshots" / "item-000-0-1280.png").symlink_to(outside)
    client, (card_id,) = client_of(tmp_path), card_ids(tmp_path).values()
    page = client.get(f"/rollout/{card_id}/0").text
    assert "1280 pixels wide" not in page, "a link leads out of the card"
    assert "<img" not in page and page.count("is no picture that can be read") == 2
    for name in ("item-000-0-390.png", "item-000-0-768.png", "item-000-0-1280.png", "nothing.png", "..", "%00.png"):
        assert client.get(f"/picture/{card_id}/{name}").status_code in (404, 422), name


def write_pictured_card(path, split=Split.DEV):
    """A card whose question and whose reply to the first message each have a picture."""
    header = make_header()
    header = replace(header, protocol=replace(header.protocol, split=split, attempts=1, max_turns=2))
    shown, replied = read_picture(png((300, 200)), "here"), read_picture(png((160, 210)), "here")
    with CardWriter(path, header) as writer:
        record = make_record("item-000", 1.0)
        turns = [
            Turn("click", "done", StopReason.END, 10, 5, pictures=(replied,)),
            Turn("click", None, StopReason.END, 10, 5),
        ]
        prompt = [Message("system", "s"), Message("user", "what is shown", (shown,))]
        writer.append(structs.replace(record, rollout=structs.replace(record.rollout, turns=turns, prompt=prompt)))
        writer.close()
    return path


def picture_sizes(page):
    """Of the pictures that are part of a page."""
    contents = [base64.b64decode(text) for text in re.findall(r'<img[^>]*src="data:image/png;base64,([^"]+)"', page)]
    return [Image.open(io.BytesIO(content)).size for content in contents]


def test_a_picture_in_a_reply_is_kept_beside_the_card_and_shown_beside_its_turn(tmp_path):
    card = write_pictured_card(tmp_path / "card")
    assert len(list((card / "pictures").iterdir())) == 2
    (record,) = read_page(card, 0, 1)
    assert record.rollout.turns[0].pictures[0].width == 160 and not record.rollout.turns[1].pictures
    client, ids = client_of(tmp_path), card_ids(tmp_path)
    page = client.get(f"/rollout/{ids['card']}/0").text
    turn = page.partition('id="t1-reply"')[2].partition("</article>")[0]
    (address,) = re.findall(r'src="(/picture/[^"]+)"', turn)
    assert Image.open(io.BytesIO(client.get(address).content)).size == (160, 210)
    assert picture_sizes(client.get(f"/download/rollout/{ids['card']}?part=0").text) == [(300, 200), (160, 210)]


def test_a_list_and_a_search_show_a_small_picture_of_the_question(tmp_path):
    write_pictured_card(tmp_path / "card")
    write_card(tmp_path / "texts", n=2)
    client, ids = client_of(tmp_path), card_ids(tmp_path)
    for address in (f"/card/{ids['card']}", "/search?q=what+is"):
        (picture,) = re.findall(
            r'<img class="thumbnail" src="([^"]+)"[^>]*width="64" height="43"', client.get(address).text
        )
        assert Image.open(io.BytesIO(client.get(picture.replace("&amp;", "&")).content)).size == (64, 43)
    assert "thumbnail" not in client.get(f"/card/{ids['texts']}").text
    assert picture_sizes(client.get(f"/download/card/{ids['card']}").text) == [(64, 43)]


def test_a_list_with_a_picture_that_is_gone_is_still_a_list(tmp_path, monkeypatch):
    card = write_pictured_card(tmp_path / "card")
    for path in (card / "pictures").iterdir():
        path.unlink()
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "elsewhere"))
    client, ids = client_of(tmp_path), card_ids(tmp_path)
    saved = client.get(f"/download/card/{ids['card']}").text
    assert "what is shown" in saved and picture_sizes(saved) == []


def test_no_list_and_no_export_holds_a_picture_of_a_hidden_item(tmp_path):
    write_pictured_card(tmp_path / "runs" / "card", Split.TEST_PUBLIC)
    (digest, *_) = sorted(path.name for path in (tmp_path / "runs" / "card" / "pictures").iterdir())
    client, ids = client_of(tmp_path / "runs"), card_ids(tmp_path / "runs")
    export_site(Site(Catalog(tmp_path / "runs")), tmp_path / "out")
    pages = [path.read_text() for path in (tmp_path / "out").rglob("*.html")]
    pages += [client.get(f"/card/{ids['card']}").text, client.get(f"/rollout/{ids['card']}/0").text]
    pages += [client.get(f"/download/card/{ids['card']}").text, client.get("/search?q=item-000").text]
    assert len(pages) > 5 and not any("<img" in page for page in pages)
    for query in ("", "?size=small"):
        assert client.get(f"/picture/{ids['card']}/{digest}{query}").status_code == 404
    seen = client_of(tmp_path / "runs", shows_hidden=True)
    assert "thumbnail" in seen.get(f"/card/{ids['card']}").text
