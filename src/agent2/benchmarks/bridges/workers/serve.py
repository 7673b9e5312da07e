"""Answers requests about a bridged package, one line of JSON each: `python serve.py MODULE`, a module beside this file.

On the standard library alone. A request is `{"id", "method", "arguments"}`, an answer `{"id", "result"}`, or
`{"id", "error"}` where the package raised. Requests come on standard input and answers leave on standard output; both
are moved away first, so that what the package prints goes to standard error and what it reads is empty.
"""

import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

MAX_ERROR_CHARACTERS = 500


def serve(methods: Mapping[str, Callable[..., Any]], requests: Any, answers: Any) -> None:
    """Answer until no further request comes. requests, answers: binary files."""
    for line in requests:
        request = json.loads(line)
        try:
            answer = {"id": request["id"], "result": methods[request["method"]](**request["arguments"])}
            encoded = json.dumps(answer, allow_nan=False)
        except (Exception, SystemExit) as error:  # boundary: a package may raise anything, and its process stays
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:MAX_ERROR_CHARACTERS]
            encoded = json.dumps({"id": request["id"], "error": reason})
        # a line of its own, also behind something that was printed here all the same
        answers.write(f"\n{encoded}\n".encode())
        answers.flush()


def main() -> None:
    """Take the standard streams away from the package, import it, and serve."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - for as long as the process lives
    sys.path.insert(0, str(Path(__file__).parent))
    serve(importlib.import_module(sys.argv[1]).METHODS, requests, answers)


if __name__ == "__main__":
    main()
