"""What is needed to play a named benchmark on this machine, checked now, and what to type.

Promises: `commands` are in the order to type them; words in capitals (FILE, FOLDER, MODEL) are the user's. What is said
to be here was looked for: files are read up to their first item, packages are found without importing them. Does NOT
check what a row's `needs` say.
"""

import os
import shutil
from dataclasses import dataclass
from importlib import metadata

from agent2 import installation
from agent2.benchmarks import load_benchmark
from agent2.benchmarks.data_files import OfficialFile
from agent2.benchmarks.declared import DeclaredBenchmark
from agent2.benchmarks.named import PLAYED, Harness, NamedBenchmark, NamedStatus
from agent2.benchmarks.named.packages import is_here
from agent2.errors import ConfigError
from agent2.models.bases import cached_path
from agent2.models.published import PackageFile, PublishedRecipes, chat_models, published_models
from agent2.records import Benchmark, Item, Split

FIRST_LOOK = 20
"""Items of the evaluation that is proposed."""


@dataclass(frozen=True, slots=True)
class SetupReport:
    """How far a benchmark is from being played here."""

    is_ready: bool
    """Nothing that was looked for is missing."""
    here: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    """Empty where there is nothing to type."""


def check_setup(row: NamedBenchmark) -> SetupReport:
    """Look at this machine for what a row needs."""
    if row.status in PLAYED:
        return _of_played(row)
    if row.harness is not None:
        return _of_bridge(row, row.harness)
    if row.status is NamedStatus.OWN_FILES:
        return _of_own_files(row)
    return SetupReport(False, missing=("a way to play it here or to read its files: only facts are recorded",))


def first_visible(benchmark: Benchmark) -> Item | None:
    """The first item of train, else of dev; None: both are empty. Raises ConfigError where items cannot be read."""
    problem = None
    for split in (Split.TRAIN, Split.DEV):
        if isinstance(benchmark, DeclaredBenchmark) and not benchmark.count(split, None):
            continue
        try:
            return benchmark.items(split, 1, None)[0]
        except ConfigError as error:
            problem = problem or error
    if problem is not None:
        raise problem
    return None


def _of_played(row: NamedBenchmark) -> SetupReport:
    name = row.benchmark or row.name
    here, missing, commands = _packaged(row)
    variable = OfficialFile(name, (), "", {}).variable
    if os.environ.get(variable):
        here.append(f"{variable} is {os.environ[variable]}")
    try:
        first_visible(load_benchmark(name))
        here, missing, commands = [*here, "its items can be read"], [], []
    except ConfigError as error:
        missing.append(str(error))
        if row.package is None:
            commands.append(f"export {variable}=FOLDER")
    return SetupReport(not missing, tuple(here), tuple(missing), (*commands, *_first_look(name)))


def _of_bridge(row: NamedBenchmark, harness: Harness) -> SetupReport:
    here, missing, commands = _packaged(row)
    if (installed := _installed(harness)) is not None:
        here.append(installed)
    else:
        origin = harness.package or row.urls.code
        missing.append(f"{origin}, in an environment of its own: its pins may not fit ours")
        commands += _install(harness)
    imported = f"agent2 cards import RESULTS {row.name}_card --format {harness.format}"
    return SetupReport(not missing, tuple(here), tuple(missing), (*commands, harness.command, imported))


def _of_own_files(row: NamedBenchmark) -> SetupReport:
    here, _, commands = _packaged(row)
    command = row.use or ""
    is_file = "FILE" in command.split()
    missing = (
        f"FILE: {row.urls.data or row.urls.code or 'your own items'}" if is_file else "FOLDER: runs of your own",
    )
    if "benchmarks new" not in command:
        return SetupReport(False, tuple(here), missing, (*commands, command))
    play = (f"{command} --out {row.name}", f"agent2 benchmarks check ./{row.name}", *_first_look(f"./{row.name}"))
    return SetupReport(False, tuple(here), missing, (*commands, *play))


def _packaged(row: NamedBenchmark) -> tuple[list[str], list[str], list[str]]:
    """What is here, what is missing, and what to type, of the files in a row's package; none is needed by a harness."""
    if row.package is None:
        return [], [], []
    if is_here(row):
        return [f"{row.package.holds}: {installation.benchmark_folder(row.folder_name)}"], [], []
    return [], [], [f"agent2 benchmarks get {row.name}"]


def _installed(harness: Harness) -> str | None:
    """How a harness is here; None: it was not found."""
    if harness.package is None:
        return None
    program = harness.command.split()[0]
    try:
        return f"{harness.package} {metadata.version(harness.package)} is installed"
    except metadata.PackageNotFoundError:
        is_own_program = not program.startswith("python")
        return f"{program} is on the path" if is_own_program and shutil.which(program) is not None else None


def _install(harness: Harness) -> list[str]:
    if harness.package is None:
        return [harness.install or ""]
    environment = f"{harness.package}-env"
    return [
        f"python -m venv {environment} && {environment}/bin/pip install {harness.package}",
        f"source {environment}/bin/activate",
    ]


def _first_look(name: str) -> list[str]:
    """An evaluation with a model that is here, else with the first that a package holds."""
    recipes = PublishedRecipes()
    models = chat_models()
    present = [model for model in models if cached_path(model, recipes) is not None]
    packaged = [model for model in models if isinstance(published_models()[model].source, PackageFile)]
    if present:
        return [f"agent2 eval {name} --checkpoint {present[0]} --limit {FIRST_LOOK}"]
    return [
        f"agent2 models get {packaged[0]}",
        f"agent2 eval {name} --checkpoint {packaged[0]} --limit {FIRST_LOOK}",
    ]
