"""Parts of a text that are not translated: variables, addresses of the web and of mail."""

from __future__ import annotations

import re
from collections.abc import Callable

from attent.documents.inline import Element

# {name}, {{name}}, ${name}, %s, %(name)s, %1$s, :name: of messages; URLs; addresses of mail.
PLACEHOLDER = re.compile(
    r"\$?\{\{?[\w.:!%$ -]{0,64}\}?\}"
    r"|%(?:\(\w{1,64}\))?(?:\d{1,3}\$)?[-+#0]{0,4}\d{0,4}(?:\.\d{1,3})?[sdfgxi@](?!\w)"
    r"|(?:https?|ftp)://[^\s<>\"']{1,2000}[^\s<>\"'.,;:!?)\]]"
    r"|(?<![\w.+-])[\w.+-]{1,64}+@[\w-]{1,64}(?:\.[\w-]{1,64}){1,8}"
)
# One of these is in each of them; most texts have none.
PLACEHOLDER_MARK = re.compile(r"[{%@]|://")


def cut_placeholders(text: str, escape: Callable[[str], str] = str) -> list[Element | str]:
    """Return a text with each placeholder as an element without text.

    Args:
        text: to be translated.
        escape: writes a placeholder between tags.
    """
    if PLACEHOLDER_MARK.search(text) is None:
        return [text] if text else []
    parts: list[Element | str] = []
    position = 0
    for match in PLACEHOLDER.finditer(text):
        parts += [text[position : match.start()], Element(escape(match[0]))]
        position = match.end()
    return [part for part in (*parts, text[position:]) if part]
