"""The grader: takes submissions in, scores them on hidden items, and returns one number for each.

    submission   a private copy of the submitted folder, and what it must be to be scored
    store        what was submitted and scored (SQLite)          service   the queue: submit, wait, drain, resume
    job          what the grader and its child say to each other child     the process that plays one checkpoint
    evaluator    starts it, contained, with a deadline           server    HTTP routes, socket, limits of a request

Only this package writes grades. Nothing that an agent can write is ever read back as state.
"""
