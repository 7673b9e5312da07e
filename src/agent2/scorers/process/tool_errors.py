"""Classes of failing tool calls: what our worlds record, and what the text of an error says in a log of others.

A class that a world or a harness states stands. Otherwise the text decides, by the first row of `PATTERNS` that it
holds; texts that no row knows are `tool`: the tool itself refused, for a reason of its own. Rows stand from the most
particular to the most general. Patterns are linear, and only the first `SCANNED` characters are read.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

from agent2.environments.tools.world import ErrorKind, ToolFaultKind
from agent2.scorers.grounding.episodes import RecordedCall

SCANNED = 600
"""Characters of an error's text: what went wrong stands at its start."""
NOT_FOUND, RATE_LIMIT, UNREACHABLE, OUTPUT_LIMIT = "not_found", "rate_limit", "unreachable", "output_limit"
STATED: Mapping[str, str] = MappingProxyType(
    {
        **{kind.value: kind.value for kind in (*ToolFaultKind, *ErrorKind)},
        # as inspect-ai calls them
        "permission": ToolFaultKind.PERMISSION_DENIED.value,
        "parsing": ErrorKind.MALFORMED_CALL.value,
        "file_not_found": NOT_FOUND,
        "is_a_directory": ErrorKind.TOOL.value,
        "unicode_decode": ErrorKind.TOOL.value,
        "approval": ErrorKind.REFUSED.value,
        "limit": ErrorKind.BUDGET.value,
        "output_limit": OUTPUT_LIMIT,
    }
)
"""Class as a world or a harness writes it before the text -> ours."""
_ROWS = (
    (ErrorKind.MALFORMED_CALL.value, r"jsondecodeerror|(?:invalid|malformed|not valid|bad|broken) json|json (?:parse|decode|syntax)|could not (?:parse|decode)|failed to (?:parse|decode)|unable to parse|expecting value: line"),  # noqa: E501
    (ErrorKind.UNKNOWN_TOOL.value, r"(?:unknown|no such|invalid|undefined) (?:tool|function|action|command)\b|(?:tool|function|action) ['\"`]?[\w.-]{1,60}['\"`]? (?:was |is |does )?(?:not (?:found|exist|defined|available|supported|registered)|unknown)|command not found|not a valid (?:tool|function|action)"),  # noqa: E501
    (ToolFaultKind.TIMEOUT.value, r"time[ds]?[ -]?out|deadline exceeded|took too long|timeouterror"),
    (RATE_LIMIT, r"rate[ -]?limit|too many requests|quota exceeded|(?:http|status|code)[ /:=.\d]{0,12}\b429\b"),
    (ToolFaultKind.PERMISSION_DENIED.value, r"permission(?:error| denied)|access (?:is )?denied|forbidden|unauthori[sz]ed|not authori[sz]ed|not permitted|\beacces\b|authentication (?:failed|required)|(?:http|status|code)[ /:=.\d]{0,12}\b40[13]\b"),  # noqa: E501
    (ToolFaultKind.SCHEMA_ERROR.value, r"(?:missing|unexpected|required|unknown|unrecogni[sz]ed|invalid|extra) (?:\w+ ){0,3}(?:arguments?|parameters?|fields?|propert(?:y|ies)|keyword)\b|(?:argument|parameter|field|property) ['\"`]?[\w.-]{1,60}['\"`]? (?:is )?(?:missing|required|unknown|not (?:allowed|expected))|validation ?error|schema|is not of type|is a required property|field required"),  # noqa: E501
    (UNREACHABLE, r"connection ?(?:error|refused|reset|aborted|closed)|could not connect|network (?:is )?(?:error|unreachable)|name or service not known|name resolution|service unavailable|bad gateway|internal server error|(?:http|status|code)[ /:=.\d]{0,12}\b50[0234]\b"),  # noqa: E501
    (NOT_FOUND, r"not found|no such|does not exist|doesn't exist|do not exist|cannot find|can't find|could not find|filenotfound|keyerror|(?:http|status|code)[ /:=.\d]{0,12}\b404\b"),  # noqa: E501
)  # fmt: skip
PATTERNS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {name: re.compile(pattern, re.IGNORECASE) for name, pattern in _ROWS}
)
"""Class -> what its texts say, the most particular first."""
_PREFIX = re.compile(r"\s*(?:(?:tool|function)[ _-]?)?error\s*:\s*", re.IGNORECASE)
_WORD_BEFORE_COLON = re.compile(r"([a-z_]{3,30})(?::|\s*$)")


def error_class(call: RecordedCall) -> str | None:
    """The class of a failing call; None for one that did not fail."""
    if call.error is None:
        return None
    if (stated := STATED.get(call.error)) is not None:
        return stated
    return class_of_text(call.detail if call.detail.startswith(call.error) else f"{call.error}: {call.detail}")


def class_of_text(text: str) -> str:
    """The class of an error by its text."""
    text = text[:SCANNED]
    while (prefix := _PREFIX.match(text)) is not None:
        text = text[prefix.end() :]
    named = _WORD_BEFORE_COLON.match(text)
    if named is not None and named[1] in STATED:
        return STATED[named[1]]
    return next((name for name, pattern in PATTERNS.items() if pattern.search(text)), ErrorKind.TOOL.value)
