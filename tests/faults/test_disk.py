"""The model of a disk: what fsync promises is kept, and what it does not promise may go."""

from faults.disk import Replay, Tree, fates
from faults.operations import Operation

WHOLE_WRITE = [
    Operation("create", "new"),
    Operation("write", "new", data=b"text"),
    Operation("sync file", "new"),
    Operation("rename", "new", "kept"),
    Operation("sync folder", "."),
]


def states(before: Tree, operations: list[Operation], cut: int) -> dict[str, Tree]:
    replay = Replay(before, operations)
    return {name: replay.after(cut, fate) for name, fate in fates(1, 40)}


def test_a_whole_write_is_there_whatever_becomes_of_the_rest() -> None:
    assert set(states((), WHOLE_WRITE, 5).values()) == {(("kept", b"text"),)}


def test_before_the_folder_is_synchronised_there_is_the_old_file_or_the_new() -> None:
    found = set(states((("kept", b"old"),), WHOLE_WRITE, 4).values())
    assert {dict(state)["kept"] for state in found} == {b"old", b"text"}


def test_a_renaming_may_survive_without_the_data() -> None:
    without_sync = [operation for operation in WHOLE_WRITE if operation.kind != "sync file"]
    found = states((("kept", b"old"),), without_sync, 4)
    assert found["names without data"] == (("kept", b""),)
    assert found["zeros"] == (("kept", b"\0\0\0\0"),)


def test_a_file_is_not_found_where_its_folder_is_lost() -> None:
    operations = [
        Operation("make folder", "run"),
        Operation("create", "run/file"),
        Operation("write", "run/file", data=b"text"),
        Operation("sync file", "run/file"),
        Operation("sync folder", "run"),
    ]
    assert states((), operations, 5)["lost"] == ()
    assert set(states((), [*operations, Operation("sync folder", ".")], 6).values()) == {
        (("run", None), ("run/file", b"text"))
    }


def test_writes_may_be_lost_each_for_itself() -> None:
    operations = [
        Operation("create", "log"),
        Operation("sync folder", "."),
        Operation("write", "log", data=b"one."),
        Operation("write", "log", offset=4, data=b"two."),
    ]
    found = {dict(state)["log"] for state in states((), operations, 4).values()}
    assert {b"", b"one.", b"\0\0\0\0two.", b"one.two."} < found


def test_removed_is_removed_only_after_a_synchronisation() -> None:
    before = (("old", b"text"),)
    assert states(before, [Operation("remove", "old")], 1)["lost"] == before
    assert (
        states(before, [Operation("remove", "old"), Operation("sync folder", ".")], 2)["lost"] == ()
    )
