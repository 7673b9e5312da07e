"""The table of the formats that can be imported, and how a file's own is found."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from agent2.cards.imports import (
    alpaca_annotations,
    atif,
    bfcl,
    harbor,
    inspect_logs,
    lighteval,
    lm_eval,
    swe_bench,
    tau2_bench,
    tau_bench,
    terminal_bench,
    verifiers_runs,
)
from agent2.cards.imports.foreign_log import ForeignLog
from agent2.cards.imports.source import NO_CHOICE, LogChoice, LogSource
from agent2.errors import ConfigError, unknown_name


@dataclass(frozen=True, slots=True)
class LogFormat:
    """What one harness writes."""

    files: str
    """Which files or folders, as users know them."""
    recognises: Callable[[LogSource], bool]
    reader: Callable[[LogSource, LogChoice], ForeignLog]
    has_filters: bool = False


FORMATS: MappingProxyType[str, LogFormat] = MappingProxyType(
    {
        "inspect": LogFormat("inspect-ai's .json and .eval", inspect_logs.recognises, inspect_logs.read),
        "lm-eval": LogFormat("lm-eval's samples_*.jsonl", lm_eval.recognises, lm_eval.read, has_filters=True),
        "lighteval": LogFormat("lighteval's details_*.parquet", lighteval.recognises, lighteval.read),
        "tau-bench": LogFormat("tau-bench's trajectories", tau_bench.recognises, tau_bench.read),
        "tau2-bench": LogFormat("tau2-bench's results", tau2_bench.recognises, tau2_bench.read),
        "harbor": LogFormat("Harbor's jobs and trials", harbor.recognises, harbor.read, has_filters=True),
        "terminal-bench": LogFormat("Terminal-Bench's results.json", terminal_bench.recognises, terminal_bench.read),
        "atif": LogFormat("ATIF trajectories", atif.recognises, atif.read),
        "swe-bench": LogFormat("SWE-bench's reports", swe_bench.recognises, swe_bench.read),
        "verifiers": LogFormat(
            "verifiers' results.jsonl and traces.jsonl", verifiers_runs.recognises, verifiers_runs.read
        ),
        "bfcl": LogFormat("BFCL's result and score files", bfcl.recognises, bfcl.read),
        "alpaca-eval": LogFormat(
            "AlpacaEval's annotations.json", alpaca_annotations.recognises, alpaca_annotations.read
        ),
    }
)


def known_formats() -> str:
    """Which files can be imported, for a message."""
    listed = ", ".join(f"{log_format.files} ({name})" for name, log_format in FORMATS.items())
    return (
        f"read are {listed}, and messages or OpenTelemetry traces with --trajectories; score other answers with: "
        "agent2 score BENCHMARK ANSWERS.jsonl"
    )


def read_log(path: Path, choice: LogChoice = NO_CHOICE, format_name: str | None = None) -> ForeignLog:
    """The evaluation that another harness logged. format_name: in which format; None: the one that recognises it.

    Raises ConfigError for what is in no format, or not in the one named, for an unknown format, metric or filter.
    """
    source = LogSource(path)
    name = _format_of(source) if format_name is None else format_name
    if name not in FORMATS:
        raise unknown_name("format", name, FORMATS, "--format")
    log_format = FORMATS[name]
    if choice.filter_name is not None and not log_format.has_filters:
        raise ConfigError("--filter: only samples of lm-eval have filters, and jobs of Harbor evaluations; remove it")
    try:
        return log_format.reader(source, choice)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, ArithmeticError, RecursionError) as error:
        # The boundary of readers of files that anybody may have written: their faults are the file's.
        raise ConfigError(
            f"{path}: is not in the layout of {log_format.files} ({error!r}); restore the file as the harness wrote it"
        ) from error


def _format_of(source: LogSource) -> str:
    if not source.path.exists():
        raise ConfigError(f"{source.path}: cannot be read (no such file or folder); check the path")
    try:
        for name, log_format in FORMATS.items():
            if log_format.recognises(source):
                return name
    except ConfigError as error:
        raise ConfigError(f"{error}; {known_formats()}") from error
    raise ConfigError(f"{source.path}: is in no format that can be imported; {known_formats()}")
