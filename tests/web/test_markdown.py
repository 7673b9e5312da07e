"""Markdown of messages: it is rendered, runs nothing, leads nowhere, and loses no letter."""

import html
import re

import pytest

from agent2.web.markdown import rendered


def test_what_agents_write_is_rendered():
    page = rendered("# Plan\n\n**Train** with `lr=5e-4`\nthen submit:\n\n1. read\n2. train\n\n|a|b|\n|-|-|\n|1|2|")
    assert '<p class="heading">Plan</p>' in page and "<h1" not in page
    assert "<strong>Train</strong>" in page and "<code>lr=5e-4</code><br />" in page
    assert '<li value="1">read</li>' in page and "<td>2</td>" in page
    assert '<li value="5">' in rendered("2. a\n5. b"), "a number stays the one that was written"


@pytest.mark.parametrize(
    "hostile",
    [
        "<script>document.title='owned'</script>",
        "<img src=x onerror=alert(1)>",
        "[click](javascript:alert(1)) ![see](http://192.0.2.1/x.png) <http://192.0.2.1>",
        '[a]: http://192.0.2.1 "x"\n\n[a]',
        "`<b>`\n\n    <i>indented</i>\n\n~~~html\n<u>\n~~~",
        '# a {onclick="x"} <svg/onload=x>',
        "&lt;script&gt; &#60;script&#62;",
    ],
)
def test_hostile_texts_become_no_element_that_loads_leads_or_runs(hostile):
    page = str(rendered(hostile) or "")
    allowed = r"/?(?:p|strong|em|code|pre|br|ul|ol|li|blockquote|table|thead|tbody|tr|th|td)(?: /| class=\"[\w-]+\")?"
    assert all(re.fullmatch(allowed, tag) for tag in re.findall(r"<([^>]*)>", page)), page


@pytest.mark.parametrize(
    "text", ["> " * 60 + "hidden in quotes", "- " * 60 + "hidden in lists", "~~~secret word\nx\n~~~", "a\n" * 50]
)
def test_no_letter_is_lost(text):
    page = rendered(text)
    shown = text if page is None else html.unescape(re.sub(r"<[^>]*>", "", page))
    assert set(re.findall(r"\w+", text)) <= set(re.findall(r"\w+", shown))


@pytest.mark.parametrize(
    "text", ["*" * 20_000, "[" * 20_000, "`" * 20_000, "|a|\n|-|\n" * 2_500, "**a " * 5_000, "\ud800"]
)
def test_texts_made_to_take_long_are_rendered_or_shown_as_they_are(text):
    assert rendered(text) is None or len(rendered(text)) < 20 * len(text)
