"""Who did what stays written down."""

from datetime import UTC, datetime, timedelta

from lakehouse.governance import audit


def test_an_entry_has_the_user_who_acts_where_nobody_is_named(lake):
    entry = audit.note(lake, "declare source", "shop", {"consent": "given"})
    assert entry.actor == audit.user()
    found = audit.entries(lake)
    assert found["detail"].to_list() == ['{"consent":"given"}']


def test_entries_are_found_by_action_object_actor_and_time_newest_first(lake):
    audit.note(lake, "review", "ep-1", actor="ada, flow run 7")
    audit.note(lake, "review", "ep-2", actor="bob")
    audit.note(lake, "export", "ts-1", actor="ada")
    assert audit.entries(lake)["object"].to_list() == ["ts-1", "ep-2", "ep-1"]
    assert audit.entries(lake, action="review", actor="ada")["object"].to_list() == ["ep-1"]
    assert audit.entries(lake, object="ep-")["object"].to_list() == ["ep-2", "ep-1"]
    assert audit.entries(lake, limit=1)["object"].to_list() == ["ts-1"]
    assert audit.entries(lake, since=datetime.now(UTC) + timedelta(hours=1)).is_empty()
