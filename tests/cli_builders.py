"""The command line in this process: what a shell would see, without the start of a new Python."""

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout

import pytest

from agent2.cli import main


def run_agent2(*arguments, home, installation=None, **environment):
    """`agent2 ...` as from a shell in the folder `home`, which holds the installation unless one is given."""
    out, err = io.StringIO(), io.StringIO()
    variables = {"HOME": str(home), "AGENT2_HOME": str(installation or home / "agent2"), **environment}
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(home)
        for name, value in variables.items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["agent2", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_info:
            main()
    return subprocess.CompletedProcess(arguments, exit_info.value.code or 0, out.getvalue(), err.getvalue())
