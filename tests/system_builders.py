"""Agent systems for tests: a small npm and packages that need no registry."""

import textwrap
import zipfile
from pathlib import Path

import yaml

LAUNCH_FIELDS = frozenset(
    {"llm_url", "llm_key", "model", "installed", "program", "prompt", "prompt_file", "workspace", "home", "agent"}
)
"""Every field of a launch template; the first five need an LLM, or a system to install."""

NPM = """\
#!/usr/bin/env python3
# As much of npm as an installation needs: no registry, one package.
import pathlib, sys
if sys.argv[1:] == ["--version"]:
    print("10.0.0")
    sys.exit(0)
assert sys.argv[1] == "install" and "--ignore-scripts" in sys.argv, sys.argv
tree = pathlib.Path(sys.argv[sys.argv.index("--prefix") + 1])
name, _, version = sys.argv[-1].rpartition("@")
if name != "tool":
    print("npm error 404 Not Found - GET " + name, file=sys.stderr)
    sys.exit(1)
program = tree / "node_modules" / "tool" / "bin" / "tool"
program.parent.mkdir(parents=True)
program.write_text('#!/bin/sh\\nif [ "$1" = --version ]; then echo "tool SAID"; else PROGRAM; fi\\n')
program.chmod(0o700)
"""


def write_npm(folder: Path, says: str = "1.2.3", program: str = 'echo "tool runs: $*"') -> Path:
    """says: what the installed program calls its version. program: what it does otherwise, as shell text."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "npm"
    path.write_text(NPM.replace("SAID", says).replace("PROGRAM", program))
    path.chmod(0o755)
    return path


def write_npm_agent(folder: Path, package: str = "tool", **more) -> Path:
    """An agent folder whose system is the package that the small npm knows."""
    folder.mkdir(parents=True, exist_ok=True)
    spec = {
        "name": folder.name,
        "description": "a test",
        "command": ["{{program}}", "{{prompt_file}}"],
        "install": {"npm": {"package": package, "version": "1.2.3", "program": "tool/bin/tool"}},
    }
    (folder / "agent.yaml").write_text(yaml.safe_dump(spec | more))
    return folder


def write_wheel(folder: Path, name: str, version: str, main: str) -> Path:
    """A wheel of one package whose `python -m` runs `main`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": "",
        f"{name}/__main__.py": textwrap.dedent(main),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in (files | {f"{info}/RECORD": record}).items():
            archive.writestr(file, text)
    return path
