"""What the checks of a page's source take for a fault, and what they let pass."""

import pytest

from agent2.scorers.page_code import CHECKS, code_faults

HEAD = '<meta name="viewport" content="width=device-width, initial-scale=1"><title>Page</title>'
GOOD = f"""<!DOCTYPE html><html lang="en"><head>{HEAD}<style>p {{ color: red; }}</style></head>
<body><main><h1>Don't > panic</h1><p>One<p>Two<br><label for="a">Name</label><input id="a">
<label>Age <input type="number" name="age"></label><input type="hidden"><svg xmlns="http://www.w3.org/2000/svg"></svg>
<a href="#top">Up</a></main>
<script>document.querySelector("main").textContent += "</b>"; // see //x</script></body></html>"""


def faults_of(body="", script="", style="", page=GOOD):
    return code_faults(
        {"index.html": page.replace("</main>", f"{body}</main>"), "script.js": script, "style.css": style}
    )


def test_a_careful_page_has_no_faults():
    assert faults_of() == {}


def test_a_page_without_anything_lacks_what_every_page_has():
    assert set(code_faults({"index.html": "Hello"})) == {"doctype", "language", "title", "viewport"}


@pytest.mark.parametrize(
    ("fault", "parts"),
    [
        ("labels", {"body": '<input id="b">'}),
        ("labels", {"body": '<select id="b"></select><label for="c">C</label>'}),
        ("unique ids", {"body": '<p id="a">'}),
        ("closed tags", {"body": "<div>"}),
        ("closed tags", {"body": "</div>"}),
        ("closed tags", {"body": "<em><b></em></b>"}),
        ("inline handlers", {"body": '<p ONCLICK="go()">'}),
        ("inline handlers", {"body": '<a href=" javascript:go()">x</a>'}),
        ("inline styles", {"body": '<p style="color: red">'}),
        ("external references", {"body": '<img alt="" src="//cdn.invalid/a.png">'}),
        ("external references", {"body": '<img alt="" src="file:///etc/passwd">'}),
        ("external references", {"script": "fetch('https://cdn.invalid/a')"}),
        ("external references", {"style": "@import url(https://cdn.invalid/a.css);"}),
        ("evaluated text", {"script": "eval ('1')"}),
        ("evaluated text", {"script": "setTimeout('go()', 5)"}),
        ("markup from text", {"script": "list.innerHTML += name"}),
    ],
)
def test_each_fault_is_noticed_and_nothing_else(fault, parts):
    assert set(faults_of(**parts)) == {fault} and fault in CHECKS


def test_what_only_looks_like_a_fault_is_none():
    assert faults_of(script="if (a.innerHTML == b) {} a.innerHTML = ''; medieval(1); // a comment") == {}
    assert faults_of(body="<!-- <div onclick=x> --><textarea title='x'><div></textarea>") == {}


@pytest.mark.parametrize("piece", ["<!--", "<b>", "<a href='", "</", "<script>", "' ", "url( ", "<!", "&"])
def test_half_a_megabyte_of_nonsense_is_read(piece):
    text = piece * (500_000 // len(piece))
    assert "title" in code_faults({"index.html": text, "style.css": text, "script.js": text})
