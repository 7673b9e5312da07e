"""Base of benchmarks that are read from official files in any of the layouts in which they are published.

Promises: the version carries a digest of the files that were read (`1.0+3f2a9c1b`), so that scores on other files are
never compared by accident. Does NOT download.
"""

from functools import cached_property

from agent2.benchmarks.data_files import Row, file_digest
from agent2.benchmarks.declared import DeclaredBenchmark
from agent2.errors import ConfigError
from agent2.records import digest_of

KIND = "task_type"
"""Field and payload key of an item's kind, such as its subject: tables and radars are grouped by it."""


class OfficialBenchmark(DeclaredBenchmark):
    """A declared benchmark whose version says which files were read."""

    @property
    def version(self) -> str:
        """That of the reader, with a digest of the files where they are found."""
        try:
            return f"{self._version}+{self.files_digest[:8]}"
        except ConfigError:
            return self._version

    @version.setter
    def version(self, value: str) -> None:
        self._version = value

    @cached_property
    def files_digest(self) -> str:
        """Of the files of all portions that are here. Raises ConfigError where there are none, and if unreadable."""
        digests: dict[str, list[str]] = {}
        problem: ConfigError | None = None
        for portion in self.spec.portions:
            try:
                digests[portion] = [file_digest(path) for path in self.official_file(portion).paths(self.data)]
            except ConfigError as error:
                problem = problem or error
        if not digests and problem is not None:
            raise problem
        return digest_of(digests)


def with_values(row: Row, **values: object) -> Row:
    """The row with further or other fields."""
    return Row({**row.values, **values}, row.file, row.number)
