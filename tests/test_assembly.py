"""Which views a run compiles."""

from pathlib import Path

import pytest

from orderbook.assembly import assemble
from orderbook.configuration import load_configuration
from orderbook.errors import ConfigurationError

FILES = {
    "market.sql": "CREATE VIEW lowest AS SELECT symbol, MIN(price) AS price FROM asks GROUP BY symbol;\n"
    "CREATE VIEW highest AS SELECT symbol, MAX(price) AS price FROM bids GROUP BY symbol;\n",
    "looking_here.py": "from strategies import Strategy, on_view\n\n\nclass Looking(Strategy):\n"
    '    @on_view("highest", when="price > 1")\n    def seen(self, event):\n        pass\n',
    "mine.toml": '[run]\nviews = ["market.sql"]\nstrategies = ["looking_here:Looking"]\n',
}


def test_strategies_alone_find_the_views_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    configuration = load_configuration(Path("mine.toml"))
    assert assemble(configuration).views == ("lowest", "highest")
    alone = assemble(configuration.without_views())
    assert alone.views == ()
    assert "highest" in {view.name for view in alone.program.catalog.views}
    with pytest.raises(ConfigurationError, match="strategy Looking looks at view 'highest'"):
        assemble(configuration.with_run(views=()))
