"""The tool world: a model acts by writing tool calls, and is judged by their results.

`calls` reads them out of a message, `world` is the environment, which breaks tools on purpose where asked and counts
what happened. What the tools do is a `Toolbox`: pure functions, APIs that must be searched for first, a small
repository (`toolboxes`). Nothing that a model writes is ever executed as Python.
"""
