"""`make red-team`: every attack for real, as a table; exit code 1 if one escaped or one control failed.

    python -m red_team [WORD ...] [--engine NAME]

WORD: part of an attack's name; none: all. NAME: an engine of the installation in $AGENT2_HOME that plays what is
submitted, in the grader's sandbox.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from agent2.engines.catalogue import IN_PROCESS
from agent2.engines.environments import engines_dir
from red_team.board_attacks import BOARD_ATTACKS
from red_team.evidence_attacks import EVIDENCE_ATTACKS
from red_team.foreign_file_attacks import FOREIGN_FILE_ATTACKS
from red_team.frame import Row, Verdict, find_attacks, play
from red_team.program_attacks import PROGRAM_ATTACKS
from red_team.scene import set_scene
from red_team.taste_attacks import TASTE_ATTACKS
from red_team.verdict_attacks import VERDICT_ATTACKS


def main() -> int:
    """Play the attacks named on the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--engine", default=IN_PROCESS)
    options = parser.parse_args()
    parts, engines = options.words, engines_dir()
    attacks = (
        *find_attacks(),
        *PROGRAM_ATTACKS,
        *VERDICT_ATTACKS,
        *BOARD_ATTACKS,
        *EVIDENCE_ATTACKS,
        *TASTE_ATTACKS,
        *FOREIGN_FILE_ATTACKS,
    )
    chosen = [attack for attack in attacks if not parts or any(word in attack.name for word in parts)]
    with tempfile.TemporaryDirectory(prefix="red-team-") as folder:
        Path(folder).chmod(0o755)  # sandboxes run as other users
        os.environ["AGENT2_HOME"] = str(Path(folder) / "home")
        if options.engine != IN_PROCESS:
            (engines_dir() / options.engine).symlink_to(engines / options.engine)
        with set_scene(Path(folder), options.engine) as scene:
            rows = []
            for attack in track(chosen, "red team", console=Console(stderr=True)):
                rows.append(play(attack, scene))
                _tell(rows[-1])
    _show(rows)
    return 0 if rows and all(row.holds for row in rows) else 1


def _tell(row: Row) -> None:
    """One line at once, for a long run that is watched or cut off."""
    if not sys.stderr.isatty():
        control = "control succeeded" if row.control.succeeded else f"CONTROL FAILED: {row.control.detail}"
        print(f"{row.attack.name}: {row.verdict.value}; {control}; {row.attempt.detail}", file=sys.stderr, flush=True)


def _show(rows: list[Row]) -> None:
    table = Table("attack", "defence", "control succeeded?", "verdict", "what happened", title="red team")
    for row in rows:
        control = "yes" if row.control.succeeded else f"NO: {row.control.detail}"
        table.add_row(row.attack.name, row.attack.defence, control, row.verdict.value, row.attempt.detail)
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table)
    n_escaped = sum(row.verdict is Verdict.ESCAPED for row in rows)
    n_controls = sum(row.control.succeeded for row in rows)
    counts = {verdict: sum(row.verdict is verdict for row in rows) for verdict in Verdict}
    console.print(
        f"{len(rows)} attacks: {counts[Verdict.BLOCKED]} blocked, {counts[Verdict.DETECTED]} detected, "
        f"{n_escaped} escaped; {n_controls} of {len(rows)} controls succeeded"
    )


if __name__ == "__main__":
    raise SystemExit(main())
