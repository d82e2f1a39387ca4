"""Parts of a report's page as HTML: the page itself, sections, headline numbers, tables."""

from collections.abc import Container, Iterable, Sequence
from importlib import resources

from orderbook.core.errors import visible_html


def page(title: str, body: Iterable[str]) -> str:
    """A whole page with this body."""
    style, script = (_resource(name) for name in ("report.css", "report.js"))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{visible_html(title)}</title>'
        f"<style>{style}</style></head><body><main>{''.join(body)}</main>"
        f'<div id="readout" hidden></div><script>{script}</script></body></html>\n'
    )


def section(title: str, *parts: str, note: str = "") -> str:
    """A part of the page with its heading, and what it needs to be understood."""
    said = f'<p class="note">{visible_html(note)}</p>' if note else ""
    return f"<section><h2>{visible_html(title)}</h2>{said}{''.join(parts)}</section>"


def tiles(numbers: Iterable[tuple[str, str, str, str]]) -> str:
    """Headline numbers: (name, value, what it is of, class)."""
    items = "".join(
        f'<div class="tile"><span>{visible_html(name)}</span><b class="{kind}">{visible_html(value)}</b>'
        f"<small>{visible_html(of)}</small></div>"
        for name, value, of, kind in numbers
    )
    return f'<div class="tiles">{items}</div>'


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """A table whose first `texts` columns are texts, the others numbers."""
    kinds = ["" if place < texts else ' class="number"' for place in range(len(heads))]
    top = "".join(f"<th{kind}>{visible_html(head)}</th>" for head, kind in zip(heads, kinds, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{kind}>{visible_html(c)}</td>' for c, kind in zip(row, kinds, strict=True))}</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def money_table(
    first: str, heads: Sequence[str], money: Container[str], rows: Sequence[tuple[str, str, Sequence[str]]]
) -> str:
    """A table of (name, currency, cells): heads that are in `money` name the currency that all rows have,
    else each row does."""
    currencies = {currency for _, currency, _ in rows}
    if len(currencies) == 1:
        shared = [money_head(head, *currencies) if head in money else head for head in heads]
        return table([first, *shared], [[name, *cells] for name, _, cells in rows])
    return table([first, "currency", *heads], [[name, own, *cells] for name, own, cells in rows], 2)


def money_head(name: str, currency: str) -> str:
    """What an amount is of, and in which currency, where that is known."""
    return f"{name}, {currency}" if currency else name


def folded(title: str, body: str, opened: bool = False) -> str:
    """What is shown when its title is clicked."""
    return f"<details{' open' if opened else ''}><summary>{visible_html(title)}</summary>{body}</details>"


def _resource(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")
