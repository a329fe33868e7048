"""The old protocol over the new one: the old contract, and the core of today, on a new storage."""

from pathlib import Path
from typing import Any

import quire
from quire.next.storage.adapter import OldStorage
from quire.next.storage.sqlite import SQLiteStorage
from quire.testing import StorageContract

ANY_ORDER = """
    a_context_is_copied_from_memory a_copy_that_is_made_already_is_left_alone a_fork_keeps_the_groups_and_their_order
    a_group_is_in_the_order_of_its_bytes equal_orders_are_sorted_by_key a_put_moves_a_record_between_groups
    a_patch_changes_the_value_and_keeps_the_place a_put_replaces_the_whole_record empty_values_are_values
    every_accepted_name_is_a_context_of_its_own keys_and_groups_reach_their_limits
    the_commit_lies_on_top_of_what_was_taken the_first_commit_makes_the_context values_orders_and_heads_are_any_bytes
    the_writes_of_a_commit_apply_in_their_order what_either_writes_later_is_not_seen_by_the_other
    whatever_is_done_to_a_family_of_forks_memory_agrees
"""
"""Rules with orders of any bytes: the core gives numbers of eight bytes."""


class TestAdapter(StorageContract):
    for _name in ANY_ORDER.split():
        locals()[f"test_{_name}"] = None

    def open_storage(self, place: Path) -> Any:
        return OldStorage(SQLiteStorage(place))


def test_a_context_lives_on_a_new_storage(tmp_path: Path) -> None:
    for turn in range(3):
        with quire.open(OldStorage(SQLiteStorage(tmp_path / "a.db")), "c", budget=2_000, key="k") as ctx:
            for number in range(40):
                ctx.user(f"Question {turn} {number} about the pump. " * 4)
                ctx.render()
                ctx.assistant(f"Answer {number}. " * 9)
            notes = [ctx.pages.create_detail_page(name, "", "text", "mem-0") for name in ("one", "two")]
            ctx.pages.move_page(notes[1], "mem-0", before=notes[0])
            ctx.undo(list(ctx.history())[-1])
            assert ctx.check() == []
            assert len(ctx.messages()) == 80 * (turn + 1)
            assert ctx.find("pump")
    with quire.open(OldStorage(SQLiteStorage(tmp_path / "a.db")), "c") as ctx:
        fork = ctx.fork("f")
        fork.user("more")
        assert len(fork.messages()) == len(ctx.messages()) + 1 == 241
