"""Write HTML and control characters into the log, notes, paths and code, for whoever opens the report."""

import html
from html.parser import HTMLParser

from agent2.arena.analysis.result import analyse
from agent2.reports.pages import write_report
from builders import make_evidence, make_metrics, make_rejected, make_revision, make_submission
from red_team.frame import Outcome
from red_team.scene import Scene

AIM = "code in the reader's browser or terminal"
DEFENCE = "everything an agent wrote is escaped and stripped; the page's policy runs nothing"

HOSTILE = '<script>document.title="owned"</script>\x1b]0;owned\x07<img src=x onerror=alert(1)>"><svg onload=alert(1)>'


class Acting(HTMLParser):
    """Collects what a browser would run."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in {"script", "img", "iframe", "object", "embed"}:
            self.found.append(tag)
        self.found += [name for name, _ in attributes if name.startswith("on")]


def attempt(scene: Scene) -> Outcome:
    evidence = make_evidence(
        submissions=[make_rejected(1, HOSTILE, model_path=HOSTILE, note=HOSTILE), make_submission(2, note=HOSTILE)],
        agent_log_tail=HOSTILE * 3,
        revisions=[make_revision({f"code/{HOSTILE[:50]}.py": f"# {HOSTILE}\n"})],
        metrics=make_metrics(HOSTILE, [{"reward": 0.1}, {"reward": 0.2}]),
        design={"algorithm": HOSTILE},
    )
    paths = write_report(evidence, analyse(evidence), scene.root / "hostile-report")
    page = paths.html.read_text()
    texts = page + paths.markdown.read_text()
    elements = Acting(page).found + [name for name in ("\x1b", "\x07") if name in texts]
    shows = html.escape("<script>")[:10] in page
    return Outcome(bool(elements) or not shows, f"acting elements: {elements or 'none'}; shown as text: {shows}")


def control(scene: Scene) -> Outcome:
    """A page made with an f-string."""
    page = f"<html><body><pre>{HOSTILE}</pre></body></html>"
    elements = Acting(page).found
    return Outcome(bool(elements) and "\x1b" in page, f"a browser would run {elements}")
