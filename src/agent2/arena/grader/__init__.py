"""The grader: takes submissions in, scores them on hidden items, and tells one number for each.

    snapshot   private copy of the submitted folder       store      what was submitted and scored (SQLite)
    admission  what the copy must be to be scored         service    the queue: submit, wait, drain, resume
    job        what parent and child say to each other    child      the process that evaluates one checkpoint
    evaluator  starts the child, with a deadline          api        HTTP routes        server   socket and thread

Only this package writes grades. Nothing that an agent can write is ever read back as state.
"""
