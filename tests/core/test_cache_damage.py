"""Compiled code that is damaged, another's, or cannot be kept: it is made anew and counted."""

import errno
import os
import pickle
import py_compile
import random
import shutil
import subprocess
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import PROJECT

from orderbook.core import code_cache, generated_code
from orderbook.core.code_cache import CacheFolder, Entry

ENTRIES = [Entry(f"name {i}", "depends", "nbc") for i in range(3)]
CONTENT = {entry: f"{entry.label} " * 50 for entry in ENTRIES}


class Evil:
    """What unpickles itself as a call: it leaves a file."""

    def __init__(self, sign: Path) -> None:
        self.sign = sign

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.sign),)


def truncated(file: Path, chance: random.Random, others: Sequence[Path]) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: chance.randrange(max(len(data), 1))])


def emptied(file: Path, chance: random.Random, others: Sequence[Path]) -> None:
    file.write_bytes(b"")


def flipped(file: Path, chance: random.Random, others: Sequence[Path]) -> None:
    data = bytearray(file.read_bytes())
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    file.write_bytes(data)


def lengthened(file: Path, chance: random.Random, others: Sequence[Path]) -> None:
    file.write_bytes(file.read_bytes() + bytes([chance.randrange(256)]))


def overwritten(file: Path, chance: random.Random, others: Sequence[Path]) -> None:
    file.write_bytes(chance.randbytes(chance.randrange(1, 4000)))


def another_pickle(file: Path, chance: random.Random, others: Sequence[Path]) -> None:
    file.write_bytes(pickle.dumps(Evil(file.parent.parent / "evil")))


def another_entry(file: Path, chance: random.Random, others: Sequence[Path]) -> None:
    """Swaps two files; two texts that are the same stay so."""
    other = chance.choice([one for one in others if one.is_file() and not one.is_symlink()] or [file])
    mine, theirs = file.read_bytes(), other.read_bytes()
    file.write_bytes(theirs)
    other.write_bytes(mine)


def a_folder(file: Path, chance: random.Random, others: Sequence[Path]) -> None:
    file.unlink()
    file.mkdir()
    (file / "full").write_text("")


def a_link(file: Path, chance: random.Random, others: Sequence[Path]) -> None:
    """To what would be whole: links are not followed."""
    kept = file.parent.parent / f"elsewhere-{file.name}"
    file.rename(kept)
    file.symlink_to(kept)


def a_dangling_link(file: Path, chance: random.Random, others: Sequence[Path]) -> None:
    file.unlink()
    file.symlink_to(file.parent / "nothing")


def a_pipe(file: Path, chance: random.Random, others: Sequence[Path]) -> None:
    file.unlink()
    os.mkfifo(file)


def unreadable(file: Path, chance: random.Random, others: Sequence[Path]) -> None:
    """Root reads it in any case."""
    file.chmod(0)


def writable_by_others(file: Path, chance: random.Random, others: Sequence[Path]) -> None:
    file.chmod(0o666)


def deleted(file: Path, chance: random.Random, others: Sequence[Path]) -> None:
    file.unlink()


ALL = [
    truncated,
    emptied,
    flipped,
    lengthened,
    overwritten,
    another_pickle,
    another_entry,
    a_folder,
    a_link,
    a_dangling_link,
    a_pipe,
    unreadable,
    writable_by_others,
    deleted,
]
# After these the entry is as if it had never been, or, for root, as it was.
UNCOUNTED = (deleted, unreadable, another_entry)


