"""Track templates: what a shorthand suite may leave out, one YAML file for each kind of loop.

A template has four keys: `track` (its name), `match` (names of suites that belong to it), `keys` (a suite without a
name belongs to it if it has all of them), `metric_names` (short metric name -> metrics that it may mean), and
`suite` (the parts to fill in). Templates are data; `contract.expand` says how they are used.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from agent2.config import YamlText, read_yaml_text


@dataclass(frozen=True, slots=True)
class Track:
    """One template."""

    name: str
    text: YamlText
    """Its file, for the line of what is filled in."""

    @property
    def suite(self) -> dict[str, Any]:
        """The parts that can be filled in."""
        suite: dict[str, Any] = self.text.data["suite"]
        return suite

    @property
    def metric_names(self) -> Mapping[str, list[str]]:
        """Short name -> metrics of the template."""
        names: Mapping[str, list[str]] = self.text.data["metric_names"]
        return names

    def fits(self, suite_name: str | None, keys: set[str]) -> bool:
        """Whether a suite that names no track belongs here, by its name or, without one, by its keys."""
        if suite_name is not None:
            return suite_name in self.text.data["match"]
        wanted = set(self.text.data["keys"])
        return bool(wanted) and wanted <= keys


@cache
def load_tracks() -> Mapping[str, Track]:
    """Every packaged template by name; read once, so copy what you change."""
    found = {}
    for entry in sorted(resources.files(__package__).iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".yaml"):
            text = read_yaml_text(entry.read_text(encoding="utf-8"), f"tracks/{entry.name}")
            found[text.data["track"]] = Track(text.data["track"], text)
    return MappingProxyType(found)
