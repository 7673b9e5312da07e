import pytest

from agent2.arena.analysis.result import analyse, integrity_verdict
from agent2.arena.analysis.verdicts import IntegrityState, ResultKind, Verdict
from agent2.arena.audit_child import failed_check
from agent2.arena.sweep_records import row_of
from agent2.integrity import Effect, IntegrityCheck, IntegrityFinding, IntegrityRecord, Proof, Severity
from agent2.reports.headline import headline, headline_fields
from agent2.reports.pages import report_record, write_report
from agent2.reports.sweep_pages import trial_table
from builders import make_evidence, make_submission


def finding(effect, subject="", name="foreign weights"):
    return IntegrityFinding(
        name, Severity.HIGH, effect, "0 of 9 matrices are kin", (Proof("layer", "r 0.01"),), subject
    )


def audited(*findings, **changes):
    record = IntegrityRecord(
        (IntegrityCheck("provenance", "submission 1: 9 matrices", tuple(findings)), IntegrityCheck("drift", "4 files"))
    )
    return make_evidence(integrity=record, **changes)


def test_nothing_is_claimed_without_an_audit():
    evidence = make_evidence()
    assert integrity_verdict(evidence).state is IntegrityState.NOT_AUDITED
    assert analyse(evidence).result.kind is ResultKind.MEASURED


def test_an_audit_without_findings_is_clean_and_says_how_much_was_looked_at():
    verdict = integrity_verdict(audited())
    assert (verdict.state, verdict.reason) == (
        IntegrityState.CLEAN,
        "3 checks found nothing",
    )  # two of the audit, one of what was recorded


@pytest.mark.parametrize(
    ("effect", "state"), [(Effect.NOTE, IntegrityState.NOTED), (Effect.FLAG, IntegrityState.FLAGGED)]
)
def test_notes_and_flags_change_no_result(effect, state):
    analysis = analyse(audited(finding(effect)))
    assert analysis.integrity.state is state
    assert (analysis.result.kind, analysis.result.gain.value) == (ResultKind.MEASURED, pytest.approx(0.28))
    assert any("a person should look" in warning for warning in analysis.warnings) is (effect is Effect.FLAG)


@pytest.mark.parametrize("subject", ["", "submission 1"])
def test_a_void_trial_counts_as_the_base_and_says_so(subject):
    evidence = audited(finding(Effect.VOID, subject), finding(Effect.NOTE))
    result = analyse(evidence).result
    assert (result.kind, result.gain.value, result.gain.low, result.p_value) == (ResultKind.VOID, 0.0, None, None)
    assert result.voided_gain_points == pytest.approx(28)
    assert "void: the base model's score counts" in result.words and "foreign weights" in result.words
    assert result.within_noise is None


def test_what_voids_another_submission_is_a_flag_for_the_trial():
    evidence = audited(finding(Effect.VOID, "submission 7"))
    verdict = integrity_verdict(evidence)
    assert verdict.state is IntegrityState.FLAGGED and verdict.findings[0].effect is Effect.FLAG
    assert analyse(evidence).result.kind is ResultKind.MEASURED


def test_a_void_trial_without_a_submission_stays_without_a_result():
    result = analyse(audited(finding(Effect.VOID), submissions=[])).result
    assert (result.kind, result.gain) == (ResultKind.NO_SUBMISSION, None)


def test_a_void_trial_in_which_nothing_beat_the_base_is_void():
    result = analyse(audited(finding(Effect.VOID), submissions=[make_submission(1, score=0.2)])).result
    assert (result.kind, result.gain.value, result.voided_gain_points) == (ResultKind.VOID, 0.0, None)


def test_a_void_trial_meets_no_success_criterion_of_improvement():
    criteria = {c.name: c.verdict for c in analyse(audited(finding(Effect.VOID))).criteria}
    assert criteria["positive delta performance"] is Verdict.FAIL
    assert criteria["generalizes to held-out tasks"] is Verdict.FAIL


def test_the_row_of_a_void_trial_in_a_sweep_has_the_bases_gain():
    evidence = audited(finding(Effect.VOID))
    row = row_of(evidence, analyse(evidence))
    assert (row.result, row.gain.value, row.gain.low) == ("void", 0.0, None)


def test_the_gravest_finding_is_told_first_with_the_number_of_others():
    verdict = integrity_verdict(
        audited(finding(Effect.NOTE, name="b"), finding(Effect.FLAG, name="a"), finding(Effect.FLAG))
    )
    assert verdict.reason.startswith("a: ") and "1 more findings of this weight" in verdict.reason


@pytest.mark.parametrize("subject", ["", "submission 3"])
def test_a_check_that_did_not_end_leaves_no_cleared_result(subject):
    final = make_evidence().final_submission
    subject = f"submission {final}" if subject else ""
    record = IntegrityRecord((failed_check("provenance", "the child was killed", subject),))
    evidence = make_evidence(integrity=record)
    analysis = analyse(evidence)
    result = analysis.result
    assert analysis.integrity.state is IntegrityState.NOT_CLEARED
    assert (result.kind, result.gain) == (ResultKind.NOT_CLEARED, None)
    assert result.voided_gain_points == pytest.approx(28) and "agent2 resume" in result.words
    lines = headline_fields(headline(evidence, analysis)).lines()
    assert lines["gain on private items"].startswith("none: not cleared")
    row = row_of(evidence, analysis)
    assert (row.result, row.gain, row.integrity) == ("not_cleared", None, "not_cleared")
    assert "not cleared" in trial_table([row]).cells()[0]
    assert {c.verdict for c in analysis.criteria if c.name == "positive delta performance"} == {Verdict.UNKNOWN}


def test_an_unfinished_check_of_another_submission_is_a_flag_and_a_void_finding_weighs_more():
    record = IntegrityRecord((failed_check("provenance", "it hung", "submission 77"),))
    assert integrity_verdict(make_evidence(integrity=record)).state is IntegrityState.FLAGGED
    record_with_void = IntegrityRecord(
        (*record.checks, failed_check("drift", "it hung"), *audited(finding(Effect.VOID)).integrity.checks)
    )
    assert integrity_verdict(make_evidence(integrity=record_with_void)).state is IntegrityState.VOID


def test_the_table_of_a_sweep_marks_a_flagged_gain():
    evidence = audited(finding(Effect.FLAG))
    assert any(cell.endswith("flagged") for cell in trial_table([row_of(evidence, analyse(evidence))]).cells()[0])


def test_pages_and_json_say_void_with_proof_and_escape_what_agents_wrote(tmp_path):
    hostile = IntegrityFinding(
        "foreign weights", Severity.HIGH, Effect.VOID, "see <script>x</script>", (Proof("<b>f</b>", "y"),)
    )
    evidence = audited(hostile)
    analysis = analyse(evidence)
    paths = write_report(evidence, analysis, tmp_path)
    page, text = paths.html.read_text(), paths.markdown.read_text()
    assert "<script>x" not in page and "&lt;script&gt;" in page and "&lt;b&gt;f" in page
    for document in (page, text):
        assert "foreign weights" in document and "VOID: the base counts" in document
    rows = headline_fields(headline(evidence, analysis)).lines()
    assert rows["gain on private items"] == "0.0 points: void, the base model's score counts (measured: +28.0)"
    assert rows["integrity"].startswith("void: foreign weights")
    record = report_record(evidence, analysis)["analysis"]
    assert record["integrity"]["state"] == "void" and record["result"]["kind"] == "void"