@pytest.fixture(autouse=True)
def own_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test counts from zero and opens its folders anew."""
    monkeypatch.setattr(code_cache, "counts", code_cache.CacheCounts())
    monkeypatch.setattr(code_cache, "_opened", {})
    monkeypatch.setenv("ORDERBOOK_CACHE", os.environ["ORDERBOOK_CACHE"])


def opened(root: Path, monkeypatch: pytest.MonkeyPatch) -> CacheFolder:
    monkeypatch.setenv("ORDERBOOK_CACHE", str(root))
    return code_cache.cache_folder("code")


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(ALL)), min_size=1, max_size=4), st.randoms())
def test_an_entry_is_as_written_or_not_there(
    tmp_path_factory: pytest.TempPathFactory, damages: list[tuple[int, Any]], chance: random.Random
) -> None:
    root = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(code_cache, "_opened", {})
        folder = opened(root, monkeypatch)
        for entry, text in CONTENT.items():
            folder.write(entry, text.encode())
            folder.keep_text(f"{entry.label}.py", text)
        for place, damage in damages:
            files = files_of(folder.path)
            file = files[place % len(files)]
            if file.is_file() and not file.is_symlink():
                damage(file, chance, files)
        for entry, text in CONTENT.items():
            assert folder.read(entry) in (text.encode(), None)
            folder.write(entry, text.encode())
            folder.keep_text(f"{entry.label}.py", text)
            assert folder.read(entry) == text.encode()
            assert (folder.path / f"{entry.label}.py").read_text() == text
        assert not (root / "evil").exists()
        assert not list(folder.path.glob("*.tmp"))


def test_each_damaged_entry_is_counted_once_and_the_first_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = opened(tmp_path, monkeypatch)
    for entry in ENTRIES:
        folder.write(entry, b"whole")
        flipped(folder.path / entry.file, random.Random(1), [])
    assert [folder.read(entry) for entry in ENTRIES * 2] == [None] * 6
    assert code_cache.counts.rebuilt == 3
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told == [
        f"compiled cache: {ENTRIES[0].file} is damaged; such entries are rebuilt, in {folder.path}"
    ]


class FailingOs(types.SimpleNamespace):
    """`os`, of which one call that touches the disk fails, and, where `lasting`, all after it."""

    CALLS = ("open", "fstat", "mkdir", "replace", "rename", "unlink", "listdir", "stat")

    def __init__(self, after: int, error: int, lasting: bool) -> None:
        super().__init__(**vars(os))
        self.left, self.error, self.lasting, self.failed = after, error, lasting, False
        for name in self.CALLS:
            setattr(self, name, self._counted(getattr(os, name)))
        self.fdopen = self._file

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left == -1 or (self.failed and self.lasting):
                self.failed = True
                raise OSError(self.error, os.strerror(self.error))
            return function(*arguments, **named)

        return call

    @contextmanager
    def _file(self, *arguments: Any, **named: Any) -> Iterator[Any]:
        with os.fdopen(*arguments, **named) as file:
            yield types.SimpleNamespace(
                read=self._counted(file.read), write=self._counted(lambda data: self._written(file, data))
            )
            self._counted(file.flush)()

    def _written(self, file: Any, data: bytes) -> None:
        """A part is on the disk when the rest finds no room."""
        file.write(data[: len(data) // 2])
        self._counted(file.write)(data[len(data) // 2 :])


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize(
    "error", [errno.EIO, errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EMFILE]
)
def test_any_call_to_the_disk_may_fail(tmp_path: Path, error: int, lasting: bool) -> None:
    """Opening the folder, reading, writing and replacing an entry: speed is lost, and nothing else."""
    after, failed = 0, True
    while failed:
        root = tmp_path / str(after)
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(code_cache, "_opened", {})
            folder = opened(root, monkeypatch)
            folder.write(ENTRIES[0], b"whole")
            a_folder(folder.path / ENTRIES[0].file, random.Random(1), [])
            folder.write(ENTRIES[1], b"whole")
            monkeypatch.setattr(code_cache, "_opened", {})
            failing = FailingOs(after, error, lasting)
            monkeypatch.setattr(code_cache, "os", failing)
            folder = code_cache.cache_folder("code")
            assert folder.read(ENTRIES[0]) is None
            assert folder.read(ENTRIES[1]) in (b"whole", None)
            folder.write(ENTRIES[0], b"new")
            folder.write(ENTRIES[1], b"new")
            folder.keep_text("text.py", "text")
            monkeypatch.setattr(code_cache, "os", os)
            folder = CacheFolder(folder.path, folder._handle)
            assert folder.read(ENTRIES[0]) in (b"new", None)
            assert folder.read(ENTRIES[1]) in (b"new", b"whole", None)
            failed = failing.failed
            assert not list(root.rglob("*.tmp")) or lasting
        after += 1
    assert after > 15


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757, 0o1777])
@pytest.mark.parametrize("which", ["", "code"])
def test_a_folder_that_others_can_write_is_not_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    mode: int,
    which: str,
) -> None:
    folder = opened(tmp_path / "cache", monkeypatch)
    folder.write(ENTRIES[0], b"planted")
    bad = tmp_path / "cache" / which
    bad.chmod(mode)
    monkeypatch.setattr(code_cache, "_opened", {})
    other = code_cache.cache_folder("code")
    assert other.read(ENTRIES[0]) is None
    other.write(ENTRIES[0], b"own")
    assert other.read(ENTRIES[0]) == b"own"
    assert not other.path.is_relative_to(tmp_path)
    # Processes that this one starts use it, too, and are told nothing.
    assert Path(os.environ["ORDERBOOK_CACHE"]) == other.path.parent == code_cache.cache_root()
    assert [record.getMessage() for record in caplog.records] == [
        f"compiled cache: {bad} can be written by others (mode {mode:04o}); this start compiles into a "
        f"temporary folder; make it your own: chmod go-w '{bad}'"
    ]
    shutil.rmtree(other.path.parent)


def another_user(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have it belong to somebody else: root gives it away, another becomes somebody else."""
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)


