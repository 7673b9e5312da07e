"""Worlds that items are played in; `question` asks once and takes one answer.

`ENVIRONMENTS` names those that a benchmark made of data alone may choose; installed packages add to it
(`agent2.plugins`). A world of a plug-in has a `name` and a `version` beside what `agent2.records.Environment` asks for.
"""

from collections.abc import Mapping
from types import MappingProxyType

ENVIRONMENTS: Mapping[str, str] = MappingProxyType(
    {
        "openenv": "agent2.environments.openenv:OpenEnvWorld",
        "question": "agent2.environments.question:QuestionEnvironment",
    }
)
