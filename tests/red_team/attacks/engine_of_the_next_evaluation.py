"""Change the engine that plays the next evaluation: its program, its packages, what its Python loads when it starts."""

import json
import shutil
from pathlib import Path

from agent2.arena.spec import ScoringMachine
from agent2.engines.catalogue import VLLM
from agent2.engines.environments import engines_dir
from engine_fakes import install_fake_engine
from red_team.forking import REPORT, forked, judge_next, naive
from red_team.frame import Outcome
from red_team.scene import Scene

AIM = "an engine that answers the next evaluation as the attacker likes"
DEFENCE = "the engine's environment is bound read-only, and processes end with their evaluation"

PROGRAM = f"""
import json, sys
{REPORT}
import glob, os
folder = json.loads(sys.argv[1])["engine"] or json.loads(sys.stdin.read())["engine_folder"]
assert os.path.isdir(folder), folder
packages = glob.glob(folder + "/lib/python3*/site-packages")
places = [folder + "/agent2-engine.json", folder + "/bin/python", folder + "/bin/new"]
places += [path + "/" + name for path in packages for name in ("sitecustomize.py", "evil.pth")]
places += sorted(glob.glob(folder + "/*.py"))
opened = []
for place in places:
    for prepare in (lambda: None, lambda: os.chmod(place, 0o777), lambda: os.chmod(folder, 0o777)):
        try:
            prepare()
            os.close(os.open(place, os.O_WRONLY | (0 if os.path.exists(place) else os.O_CREAT), 0o644))
            opened.append(place)
            break
        except OSError:
            continue
report(f"done: opened {{opened}}" if opened else f"none of {{len(places)}} files of the engine could be opened")
"""


def attempt(scene: Scene) -> Outcome:
    machine = scene.config.scoring
    if machine.served_by is not None:
        with forked(scene) as evaluations:
            return judge_next(evaluations, PROGRAM, {"engine": None})
    install_fake_engine()
    try:
        with forked(scene, machine=ScoringMachine(engine=VLLM, engine_version="0.0")) as evaluations:
            return judge_next(evaluations, PROGRAM, {"engine": None})
    finally:
        shutil.rmtree(engines_dir() / VLLM)


def control(scene: Scene) -> Outcome:
    """A copy that the evaluating process itself could write."""
    copy = scene.root / "writable-engine"
    copy.mkdir()
    (copy / "engine.py").write_text(json.dumps({}))
    (copy / "bin").mkdir()
    try:
        with naive(scene) as evaluations:
            report = evaluations.attack(PROGRAM, {"engine": str(copy)})
            return Outcome(report.startswith("done") and (Path(copy) / "bin" / "new").exists(), report[:90])
    finally:
        shutil.rmtree(copy)
