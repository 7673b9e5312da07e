"""The tool world: a model acts by writing tool calls, and is judged by their results.

`calls` reads them out of a message, `spec` says what a tool takes and what it may do, `faults` breaks tools on
purpose, `world` is the environment, `trace` counts what happened. What the tools do is a `Toolbox`: pure functions
(`catalogue`), APIs that must be searched for first (`apis`), a small repository (`repository`,
`programs`). Nothing that a model writes is ever executed as Python.
"""
