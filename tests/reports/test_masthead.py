"""Title, text and logo of a published page: what is shown, what is refused, and that it loads nothing."""

import base64
import io
import re
from pathlib import Path

import pytest
from PIL import Image

from agent2.errors import ConfigError
from agent2.reports.masthead import MAX_LOGO_BYTES, logo_address, read_masthead

SVG = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 9 9">{}</svg>'
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
"""A picture of one pixel."""
HONEST = SVG.format(
    "<style>.a { fill: url( '#g' ); transition: fill 1s; } .animation { fill: red }</style>"
    "<defs><linearGradient id='g'/></defs>"
    "<rect class='a' style='stroke: url(#g)' width='9' height='9' transform='translate(1, 2)'/>"
    f"<use xlink:href='#g'/><image href='data:image/png;base64,{DOT}'/><text>see http://club.example</text>"
)


def picture(form: str, **options: object) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (8, 4), "teal").save(data, form, **options)
    return data.getvalue()


def moving_picture() -> str:
    frames, data = [Image.new("L", (2, 2), colour) for colour in (0, 255)], io.BytesIO()
    frames[0].save(data, "GIF", save_all=True, append_images=frames[1:])
    return base64.b64encode(data.getvalue()).decode()


MOVING = moving_picture()


def write(folder: Path, content: str | bytes, name: str = "logo") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(("form", "media_type"), [("PNG", "png"), ("JPEG", "jpeg"), ("WEBP", "webp")])
def test_a_picture_is_taken_by_its_content_not_by_its_name(tmp_path, form, media_type):
    path = write(tmp_path, picture(form), "logo.txt")
    address = logo_address(path, "logo")
    assert address.startswith(f"data:image/{media_type};base64,")
    assert base64.b64decode(address.partition(",")[2]) == path.read_bytes()


