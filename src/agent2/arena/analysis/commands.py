"""What a recorded command line runs: a script, a module, inline code, a notebook or a launcher.

Command lines are what a process says about itself. Does NOT see what a kernel of a notebook is sent besides the cells
of its notebook.
"""

import json
import posixpath
from collections.abc import Sequence

LAUNCHERS = frozenset(
    {"accelerate", "torchrun", "deepspeed", "uv", "ray", "llamafactory-cli", "trl", "swift", "axolotl"}
)
INLINE = "python -c"
STANDARD_INPUT = "python -"
NOTEBOOK = ".ipynb"
NOTEBOOK_RUNNERS = frozenset(
    {"jupyter", "jupyter-execute", "jupyter-nbconvert", "jupyter-run", "nbconvert", "papermill"}
)
"""Programs, and modules for `python -m`, that execute the cells of a notebook."""
KERNEL = "ipykernel_launcher"
"""Module of the process in which the cells run."""


def is_python(command: Sequence[str]) -> bool:
    """Whether a command line says that an interpreter runs it."""
    return bool(command) and posixpath.basename(command[0]).startswith(("python", "pypy"))


def target_of(command: Sequence[str]) -> tuple[str, str] | None:
    """(kind, name or code) that a command line runs: script, module, inline code, standard input or a launcher."""
    program = posixpath.basename(command[0]) if command else ""
    by_python = is_python(command)
    if (notebook := _notebook(command)) is not None:
        return "script", notebook
    if not by_python and program not in LAUNCHERS and not program.endswith(".py"):
        return None
    # a script that is run directly is its own first argument
    arguments = list(command[1:] if not program.endswith(".py") else command)
    # an entry point such as trl is run by its interpreter: python /usr/bin/trl sft ...
    if by_python and arguments and posixpath.basename(arguments[0]) in LAUNCHERS:
        by_python, program, arguments = False, posixpath.basename(arguments[0]), arguments[1:]
    for index, argument in enumerate(arguments):
        following = arguments[index + 1] if index + 1 < len(arguments) else ""
        if by_python and argument == "-c":
            return "inline", following
        if argument == "-m":  # of Python, and of launchers such as torchrun
            return "module", following
        if by_python and argument == "-":
            return "stdin", STANDARD_INPUT
        if argument.endswith(".py") or (by_python and not argument.startswith("-")):
            return "script", argument
    if program in LAUNCHERS:
        return "launcher", program
    return ("stdin", STANDARD_INPUT) if by_python and not arguments else None


def _notebook(command: Sequence[str]) -> str | None:
    """The notebook that a command line executes."""
    start = [posixpath.basename(argument) for argument in command[:3]]
    if is_python(command):
        start = start[2:] if start[1:2] == ["-m"] else start[1:2]
    if not start or start[0] not in NOTEBOOK_RUNNERS:
        return None
    return next((argument for argument in command if argument.endswith(NOTEBOOK)), None)


def notebook_source(text: str) -> str:
    """The code cells of a notebook as one program, without magics and shell lines; the text itself if it is none."""
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError):
        return text
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    lines: list[str] = []
    for cell in cells if isinstance(cells, list) else []:
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            source = cell.get("source", "")
            cell_text = "".join(map(str, source)) if isinstance(source, list) else str(source)
            if cell_text.lstrip().startswith("%%"):  # another language, or a cell that is written to a file
                continue
            lines += [line for line in cell_text.splitlines() if not line.lstrip().startswith(("%", "!"))]
    return "\n".join(lines)
