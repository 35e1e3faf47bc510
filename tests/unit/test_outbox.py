"""Who is still to get what, and when the next try is."""

from hypothesis import given, settings
from hypothesis import strategies as st

from rigd.supervise.alert_state import Level, Message
from rigd.supervise.outbox import (
    BATCH,
    KEEP_S,
    KEPT,
    LIMIT,
    LONGEST_WAIT_S,
    Kept,
    Outbox,
    Outcome,
    due,
    put,
    settle,
    tidy,
)

NOW_S = 1000.0


def message(number: int, *, at_s: float = NOW_S) -> Message:
    return Message(id=str(number), at_s=at_s, level=Level.INFO, title=f"title {number}", body="body")


def filled(count: int, *names: str) -> Outbox:
    return put(Outbox(), [message(number) for number in range(count)], names)[0]


def refused(id_: str, name: str) -> Outcome:
    return Outcome(id=id_, name=name, ok=False, detail="error=500")


def taken(id_: str, name: str) -> Outcome:
    return Outcome(id=id_, name=name, ok=True)


def test_messages_are_due_in_order_and_a_few_at_a_time():
    jobs = due(filled(BATCH + 3, "phone"), now_s=NOW_S)

    assert [item.id for _, item in jobs] == [str(number) for number in range(BATCH)]


def test_what_was_taken_is_gone_and_journalled():
    box, entries = settle(filled(1, "phone", "mail"), [taken("0", "phone")], now_s=NOW_S)

    assert [parcel.to for parcel in box.parcels] == [("mail",)]
    assert [(entry.kind, entry.message) for entry in entries] == [("alert-sent", "told phone: title 0")]
    box, _ = settle(box, [taken("0", "mail")], now_s=NOW_S)
    assert box.parcels == ()


def test_outcome_that_is_known_already_changes_nothing():
    box, _ = settle(filled(1, "phone", "mail"), [taken("0", "phone")], now_s=NOW_S)

    assert settle(box, [taken("0", "phone"), taken("99", "phone")], now_s=NOW_S) == (box, ())


def test_receiver_that_refuses_waits_ever_longer_and_holds_up_no_other():
    box, now_s, waits = filled(2, "phone", "mail"), NOW_S, []
    for _ in range(14):
        box, _ = settle(box, [refused("0", "phone")], now_s=now_s)
        waits.append(box.receiver("phone").next_s - now_s)
        assert {name for name, _ in due(box, now_s=now_s)} == {"mail"}
        now_s = box.receiver("phone").next_s

    assert waits[:4] == [2, 4, 8, 16]
    assert waits[-1] == LONGEST_WAIT_S
    assert [item.id for name, item in due(box, now_s=now_s) if name == "phone"] == ["0"]


def test_only_the_first_refusal_in_a_row_is_journalled():
    box, first = settle(filled(1, "phone"), [refused("0", "phone")], now_s=NOW_S)
    box, second = settle(box, [refused("0", "phone")], now_s=NOW_S)
    _, third = settle(box, [taken("0", "phone")], now_s=NOW_S)

    assert [entry.kind for entry in (*first, *second, *third)] == ["alert-failed", "alert-sent"]
    assert "error=500" in first[0].message
    assert "after 2 refusals" in third[0].message


def test_full_outbox_loses_the_oldest_and_says_so():
    box, entries = put(filled(LIMIT, "phone"), [message(LIMIT)], ["phone"])

    assert len(box.parcels) == LIMIT
    assert [entry.message for entry in entries] == [f"not told: title 0 (more than {LIMIT} messages wait)"]


def test_old_messages_and_receivers_that_are_gone_are_tidied_away():
    box, _ = put(filled(1, "phone", "mail"), [message(1, at_s=NOW_S + KEEP_S)], ["phone", "mail"])
    box, _ = settle(box, [refused("0", "mail")], now_s=NOW_S)
    after, entries = tidy(box, ["phone"], now_s=NOW_S + KEEP_S + 1)

    assert [(parcel.message.id, parcel.to) for parcel in after.parcels] == [("1", ("phone",))]
    assert after.receivers == ()
    assert [entry.kind for entry in entries] == ["alert-lost"]


def test_outbox_without_anything_to_tidy_stays_the_same_value():
    box = filled(3, "phone")

    assert tidy(box, ["phone"], now_s=NOW_S)[0] is box


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=60))
def test_each_receiver_takes_each_message_once_and_in_order_whatever_is_refused(answers):
    names = ("phone", "mail")
    box, now_s, got = filled(6, *names), NOW_S, {name: [] for name in names}
    for phone, mail in [*answers, *[(True, True)] * 8]:
        now_s += 1000
        box = KEPT.validate_json(KEPT.dump_json(Kept(outbox=box))).outbox  # A daemon restarted.
        outcomes = []
        for name, ok in zip(names, (phone, mail), strict=True):
            for item in [job for owner, job in due(box, now_s=now_s) if owner == name]:
                outcomes.append(Outcome(id=item.id, name=name, ok=ok))
                if not ok:
                    break
                got[name].append(item.id)
        box, _ = settle(box, outcomes, now_s=now_s)

    assert got == {name: [str(number) for number in range(6)] for name in names}
    assert box.parcels == ()