@pytest.mark.parametrize("before", ["", '<?xml version="1.0" encoding="UTF-8"?>\n', "<!DOCTYPE svg>\n", "\ufeff"])
def test_a_plain_svg_is_shown_unchanged(tmp_path, before):
    path = write(tmp_path, before + HONEST)
    assert base64.b64decode(logo_address(path, "logo").partition(",")[2]) == path.read_bytes()


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ("<script>1</script>", "contains <script>"),
        ("<rect onload='go()'/>", "contains a script (onload=)"),
        ("<a xlink:href='javascript:go()'><rect/></a>", "refers to javascript:go()"),
        ("<image href='https://evil.example/a.png'/>", "refers to https://evil.example/a.png"),
        ("<use href='other.svg#a'/>", "refers to other.svg#a"),
        ("<image href='data:image/svg+xml;base64,AAAA'/>", "refers to data:image/svg+xml"),
        ("<foreignObject><p xmlns='http://www.w3.org/1999/xhtml'/></foreignObject>", "contains <foreignObject>"),
        ("<set attributeName='href' to='https://evil.example'/>", "contains <set>"),
        ("<animateColor attributeName='fill' to='red'/>", "contains <animateColor>"),
        ("<style>rect { animation: turn 1s infinite }</style>", "moves something (animation:)"),
        ("<style>@-webkit-keyframes turn { to { opacity: 0 } }</style>", "moves something (@-webkit-keyframes)"),
        ("<rect style='-webkit-animation-name: turn'/>", "moves something (-webkit-animation-name:)"),
        ("<rect style='animation/**/: turn'/>", "moves something (animation:)"),
        ("""<style>a{content:"/*"} g{animation:m 1s} b{content:"*/"}</style>""", "moves something (animation:)"),
        ("<g xml:base='https://evil.example/'><use href='#a'/></g>", "takes its references from https://evil.example/"),
        ("<img xmlns='http://www.w3.org/1999/xhtml' srcset='https://evil.example/a 1x'/>", "contains <img>"),
        ("<image href='data:image/png;base64,AAAA'/>", "a picture in the SVG: is no picture that can be read"),
        (f"<image href='data:image/gif;base64,{MOVING}'/>", "a picture in the SVG: the picture moves"),
        ("<style>rect { fill: url(data:image/gif;base64," + MOVING + ") }</style>", "the picture moves"),
        ("<rect style='fill: url(https://evil.example/a)'/>", "may load something (url()"),
        ("<rect fill='url( \"//evil.example/a\")'/>", "may load something"),
        ("<style>@import 'a.css';</style>", "may load something (@import)"),
        ("<style><g/>@import 'a.css';</style>", "contains <g>"),
        ("<style>rect { fill: u\\72l(a.png) }</style>", "may load something"),
        ("<style>rect { background: image-set('a.png' 1x) }</style>", "may load something (image-set()"),
        ("<?xml-stylesheet href='a.css'?>", "instruction <?xml-stylesheet?>"),
    ],
)
def test_an_svg_that_runs_or_loads_something_is_refused_with_the_part(tmp_path, part, why):
    with pytest.raises(ConfigError) as refused:
        logo_address(write(tmp_path, SVG.format(part)), "logo.svg")
    assert why in str(refused.value) and "(line 1); export it as a plain SVG, or as PNG" in str(refused.value)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("<!DOCTYPE svg [<!ENTITY a 'b'>]>" + SVG.format("&a;"), "its DOCTYPE declares entities"),
        ("<html><body/></html>", "is not an SVG: it begins with <html>"),
        ("<svg/>", "is not an SVG"),
        ("<svg", "neither a picture nor a readable SVG"),
        ("a logo", "give one of PNG, JPEG, WEBP or SVG"),
        (picture("GIF"), "give one of PNG, JPEG, WEBP or SVG"),
        (picture("PNG")[:50], "broken"),
        (b"\x89PNG" + bytes(MAX_LOGO_BYTES), "cannot be read"),
    ],
)
def test_what_is_no_logo_is_refused_in_one_line(tmp_path, content, why):
    with pytest.raises(ConfigError) as refused:
        logo_address(write(tmp_path, content), "logo")
    assert why in str(refused.value) and "\n" not in str(refused.value)


def test_the_file_in_the_docs_gives_title_links_and_logo_with_its_text(tmp_path):
    page = Path("docs/leaderboard.md").read_text()
    document = re.findall(r"run: tests/reports/test_masthead.py -->\n```yaml\n(.*?)```", page, re.DOTALL)
    write(tmp_path, HONEST, "logo.svg")
    masthead = read_masthead(write(tmp_path, document[0], "club.yaml"))
    assert masthead.title == "The club's leaderboard" and masthead.logo_alt == "Logo of The club's leaderboard"
    assert '<a href="https://club.example/rules">Rules</a>' in masthead.html
    assert masthead.logo.startswith("data:image/svg+xml;base64,")


def test_the_text_has_no_markup_but_markdown(tmp_path):
    text = "# Rules\n<script>go()</script> [a](javascript:go()) ![b](https://c.example/d.png) **bold**"
    masthead = read_masthead(write(tmp_path, "text: |\n" + re.sub("^", "  ", text, flags=re.MULTILINE), "site.yaml"))
    html = str(masthead.html)
    assert "<h2>Rules</h2>" in html and "<strong>bold</strong>" in html and "&lt;script&gt;" in html
    assert "<img" not in html and 'href="javascript' not in html
    assert masthead.title == masthead.logo == ""


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ("{}", "neither title, text nor logo"),
        ("logos: a.png", "unknown key 'logos'; did you mean 'logo'?"),
        ("logo: none.png", "site.yaml: logo none.png: cannot be read"),
    ],
)
def test_a_wrong_file_is_answered_with_what_to_change(tmp_path, document, why):
    with pytest.raises(ConfigError, match=re.escape(why)):
        read_masthead(write(tmp_path, document, "site.yaml"))
