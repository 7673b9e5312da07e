"""Runs the tests that failed in a whole run once more, in one process.

    make test PYTEST_OPTIONS="--failures failures.txt" || make test-again

For machines with another load than ours: six test processes on two cores let a page or a server wait for a minute.
Passes only if at most `MOST_FAILED` tests failed and each passes now, and names them in its last lines: a test that
depends on the load is a fault, of the test or of what it tests. Does NOT excuse a run that ended otherwise (a file that
can't be imported, a run that was broken off).
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MOST_FAILED = 3
"""More are no accident of the load."""


def main(arguments: Sequence[str]) -> int:
    """Run the tests named in the file, one a line; returns the exit code."""
    record = Path(arguments[0])
    failed = record.read_text("utf-8").splitlines() if record.exists() else []
    if problem := refusal(failed):
        print(f"test-again: {problem}", file=sys.stderr)
        return 1
    print(f"test-again: {len(failed)} failed beside others; once more, alone", flush=True)
    codes = {test: subprocess.run([sys.executable, "-m", "pytest", test]).returncode for test in failed}
    for test, code in codes.items():
        verdict = "passed alone, so it depends on the load; correct it" if code == 0 else "failed twice"
        print(f"test-again: {test}: {verdict}")
    record.unlink()
    return int(any(codes.values()))


def refusal(failed: Sequence[str]) -> str | None:
    """Why these are not run again; None: they are."""
    if not failed:
        return "no failed test is on record: the run did not get to its end"
    if files := [test for test in failed if "::" not in test]:
        return f"{files[0]} was not collected"
    if len(failed) > MOST_FAILED:
        return f"{len(failed)} tests failed, at most {MOST_FAILED} are run again"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