def test_a_folder_of_another_user_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = opened(tmp_path / "cache", monkeypatch)
    folder.write(ENTRIES[0], b"planted")
    another_user(tmp_path / "cache", monkeypatch)
    monkeypatch.setattr(code_cache, "_opened", {})
    other = code_cache.cache_folder("code")
    assert other.read(ENTRIES[0]) is None
    assert "belongs to user" in caplog.text and "ORDERBOOK_CACHE" in caplog.text
    shutil.rmtree(other.path.parent, ignore_errors=True)


def test_a_file_of_another_user_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it may be left from when others could write in the folder."""
    if os.geteuid():
        pytest.skip("only root gives files away")
    folder = opened(tmp_path, monkeypatch)
    folder.write(ENTRIES[0], b"planted")
    another_user(folder.path / ENTRIES[0].file, monkeypatch)
    assert folder.read(ENTRIES[0]) is None
    assert code_cache.counts.rebuilt == 1


@pytest.mark.parametrize("umask", [0, 0o002, 0o022, 0o077])
def test_folders_are_made_for_the_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, umask: int
) -> None:
    before = os.umask(umask)
    try:
        folder = opened(tmp_path / "a" / "b", monkeypatch)
        folder.write(ENTRIES[0], b"whole")
    finally:
        os.umask(before)
    made = [tmp_path / "a", tmp_path / "a" / "b", folder.path]
    assert [path.stat().st_mode & 0o777 for path in made] == [0o700] * 3
    assert folder.read(ENTRIES[0]) == b"whole"
    assert not caplog.records


def test_a_folder_as_earlier_versions_made_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache" / "code").mkdir(parents=True)
    for folder in (tmp_path / "cache", tmp_path / "cache" / "code"):
        folder.chmod(0o755)
    assert opened(tmp_path / "cache", monkeypatch).path == tmp_path / "cache" / "code"


@pytest.mark.parametrize(
    "place", ["file", "nowhere/cache", "/proc/cache", "dangling", "~nobody-of-that-name/x"]
)
def test_where_no_folder_can_be_a_temporary_one_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "nowhere").write_text("")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing" / "there")
    named = place if place[0] in "/~" else str(tmp_path / place)
    monkeypatch.setenv("ORDERBOOK_CACHE", named)
    folder = code_cache.cache_folder("code")
    folder.write(ENTRIES[0], b"whole")
    assert folder.read(ENTRIES[0]) == b"whole"
    assert len(caplog.records) == 1
    shutil.rmtree(folder.path.parent)


def test_a_folder_that_is_removed_meanwhile_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(tmp_path / "cache", monkeypatch)
    shutil.rmtree(tmp_path / "cache")
    folder = code_cache.cache_folder("code")
    folder.write(ENTRIES[0], b"whole")
    assert (tmp_path / "cache" / "code" / ENTRIES[0].file).exists()


def test_what_processes_left_that_ended_while_they_wrote_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = opened(tmp_path, monkeypatch)
    for name, age in (("old", 7200), ("new", 60)):
        file = folder.path / f"{name}.tmp"
        file.write_text("part")
        os.utime(file, (file.stat().st_mtime - age,) * 2)
    folder.write(ENTRIES[0], b"whole")
    assert [path.name for path in folder.path.glob("*.tmp")] == ["new.tmp"]


def test_a_module_is_never_made_of_what_the_folder_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of an edited text, nor of Python's own bytecode of another text beside it."""
    monkeypatch.setenv("ORDERBOOK_CACHE", str(tmp_path))

    def published() -> types.ModuleType:
        for name in [name for name in sys.modules if name.startswith("orderbook_test_made_of")]:
            del sys.modules[name]
        return generated_code.publish("test_made_of", "value = 1\n")

    assert published().value == 1
    sign = tmp_path / "evil"
    evil = f"import os\nos.mkdir({str(sign)!r})\nvalue = 2\n"
    (text,) = tmp_path.rglob("*.py")
    text.write_text(evil)
    py_compile.compile(str(text), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    (code,) = tmp_path.rglob("*.code")
    module = published()
    assert (module.value, text.read_text()) == (1, "value = 1\n")
    code.write_bytes(code.read_bytes()[:-1])
    assert published().value == 1
    assert not sign.exists()
    assert code_cache.counts.rebuilt == 2


PROGRAM = """
import orderbook
from orderbook.core.code_cache import counts
engine = orderbook.Engine(orderbook.compile(
    "CREATE VIEW depth AS SELECT symbol, SUM(volume) AS volume FROM bids GROUP BY symbol"
))
row = {"ts": 1, "venue": "X", "symbol": "A", "id": 7, "broker_id": 0, "volume": 100, "price": "2.5"}
engine.insert("bids", row)
engine.insert("bids", {**row, "id": 8})
print(engine["depth"]["A"].volume, counts.rebuilt, counts.unwritten)
"""


def run(folder: Path, program: str = PROGRAM, **variables: str) -> tuple[list[str], str]:
    environment = os.environ | {"ORDERBOOK_CACHE": str(folder), "PYTHONPATH": str(PROJECT)} | variables
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of a small program, which others copy."""
    folder = tmp_path_factory.mktemp("warm") / "cache"
    assert run(folder) == (["200.00000000", "0", "0"], "")
    return folder


@pytest.mark.sampled(2)
def test_a_program_whose_cache_is_damaged_in_every_way_is_rebuilt(warm: Path, tmp_path: Path) -> None:
    folder, chance = tmp_path / "cache", random.Random(1)
    shutil.copytree(warm, folder)
    files = files_of(folder)
    counted = 0
    for number, file in enumerate(files):
        damage = ALL[number % len(ALL)]
        if file.suffix == ".py" and damage is another_pickle:
            damage = overwritten
        damage(file, chance, [] if damage is another_entry else files)
        counted += damage not in UNCOUNTED
    found, told = run(folder)
    # What only others call is not asked for where those are whole.
    assert found[0] == "200.00000000" and counted // 2 < int(found[1]) <= counted
    assert told.count("\n") == 1 and "compiled cache: " in told and f"rebuilt, in {folder}" in told
    assert not list(tmp_path.glob("**/evil"))
    assert run(folder) == (["200.00000000", "0", "0"], "")


SMALL = """
import errno, os
def full(path, flags, *rest, opened=os.open, **named):
    if flags & os.O_CREAT:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return opened(path, flags, *rest, **named)
os.open = full
from orderbook.core.generated_code import publish_text
from orderbook.core.code_cache import counts
text = "from orderbook.core.jit import jit\\n@jit()\\ndef f(x):\\n    return x + 1\\n"
module = publish_text("small", text)
print(module.f(1), counts.rebuilt, counts.unwritten)
"""


def test_a_program_runs_without_a_place_for_its_code(warm: Path, tmp_path: Path) -> None:
    """Every write fails, on an empty folder and on one that has all."""
    found, told = run(tmp_path / "empty", SMALL)
    assert found == ["2", "0", "4"]
    assert told.count("\n") == 1 and "cannot write" in told and "No space left on device" in told
    assert run(warm, SMALL[: SMALL.index("from")] + PROGRAM) == (["200.00000000", "0", "0"], "")


CALLER = """
from orderbook.core.jit import jit
import other
from other import called
@jit()
def f(x):
    return called(x) * other.FACTOR
"""
STALE = """
import caller
from orderbook.core.native_code import counts
print(caller.f(5), counts.read, counts.made)
"""


def test_what_was_compiled_of_another_text_is_not_used(tmp_path: Path) -> None:
    """Also where that is the text of a function called, or of a constant, in another file."""
    (tmp_path / "caller.py").write_text(CALLER)
    path = os.pathsep.join((str(PROJECT), str(tmp_path)))
    for added, factor, expected in ((1, 2, "12"), (2, 2, "14"), (2, 3, "21"), (1, 2, "12")):
        other = f"@jit()\ndef called(x):\n    return x + {added}\nFACTOR = {factor}\n"
        (tmp_path / "other.py").write_text(f"from orderbook.core.jit import jit\n{other}")
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        found, _ = run(tmp_path / "cache", STALE, PYTHONPATH=path)
        assert found[0] == expected
    assert found == ["12", "1", "0"]
