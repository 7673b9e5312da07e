import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_the_script_does_not_hide_the_standard_library_from_those_beside_it():
    program = (
        f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r}); import statistics; print(statistics.median([1, 5]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("3.0", "")


def test_the_script_starts_in_spite_of_its_name():
    command = [sys.executable, str(BENCHMARKS / "statistics.py"), "--help"]
    assert "--rliable-python" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
