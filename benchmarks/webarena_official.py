"""The official evaluator of WebArena-Verified over a pipe: one JSON line in, one out; run by `webarena_agreement.py`.

A request is {task_id, response, entries, environments}; the reply is {score, why}: 1, 0, or null for an error. Its
environment needs the package webarena-verified.
"""

import json
import logging
import sys
from typing import Any

from webarena_verified.api import WebArenaVerified  # type: ignore[import-not-found]
from webarena_verified.types.config import WebArenaVerifiedConfig  # type: ignore[import-not-found]


def reason_of(result: Any) -> str:
    """What the evaluator says against a run."""
    found = [result.error_msg] + [
        part
        for checked in result.evaluators_results
        for part in [
            checked.error_msg,
            *(f"{one.assertion_name} {one.assertion_msgs}" for one in checked.assertions or ()),
        ]
    ]
    return " | ".join(filter(None, found))


def main() -> None:
    """Answer requests until standard input ends."""
    logging.disable(logging.CRITICAL)
    evaluators: dict[str, Any] = {}
    for line in sys.stdin:
        request = json.loads(line)
        key = json.dumps(request["environments"])
        if key not in evaluators:
            evaluators[key] = WebArenaVerified(config=WebArenaVerifiedConfig(environments=request["environments"]))
        result = evaluators[key].evaluate_task(
            task_id=request["task_id"], agent_response=request["response"], network_trace=request["entries"]
        )
        score = None if str(result.status) in ("error", "EvalStatus.ERROR") else result.score
        print(json.dumps({"score": score, "why": reason_of(result)[:600]}), flush=True)


if __name__ == "__main__":
    main()
