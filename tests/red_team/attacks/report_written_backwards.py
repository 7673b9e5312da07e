"""Turn the direction of a report's text, hide letters in it, and break its lines where only some readers do."""

from agent2.arena.analysis.result import analyse
from agent2.reports.pages import write_report
from builders import make_evidence, make_rejected, make_submission
from red_team.frame import Outcome
from red_team.scene import Scene

AIM = "a reader who sees another sentence than the one that is there"
DEFENCE = "characters that are not seen, turn the direction or end a line are taken out"

TURNS = "\u202e\u2066\u200b\ufeff\u2028\u2029\x85\U000e0041"
NOTE = f"score {TURNS}99.9 | \u202egniniart fo tuo"


def attempt(scene: Scene) -> Outcome:
    submissions = [make_rejected(1, NOTE, model_path=NOTE, note=NOTE), make_submission(2, note=NOTE)]
    evidence = make_evidence(submissions=submissions, agent_log_tail=NOTE)
    paths = write_report(evidence, analyse(evidence), scene.root / "turned-report")
    texts = paths.html.read_text() + paths.markdown.read_text()
    shown_turns = [f"U+{ord(character):04X}" for character in TURNS if character in texts]
    return Outcome(bool(shown_turns), f"in the report: {', '.join(shown_turns) or 'none of them'}")


def control(scene: Scene) -> Outcome:
    page = f"| note |\n|---|\n| {NOTE} |\n"
    return Outcome(all(character in page for character in TURNS), "a table made with an f-string holds them all")
