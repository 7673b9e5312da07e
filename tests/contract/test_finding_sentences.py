import pytest

from agent2.contract.finding_sentences import basis_text, evidence_rule, problem_text
from agent2.contract.findings import EvidenceProblem, ProblemKind
from agent2.contract.gates import EvidenceNeeds
from evidence_builders import make_metric, make_paired


def test_every_need_is_in_the_rule():
    rule = evidence_rule(EvidenceNeeds(needs_items=True, min_items=77))
    for part in ("77 items", "1.0%", "95.0%", "2 points apart", "15 points", "control group", "pairs"):
        assert part in rule


def test_the_basis_names_counts_missing_scores_and_the_noise_band():
    assert basis_text(make_metric("math", 0.6, 0.7)) == "no item counts: point rule used"
    counted = make_metric("math", 0.6, 0.7, n_items=400, n_missing_old=1, n_missing_new=2, noise=0.013)
    assert basis_text(counted) == "n=400; item counts but no pairs: point rule used; 1 + 2 missing; noise band +-0.013"
    assert basis_text(make_paired("math", 500, 30, 20)).startswith("n=500 paired items, 30 won and 20 lost (")


@pytest.mark.parametrize("kind", ProblemKind)
def test_every_problem_has_a_sentence_without_gaps(kind):
    problem = EvidenceProblem(
        kind, ("math",), "checkpoint", n=3, n_total=9, value=0.1, threshold=0.5, discordance=0.2, detail="x"
    )
    assert problem_text(problem)
    assert "None" not in problem_text(problem)
