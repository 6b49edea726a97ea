"""Resumable work in a directory, and its lock."""

import copy

import pytest

from crashing import Crash, crash_at, find_unsynced
from loca import durable
from loca.durable import Resumable, create, lock

REQUEST = {"provenance": {"seed": 0, "versions": {"jax": "1"}}, "count": 3, "shape": [2, 1]}


def build(work):
    """Write three pieces, and join them to one directory."""
    for key in "abc":
        if key not in work:
            work.write(key, lambda file, key=key: file.write(key.encode()))
    joined = work.directory / "data"
    joined.mkdir(exist_ok=True)
    (joined / "all").write_bytes(b"".join(work.path(key).read_bytes() for key in sorted(work.keys())))
    return joined


def create_at(path, request=REQUEST, **options):
    create(path, request, lambda path: REQUEST, build, **options)


def test_pieces_are_kept_and_computed_once(tmp_path):
    with Resumable(tmp_path / "work", REQUEST) as work:
        work.write("a", lambda file: file.write(b"1"))
        work.write("b")
        assert work.once("c", lambda: (1, 2)) == [1, 2]
    with Resumable(tmp_path / "work", REQUEST) as work:
        assert work.keys() == {"a", "b", "c"}
        assert ("a" in work, "d" in work, work.path("a").read_bytes()) == (True, False, b"1")
        assert work.once("c", lambda: pytest.fail("computed twice")) == [1, 2]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"provenance": {"seed": 1, "versions": {"jax": "2"}}}, "provenance.seed is 0, now requested: 1"),
        ({"provenance": {"seed": 0, "versions": {"jax": "2"}}}, 'provenance.versions.jax is "1", now requested: "2"'),
        ({"count": 4, "shape": [9]}, "count is 3, now requested: 4"),
        ({"more": 1}, "more is null, now requested: 1"),
    ],
)
def test_another_request_is_refused(tmp_path, change, said):
    with Resumable(tmp_path, REQUEST):
        pass
    expected = f"was started with other arguments ({said}); pass the same arguments to resume"
    with pytest.raises(FileExistsError) as error, Resumable(tmp_path, REQUEST | change):
        pass
    assert expected in str(error.value)
    with lock(tmp_path):  # what was refused holds no lock
        pass


def test_what_a_killed_process_left_half_written_is_removed(tmp_path):
    with Resumable(tmp_path, REQUEST) as work:
        leftover = work.pieces / ".a.1234"
        leftover.write_bytes(b"half")
    with Resumable(tmp_path, REQUEST) as work:
        assert work.keys() == set()
        assert not leftover.exists()


def test_workers_write_pieces_of_their_request_only(tmp_path):
    with Resumable(tmp_path / "work", REQUEST) as work:
        orphan = copy.copy(work)  # which pickles alike
        orphan.write("a")
        assert "a" in work
        with pytest.raises(RuntimeError, match="another process"), orphan:
            pass
    with Resumable(tmp_path / "other", REQUEST | {"count": 4}) as other:
        assert other.pieces.name != orphan.pieces.name


def test_a_crash_before_any_change_of_the_disk_loses_nothing(tmp_path, monkeypatch):
    moment = 0
    while True:
        path = tmp_path / f"{moment}.made"
        with monkeypatch.context() as patch:
            changes = crash_at(patch, moment, (durable, "sync"), (durable, "sync_tree"))
            try:
                create_at(path)
            except Crash:
                assert changes() > moment
            else:
                break
        create_at(path)
        assert [each.name for each in path.iterdir()] == ["all"]
        assert (path / "all").read_bytes() == b"abc"
        assert not path.with_name(f"{moment}.made.partial").exists()
        moment += 1
    assert moment > 6


def test_it_gets_its_name_when_all_of_it_is_on_the_disk(tmp_path, monkeypatch):
    unsynced = find_unsynced(monkeypatch, "rename")
    create_at(tmp_path / "made")
    assert unsynced[tmp_path / "made"] == []


def test_what_exists_is_created_once_and_not_replaced(tmp_path):
    path = tmp_path / "made"
    create_at(path)
    modified = (path / "all").stat().st_mtime_ns
    newer = REQUEST | {"provenance": {"seed": 0, "versions": {"jax": "2"}}}
    create_at(path, newer, ignore={"versions"})
    assert (path / "all").stat().st_mtime_ns == modified
    with pytest.raises(FileExistsError, match=r"already exists and holds something else \(count is 3.*another name"):
        create_at(path, REQUEST | {"count": 4})


def test_a_directory_is_locked_until_the_block_ends(tmp_path):
    with lock(tmp_path / "new"), pytest.raises(RuntimeError, match="new is being written by another process"):
        lock(tmp_path / "new").__enter__()
    with lock(tmp_path / "new"):
        pass
