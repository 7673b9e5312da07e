"""What people look at: pages and charts of trials and sweeps.

`pages` writes the report of one trial, `sweep_pages` that of a sweep; matplotlib lives in `charts` and
`sweep_charts` alone. Everything an agent wrote (notes, logs, file names, metric names) is hostile input:
it passes `text.clean` and the escaping of the output format before it reaches a page.
"""
