from agent2.sandbox.doctor import HostVerdict, diagnose, is_usable


def test_a_missing_bubblewrap_is_a_problem_with_advice():
    findings = diagnose("/no/such/bwrap")
    first = findings[0]
    assert (first.what, first.verdict) == ("bubblewrap", HostVerdict.PROBLEM)
    assert "install" in first.advice
    assert not is_usable(findings)


def test_a_working_host_is_usable_and_its_soft_limits_are_listed(make_sandbox):
    make_sandbox(False)
    findings = diagnose(as_root=False)
    assert is_usable(findings), findings
    by_name = {finding.what: finding for finding in findings}
    assert "version" in by_name["bubblewrap"].detail
    assert by_name["limit on disk"].verdict is HostVerdict.SOFT
    assert all(finding.advice for finding in findings if finding.verdict is HostVerdict.SOFT)
