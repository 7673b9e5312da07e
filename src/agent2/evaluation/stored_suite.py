"""The contract of an evaluation as its folder keeps it, without paths of this machine."""

import os
from pathlib import Path

from agent2.contract.suite import Suite
from agent2.evaluation.own_rules import allow_rules
from agent2.evaluation.suite_folder import SUITE_FILE
from agent2.files import write_json

MAX_UP = 2
"""Folders that a stored path may go up; further up it would tell how a user's machine is laid out."""


def write_suite(suite: Suite, out: Path) -> None:
    """Write the contract of an evaluation, without the absolute paths of this machine.

    A benchmark or a step rule of the user's own is named as seen from the evaluation's folder, or, if it is far from
    it, by its last part. Sources are no part of the digest.
    """
    allow_rules(suite, out)
    record = suite.model_dump(mode="json")
    for entry in record["benchmarks"]:
        if entry["source"] is not None and os.path.isabs(entry["source"]):
            entry["source"] = _portable(entry["source"], out)
        if entry["pair_judge"] is not None and os.path.isabs(entry["pair_judge"]["scorer"]):
            entry["pair_judge"]["scorer"] = _portable(entry["pair_judge"]["scorer"], out)
    for rule in record["process_rules"] or ():
        if os.path.isabs(rule.get("check", "")):
            rule["check"] = _portable(rule["check"], out)
    write_json(out / SUITE_FILE, record)


def _portable(source: str, out: Path) -> str:
    path = os.path.relpath(source, out.resolve())
    if path.split(os.sep).count("..") > MAX_UP:
        return f"./{Path(source).name}"
    return path if path.startswith(".") else f"./{path}"
