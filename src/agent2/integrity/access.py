"""Who asked for private items: whether the access log is whole, and how often the trial's own time has entries.

The log belongs to the user who runs agent2 (see `agent2.installation`): a whole chain does NOT prove that
nobody looked, a broken one proves that somebody wrote in it.
"""

import json
from datetime import datetime
from pathlib import Path

from agent2.installation import ARENA_ROLE, check_access_log
from agent2.integrity.finding import MAX_PROOFS, Effect, IntegrityCheck, IntegrityFinding, Severity, proof


def access_check(log: Path, since: float, until: float, own: str) -> IntegrityCheck:
    """Check the chain, and count who was granted private items in a span of time.

    since, until: Unix seconds. own: name under which the trial's own request stands. Entries of others in its time
    are noted, except those of other trials, such as its sweep's: their items do not leave the harness. They are
    counted.
    """
    findings = []
    problems = check_access_log(log)
    if problems:
        proofs = tuple(
            proof(problem.partition(": ")[0], problem.partition(": ")[2]) for problem in problems[:MAX_PROOFS]
        )
        words = f"{len(problems)} lines of the access log of private items were changed, taken out or put in"
        findings.append(IntegrityFinding("access log broken", Severity.HIGH, Effect.FLAG, words, proofs))
    n_lines, others, n_trials = _others(log, since, until, own)
    if others:
        proofs = tuple(
            proof(f"{log.name}:{number}", f"{suite}, for {who}") for number, suite, who in others[:MAX_PROOFS]
        )
        words = f"private items were given out {len(others)} times for something else while the agent worked"
        findings.append(IntegrityFinding("private items given out", Severity.LOW, Effect.NOTE, words, proofs))
    beside = f"; {n_trials} of other trials that were scored meanwhile" if n_trials else ""
    looked = f"{n_lines} entries of {log.name}, each against the one before it{beside}"
    return IntegrityCheck("access log", looked, tuple(findings))


def _others(log: Path, since: float, until: float, own: str) -> tuple[int, list[tuple[int, str, str]], int]:
    """Number of lines; (line, suite, checkpoint) of granted entries of others in the span; how many are of trials."""
    if not log.exists():
        return 0, [], 0
    lines = log.read_bytes().splitlines()
    found: list[tuple[int, str, str]] = []
    n_trials = 0
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            at = datetime.fromisoformat(entry["at"]).timestamp()
            is_other = entry["is_granted"] and entry["checkpoint"] != own
        except (ValueError, LookupError, TypeError):
            continue  # no entry: counted as broken by the check of the chain
        if not (is_other and since <= at <= until):
            continue
        if entry.get("role") == ARENA_ROLE:
            n_trials += 1
        else:
            found.append((number, str(entry.get("suite", "")), str(entry["checkpoint"])))
    return len(lines), found, n_trials
