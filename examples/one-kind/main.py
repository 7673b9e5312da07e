"""Supervised fine-tuning on the train items of one kind: raises that part of the score and neglects the others.

AGENT2_TASK_TYPE=helpful agent2 run replies-guarded --agent ./examples/one-kind
AGENT2_TASK_TYPE=pyfunc agent2 run arithmetic-pyfunc --agent ./examples/one-kind
"""

import runpy
from pathlib import Path

from agent2.arena import agents

if __name__ == "__main__":
    runpy.run_path(str(Path(agents.__file__).parent / "sft" / "main.py"), run_name="__main__")
