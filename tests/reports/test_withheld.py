from agent2.arena.analysis.result import analyse
from agent2.arena.evidence import AgentEnd, AssignmentPart, AssignmentVerdict, CommandLine, HeldOutScore
from agent2.reports.text import render
from agent2.reports.trial_view import trial_view
from agent2.reports.withheld import WITHHELD, without_agent_texts, without_quotes
from builders import make_evidence, make_metrics, make_process, make_rejected, make_revision, make_submission

QUOTE = "Build the login page number 1234"


def quoting(**changes):
    """A trial whose agent quotes a request wherever it can write."""
    made = {
        "submissions": [
            make_rejected(1, f"{QUOTE}: no such folder", model_path=QUOTE),
            make_submission(2, score=0.6, note=QUOTE, model_path=f"output/{QUOTE}"),
        ],
        "agent_end": AgentEnd.CRASHED,
        "agent_exit_code": 1,
        "agent_log_tail": f"Traceback (most recent call last):\n  {QUOTE}\nError: {QUOTE}\n",
        "revisions": [make_revision({f"code/{QUOTE}.py": f"GRPOTrainer('{QUOTE}')\n", "bad.py": f"({QUOTE}"})],
        "processes": [make_process(f"python code/{QUOTE}.py"), make_process(f"python -c '{QUOTE}'", pid=9)],
        "commands": [CommandLine(f"echo {QUOTE}", exit_code=1, failed=True)],
        "metrics": make_metrics(f"output/{QUOTE}.jsonl", [{"reward": 0.1, QUOTE: 1.0}, {"reward": 0.2, QUOTE: 2.0}]),
        "design": {"algorithm": QUOTE},
        "warnings": [f"output/{QUOTE}: cannot be read"],
        "held_out": [HeldOutScore("other", "other 1", None, None, None, problem=f"final: {QUOTE}")],
        "sandbox": "none",
    }
    return make_evidence(**(made | changes))


def pages_of(evidence, analysis):
    fields = {"view": trial_view(evidence, analysis), "figures": {"trajectory": ""}}
    return render("trial.html.j2", fields).replace("<wbr>", "") + render("trial.md.j2", fields)


def test_no_text_of_the_agent_is_left_and_numbers_and_verdicts_stay():
    evidence = quoting()
    analysis = analyse(evidence)
    assert pages_of(evidence, analysis).count("number 1234") > 20, "the control: the usual pages quote it"
    page = pages_of(without_agent_texts(evidence), without_quotes(evidence, analysis))
    assert "number 1234" not in page and WITHHELD in page
    for shown in ("60.0%", "2 / 1", "without a sandbox", "shown a hidden item"):
        assert shown in page, shown
    kept, before = without_quotes(evidence, analysis), analysis
    assert [stage.verdict for stage in kept.stages] == [stage.verdict for stage in before.stages]
    assert [failure.kind for failure in kept.failures] == [failure.kind for failure in before.failures]


def test_how_many_checks_hold_is_shown_and_what_kept_the_page_from_being_judged_is_not():
    judged = AssignmentVerdict("page", False, 0.5, (AssignmentPart("function", 0.5, "2 of 4 checks hold"),))
    assert without_agent_texts(quoting(assignment=judged)).assignment == judged
    broken = AssignmentVerdict("page", False, None, (AssignmentPart("function", None, f"Error: {QUOTE}"),))
    (part,) = without_agent_texts(quoting(assignment=broken)).assignment.parts
    assert part.reason == WITHHELD
