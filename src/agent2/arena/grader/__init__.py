"""The grader: takes submissions in, scores them on hidden items, and returns one number for each.

    snapshot   private copy of the submitted folder       store      what was submitted and scored (SQLite)
    admission  what the copy must be to be scored         service    the queue: submit, wait, drain, resume
    job        what parent and child say to each other    child      the process that evaluates one checkpoint
    answering  how the child reads and answers            evaluator  starts it, contained, with a deadline
    drafts     the card while the child writes it         api        HTTP routes        server   socket and thread
    guard      size, depth and pace of a request          connection one client: how many, how slow

Only this package writes grades. Nothing that an agent can write is ever read back as state.
"""
