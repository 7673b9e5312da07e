"""Builds the login page that the request asks for: reads its ids, rules, messages and looks, and writes three files."""

import json
import os
import re
from pathlib import Path

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="stylesheet" href="style.css">
</head>
<body>
<main>
<h1>{title}</h1>
<form id="form" novalidate>
<label for="{account}">E-mail or phone</label>
<input id="{account}" autocomplete="username">
<label for="{password}">Password</label>
<input id="{password}" type="password" autocomplete="current-password">
<button id="{send}">Sign in</button>
</form>
<p id="{message}" role="status"></p>
</main>
<script src="script.js"></script>
</body>
</html>
"""
STYLE = """body {{ margin: 0; font: 1rem/1.5 sans-serif; background: {background}; }}
main {{ box-sizing: border-box; max-width: {column}px; margin: 2rem auto; padding: 1.5rem; background: #fff; }}
h1 {{ margin-top: 0; font-size: 1.5rem; color: {accent}; }}
label {{ display: block; margin-top: 1rem; }}
input {{ box-sizing: border-box; width: 100%; padding: 0.5rem; font: inherit; }}
button {{ margin-top: 1rem; padding: 0.5rem 1rem; border: 0; font: inherit; color: #fff; background: {accent}; }}
"""
SCRIPT = """const texts = {texts};
const valueOf = (id) => document.getElementById(id).value;
const messageFor = (account, password) => {{
  const isAddress = /^[^@]+@[^@]+\\.[^@]+$/.test(account);
  if (!isAddress && !/^[0-9]{{{n_digits}}}$/.test(account)) return texts.unknown;
  return password.length < {n_characters} ? texts.short : `${{texts.welcome}} ${{account}}`;
}};
document.getElementById("form").addEventListener("submit", (event) => {{
  event.preventDefault();
  document.getElementById("{message}").textContent = messageFor(valueOf("{account}"), valueOf("{password}"));
}});
"""


def read_request(text: str) -> dict[str, str]:
    """What the page has to have, by name. Raises ValueError for a request of another kind."""
    patterns = {
        "title": r'title and the heading "([^"]+)"',
        "account": r"A field #([\w-]+)",
        "password": r"password field #([\w-]+)",
        "send": r"a button #([\w-]+)",
        "message": r"one message into #([\w-]+)",
        "n_digits": r"exactly (\d+) digits",
        "n_characters": r"at least (\d+) characters",
        "unknown": r'message into #[\w-]+: "([^"]+)"',
        "short": r'or "([^"]+)" for a shorter password',
        "welcome": r'or else "([^"]+) ACCOUNT"',
        "column": r"at most (\d+) pixels",
        "background": r"of the page, on [^(]+\((#\w+)\)",
        "accent": r"buttons are [^(]+\((#\w+)\)",
    }
    plain = " ".join(text.split())
    matches = {name: re.search(pattern, plain) for name, pattern in patterns.items()}
    if missing := [name for name, match in matches.items() if match is None]:
        raise ValueError(f"this is no request for a login page: {', '.join(missing)} not found")
    return {name: match[1] for name, match in matches.items() if match is not None}


def main() -> None:
    """Write the page."""
    folder = Path(os.environ["WORKSPACE"]) / "code" / "page"
    request = read_request((folder / "REQUEST.md").read_text())
    texts = json.dumps({name: request[name] for name in ("unknown", "short", "welcome")})
    (folder / "index.html").write_text(PAGE.format(**request))
    (folder / "style.css").write_text(STYLE.format(**request))
    (folder / "script.js").write_text(SCRIPT.format(**request, texts=texts))
    print("page-oracle: wrote the page")


if __name__ == "__main__":
    main()
