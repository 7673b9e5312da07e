"""Writes the fields and the button of a login page with the ids that the request names, and no script."""

import os
import re
from pathlib import Path


def main() -> None:
    """Write index.html."""
    folder = Path(os.environ["WORKSPACE"]) / "code" / "page"
    named = re.findall(r"(?:field|button|message into) #([\w-]+)", (folder / "REQUEST.md").read_text())
    account, password, send, message = named[:4]
    (folder / "index.html").write_text(f"""<!doctype html>
<html lang="en"><head><meta name="viewport" content="width=device-width, initial-scale=1"><title>Sign in</title></head>
<body><main><h1>Sign in</h1>
<label for="{account}">E-mail or phone</label> <input id="{account}">
<label for="{password}">Password</label> <input id="{password}" type="password">
<button id="{send}" type="button">Sign in</button><p id="{message}"></p></main></body></html>
""")
    print("page-naive: wrote a page that does nothing")


if __name__ == "__main__":
    main()
