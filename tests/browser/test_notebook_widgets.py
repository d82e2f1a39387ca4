"""What a notebook's page makes of the widgets, with a model in place of the kernel."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib.resources import files

import pytest
from chromium import Page

pytestmark = pytest.mark.browser

SCRIPT = (files("orderbook") / "clients" / "widgets.js").read_text()
MODEL = """
window.made = (async () => {
  const source = URL.createObjectURL(new Blob([%s], { type: 'text/javascript' }));
  const widgets = (await import(source)).default;
  window.show = (state) => {
    const heard = {};
    const model = {
      get: (name) => state[name], send: (said) => (model.sent = said),
      on: (name, call) => (heard[name] ??= []).push(call),
      put: (changes) => {
        Object.assign(state, changes);
        for (const name of Object.keys(changes)) (heard[`change:${name}`] ?? []).forEach((call) => call());
      },
      tell: (said) => heard['msg:custom'].forEach((call) => call(said)),
    };
    const el = document.body.appendChild(document.createElement('div'));
    widgets.render({ model, el });
    return Object.assign(window, { model, el });
  };
  return true;
})()
"""


@pytest.fixture
def blank(open_page: Callable[[], AbstractContextManager[Page]]) -> Iterator[Page]:
    with open_page() as page:
        page.send("Page.navigate", url="about:blank")
        page.evaluate(MODEL % json.dumps(SCRIPT))
        yield page


def test_a_table_marks_what_has_changed_and_shows_texts_as_texts(blank: Page) -> None:
    state = {"kind": "table", "title": "d", "columns": ["a", "b"], "count": 3,
             "rows": [["<b>x</b>", "1"], ["y", "2"]]}  # fmt: skip
    blank.evaluate(f"void show({json.dumps(state)})")
    assert blank.evaluate("el.innerText").startswith("d: 3 rows, 2 of them shown")
    assert blank.evaluate("el.querySelectorAll('b').length") == 0
    blank.evaluate("void model.put({ rows: [['<b>x</b>', '1'], ['y', '5']] })")
    marked = "[...el.querySelectorAll('td')].filter((c) => c.style.background).map((c) => c.innerText)"
    assert blank.evaluate(marked) == ["5"]


def test_a_ladder_has_asks_above_bids(blank: Page) -> None:
    state = {
        "kind": "ladder",
        "title": "l",
        "bids": [["9", "2"], ["8", "1"]],
        "asks": [["10", "3"], ["11", "4"]],
    }
    blank.evaluate(f"void show({json.dumps(state)})")
    rows = "[...el.querySelectorAll('tr')].map((r) => [...r.children].map((c) => c.innerText))"
    assert blank.evaluate(rows) == [["", "11", "4"], ["", "10", "3"], ["2", "9", ""], ["1", "8", ""]]


def test_a_heat_map_asks_for_all_and_draws_what_it_is_told(blank: Page) -> None:
    blank.evaluate("void show({ kind: 'heat', title: 'h' })")
    assert blank.evaluate("model.sent") == {"all": True}
    pixels = """(() => {
      const canvas = el.querySelector('canvas');
      const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      return data.filter((value, place) => place % 4 === 3 && value).length;
    })()"""
    assert blank.evaluate(pixels) == 0
    blank.evaluate("void model.tell({ all: true, columns: [[[9, 2, 8, 1], [10, 3]]] })")
    first = blank.evaluate(pixels)
    blank.evaluate("void model.tell({ columns: [[[9, 2], [11, 4]]] })")
    assert 0 < first < blank.evaluate(pixels)
    assert "from 8" in blank.evaluate("el.innerText") and not blank.problems
