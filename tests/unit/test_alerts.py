"""What people are told, and when: the fold from journal entries to messages."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from rigd.rig.schema import AlertKind, Alerts
from rigd.supervise.alert_folding import NOTES_LIMIT, PROBLEMS_LIMIT
from rigd.supervise.alert_state import AlertState, Happening, Level, Message, Seen
from rigd.supervise.alerts import fold
from rigd.supervise.state import Failure, State

NOW_S = 1_764_500_000.0
RULES = Alerts(group_s=60, down_s=900, repeat_s=3600, repeat_factor=2, repeat_max_s=10_000, timezone="UTC")
OOM = Failure(
    kind="cuda_oom_kv",
    sentence="The KV pool does not fit.",
    hint="lower max_num_seqs",
    evidence=("12: first", "2134: torch.OutOfMemoryError"),
    start=7,
    at_s=NOW_S,
)
UP = Seen()
ALERT_STATE = TypeAdapter(AlertState)


@dataclass
class People:
    """Folds as the daemon does, and keeps what people got."""

    rules: Alerts = RULES
    now_s: float = NOW_S
    state: AlertState = field(default_factory=AlertState)
    got: list[Message] = field(default_factory=list)
    quiet: bool = False

    def look(self, *happenings: Happening, after_s: float = 0.0, seen: Seen = UP) -> list[Message]:
        """Let time pass, then fold; return what was told by this."""
        self.now_s += after_s
        moved = tuple(replace(happening, at_s=self.now_s) for happening in happenings)
        self.state = ALERT_STATE.validate_json(ALERT_STATE.dump_json(self.state))  # A daemon restarted.
        self.state, messages = fold(
            self.state, moved, seen, self.rules, rig="rig-a", box="box", now_s=self.now_s, quiet=self.quiet
        )
        self.got += messages
        return list(messages)

    def wait(self, seconds: float, *, step_s: float = 10.0, seen: Seen = UP) -> list[Message]:
        """Look every `step_s` for so long."""
        before = len(self.got)
        for _ in range(round(seconds / step_s)):
            self.look(after_s=step_s, seen=seen)
        return self.got[before:]

    @property
    def titles(self) -> list[str]:
        return [message.title for message in self.got]


def entry(kind: str, message: str = "", *, failure: Failure | None = None, **data: str) -> Happening:
    made = {"from_": "from"}
    pairs = tuple((made.get(name, name), value) for name, value in data.items())
    return Happening(at_s=0.0, kind=kind, message=message, data=pairs, failure=failure)


CRASH = entry("failure", "The engine ended.", to="stopping", failure=OOM)
BACKOFF = entry("backoff", "Next start in 1 s.", to="backoff", from_="stopping", failure=OOM)
STARTING = entry("starting", "the wait is over", to="starting")
READY = entry("ready", "ready", to="ready")
DEGRADED = entry("degraded", "serving, but not warm: agents", to="degraded")
GAVE_UP = entry("gave-up", "gave up after 5 failures: the KV pool does not fit.", to="failed", failure=OOM)
TREND = entry("trend", "Drafts are hardly accepted any more.", **{"class": "spec_accept_collapse"})
LASTS = entry("trend-lasts", "Drafts are hardly accepted any more.", to="degraded")
TREND_OVER = entry("trend-over", "over after 5 min", **{"class": "spec_accept_collapse"})
STOPPED = entry("stopped", "stop asked", to="stopped")
MAINTENANCE = entry("maintenance", "maintenance on", to="maintenance")
HOT = {"class": "thermal", "severity": "error", "gpu": "1", "hint": "clean the fans"}


@pytest.fixture
def people():
    return People()


# --- crashes ---


def test_crash_that_passes_is_one_message_when_it_is_over(people):
    assert people.look(CRASH) == []
    assert people.look(BACKOFF, after_s=1) == []
    assert people.look(STARTING, after_s=1) == []
    people.look(READY, after_s=300)
    people.wait(600)

    (message,) = people.got
    assert message.title == "rig-a: failed, and is back (cuda_oom_kv)"
    assert message.level is Level.SUCCESS
    for words in (
        "The KV pool does not fit.",
        "class: cuda_oom_kv, start 7",
        "  2134: torch",
        "back after 5 min",
    ):
        assert words in message.body
    assert message.body.endswith(f"alert {message.id}")
    assert "box box, " in message.body


def test_crashes_in_a_row_are_counted_in_one_message(people):
    for _ in range(3):
        people.look(CRASH, after_s=1)
        people.look(BACKOFF, after_s=1)
        people.look(STARTING, after_s=1)
    people.look(READY, after_s=30)
    people.wait(120)

    assert len(people.got) == 1
    assert "after 3 failures" in people.got[0].body


def test_engine_that_crashes_all_night_is_told_ever_more_rarely(people):
    for _ in range(100):
        people.look(CRASH, after_s=300)
        people.look(READY, after_s=60)
    hours = (people.now_s - NOW_S) / 3600

    assert 3 <= len(people.got) <= hours
    assert "times, last" in people.got[-1].body


def test_a_calm_stretch_brings_the_first_pace_back(people):
    people.look(CRASH)
    people.look(READY)
    people.wait(100)
    people.look(CRASH, after_s=3 * 3600)
    people.look(READY)

    assert len(people.wait(100)) == 1


def test_engine_down_for_long_is_told_although_rigd_is_still_trying(people):
    people.look(CRASH)
    people.look(STARTING, after_s=5)
    assert people.wait(880) == []
    (message,) = people.wait(20)
    assert message.title == "rig-a: down for 15 min, still trying (cuda_oom_kv)"
    people.look(READY)
    (resolved,) = people.wait(100)

    assert resolved.title == "rig-a: serving again"
    assert "it was: The KV pool does not fit." in resolved.body


# --- giving up ---


def test_giving_up_is_told_at_once_with_what_to_type(people):
    people.look(CRASH)
    (message,) = people.look(GAVE_UP)

    assert (message.title, message.level) == ("rig-a: gave up (cuda_oom_kv)", Level.FAILURE)
    for words in (
        "gave up after 5",
        "what helps: lower max_num_seqs",
        "next: rigd logs --start 7; then rigd start",
    ):
        assert words in message.body


def test_reminders_come_at_growing_intervals_up_to_the_longest(people):
    people.look(GAVE_UP)
    at = [people.now_s - NOW_S for _ in range(60_000 // 100) if people.look(after_s=100)]
    gaps = [round(later - earlier) for earlier, later in zip([0, *at], at, strict=False)]

    assert gaps == [3600, 7200, 10_000, 10_000, 10_000, 10_000]
    assert people.titles[-1] == "rig-a: still given up (cuda_oom_kv)"


def test_no_reminders_where_none_are_wanted():
    people = People(rules=RULES.model_copy(update={"repeat_s": None}))
    people.look(GAVE_UP)

    assert people.wait(200_000, step_s=1000) == []


def test_what_was_told_is_told_to_be_over(people):
    people.look(GAVE_UP)
    people.look(STARTING, after_s=7200)
    people.look(READY, after_s=60)
    people.wait(100)

    assert people.titles[-1] == "rig-a: serving again"
    assert people.state.problems == ()
    assert people.wait(20_000, step_s=100) == []


def test_second_giving_up_after_a_person_tried_is_told_too(people):
    people.look(GAVE_UP)
    people.look(STARTING, after_s=60)
    people.look(CRASH, after_s=60)

    assert len(people.look(GAVE_UP, after_s=1)) == 1


@pytest.mark.parametrize("left", [STOPPED, MAINTENANCE], ids=["stopped", "maintenance"])
def test_person_who_takes_over_ends_the_reminders(people, left):
    people.look(GAVE_UP)
    people.look(left, after_s=60)
    (message,) = people.wait(20_000, step_s=100)

    assert "no more reminders" in message.title
    assert message.level is Level.INFO


def test_stop_asked_of_an_engine_that_was_fine_tells_nobody(people):
    people.look(STOPPED)
    people.look(STARTING, after_s=10)
    people.look(READY, after_s=10)

    assert people.wait(10_000, step_s=100) == []


# --- degraded, changed ---


def test_degraded_is_told_after_the_group_and_so_is_its_end(people):
    assert people.look(DEGRADED) == []
    (message,) = people.wait(60)
    assert (message.title, message.level) == (
        "rig-a: degraded: it serves, but not as wished", Level.WARNING,
    )  # fmt: skip
    people.look(READY, after_s=60)
    (resolved,) = people.wait(60)

    assert resolved.title == "rig-a: good again"


def test_degraded_and_good_again_within_the_group_is_one_message(people):
    people.look(DEGRADED)
    people.look(READY, after_s=5)
    (message,) = people.wait(600)

    assert "degraded" in message.title
    assert "good again" in message.body


def test_flapping_is_few_messages(people):
    for _ in range(200):
        people.look(DEGRADED, after_s=50)
        people.look(READY, after_s=50)

    assert len(people.got) <= 6


def test_changed_settings_are_told_when_it_serves_with_them(people):
    people.look(CRASH)
    change = "changed max-num-seqs 10 -> 5: the KV pool does not fit"
    people.look(entry("overlay", change, to="backoff", failure=OOM), after_s=1)
    people.look(READY, after_s=60)
    (message,) = people.wait(100)

    assert message.title == "rig-a: serving again, with changed settings"
    assert change in message.body
    assert message.level is Level.WARNING


def test_settings_that_are_as_wished_again_are_told_once(people):
    changed = Seen(state=State.READY, changed=True)
    people.look(CRASH)
    people.look(entry("fallback", "Going back to the last known good settings.", to="backoff"), after_s=1)
    people.look(READY, after_s=60)
    assert "last known good" in people.wait(100, seen=changed)[0].body
    assert people.wait(100_000, step_s=1000, seen=changed) == []
    (message,) = people.wait(1000, seen=Seen(state=State.READY))

    assert message.title == "rig-a: the settings are as wished again"


def test_settings_that_a_person_changed_are_no_news(people):
    people.look(entry("overlay", "the rig file changed"))

    assert people.wait(1000) == []


def test_refused_configuration_is_told(people):
    people.look(entry("check-refused", "the parser refuses: unknown flag"))

    assert "refused" in people.wait(100)[0].title


def test_events_within_the_group_are_one_message(people):
    people.look(DEGRADED)
    people.look(entry("check-refused", "the parser refuses"), after_s=10)
    people.look(entry("store-recovered", "the store was damaged"), after_s=10)
    (message,) = people.wait(600)

    assert message.title.endswith(", and 2 more")
    for words in ("not warm", "the parser refuses", "was damaged"):
        assert words in message.body


# --- host and store ---


def test_host_trouble_is_told_at_once_and_its_end_too(people):
    (message,) = people.look(entry("host-finding", "card 1 is at 95 °C", **HOT))
    assert message.title == "rig-a: host trouble (thermal)"
    assert "what helps: clean the fans" in message.body
    people.look(entry("host-cleared", "over", **HOT), after_s=30)

    assert [item.title for item in people.wait(100)] == ["rig-a: host trouble is over (thermal)"]


def test_host_findings_that_are_only_information_tell_nobody(people):
    people.look(entry("host-finding", "fine", **{**HOT, "severity": "info"}))

    assert people.wait(1000) == []


ACT = {"gpu": "1", "bus": "0000:14:00", "finding": "-"}


@pytest.mark.parametrize(
    ("act", "state", "told"),
    [
        pytest.param("reset-gpu", "intended", 0, id="a-reset-is-told-when-it-is-known-how-it-went"),
        pytest.param("reset-gpu", "done", 1, id="reset"),
        pytest.param("reset-gpu", "failed", 1, id="reset-failed"),
        pytest.param("reboot", "intended", 1, id="a-reboot-before-the-host-goes-down"),
        pytest.param("reboot", "refused", 1, id="the-day-is-full"),
        pytest.param("lower-power", "done", 1, id="lowered"),
        pytest.param("apply-settings", "done", 0, id="settings-set-again-are-no-news"),
        pytest.param("apply-settings", "failed", 1, id="settings-that-cannot-be-set"),
    ],
)
def test_what_rigd_does_to_the_host_is_told(people, act, state, told):
    people.look(entry("host-act", "resetting GPU 1: it is so", **{**ACT, "act": act, "state": state}))
    people.wait(200)

    assert len(people.got) == told
    assert all("resetting GPU 1: it is so" in message.body for message in people.got)


def test_host_findings_of_two_cards_are_two_problems(people):
    people.look(
        entry("host-finding", "card 0", **{**HOT, "gpu": "0"}), entry("host-finding", "card 1", **HOT)
    )
    people.look(entry("host-cleared", "over", **HOT))

    assert [problem.sentence for problem in people.state.problems] == ["card 0"]


@pytest.mark.parametrize("kind", [AlertKind.STORE, AlertKind.HOST])
def test_trouble_that_lasts_is_told_and_a_short_one_is_not(people, kind):
    trouble = Seen(troubles=((kind, "cannot write the store: its disk is full"),))
    people.wait(50, seen=trouble)
    assert people.wait(100) == []
    (message,) = people.wait(200, seen=trouble)
    assert message.title == f"rig-a: {kind} trouble"
    assert "its disk is full" in message.body

    assert [item.title for item in people.wait(100)] == [f"rig-a: {kind} trouble is over"]


def test_fault_of_rigd_itself_that_comes_with_every_look_is_one_message(people):
    for _ in range(500):
        people.look(entry("internal-error", "a decision failed: KeyError"), after_s=0.5)

    assert len(people.got) == 1


# --- kinds, quiet hours, limits ---


@pytest.mark.parametrize(
    ("kinds", "count"), [((), 0), (("failed",), 1), (("recovered",), 0), (("failed", "recovered"), 2)]
)
def test_only_the_kinds_that_are_wanted_are_told(kinds, count):
    people = People(rules=RULES.model_copy(update={"kinds": tuple(map(AlertKind, kinds))}))
    people.look(GAVE_UP)
    people.look(READY, after_s=60)
    people.wait(100)

    assert len(people.got) == count


def test_quiet_hours_let_new_failures_and_host_trouble_pass_and_keep_the_rest(people):
    people.quiet = True
    people.look(DEGRADED)
    assert people.wait(600) == []
    assert len(people.look(entry("host-finding", "card 1 is hot", **HOT))) == 1
    assert [item.title for item in people.look(GAVE_UP)] == ["rig-a: gave up (cuda_oom_kv)"]
    people.look(READY, after_s=60)
    assert people.wait(20_000, step_s=100) == []
    people.quiet = False
    (morning,) = people.look(after_s=10)

    for words in ("not warm", "serving again", "good again"):
        assert words in morning.body


def test_reminder_that_waited_for_the_morning_is_not_told_when_it_is_over(people):
    people.look(GAVE_UP)
    people.quiet = True
    people.wait(8000, step_s=100)
    people.look(READY)
    people.quiet = False
    (morning,) = people.wait(100)

    assert morning.title == "rig-a: serving again"


def test_notes_and_problems_have_limits(people):
    people.quiet = True
    for number in range(3 * NOTES_LIMIT):
        finding = {**HOT, "severity": "warning", "gpu": str(number)}
        people.look(entry("host-finding", f"card {number}", **finding))
        people.look(entry("host-cleared", "over", **finding))
        people.look(entry("host-finding", f"card {number}", **finding))
    assert len(people.state.notes) <= 2 * NOTES_LIMIT
    assert len(people.state.problems) <= PROBLEMS_LIMIT
    people.quiet = False
    people.wait(8000, step_s=1000)

    assert all(len(message.body) <= 3500 for message in people.got)
    assert any("more: `rigd events`" in message.body for message in people.got)


def test_endless_evidence_is_cut(people):
    long = replace(OOM, evidence=tuple("x" * 5000 for _ in range(50)), sentence="y" * 9000, hint="z" * 9000)
    (message,) = people.look(replace(GAVE_UP, failure=long, message="w" * 9000))

    assert len(message.body) <= 3500
    assert len(message.title) <= 120


# --- putting right ---


SETTLED = [
    pytest.param(State.READY, (CRASH,), 1, id="ready-after-a-crash"),
    pytest.param(State.READY, (GAVE_UP,), 2, id="ready-after-giving-up"),
    pytest.param(State.FAILED, (), 1, id="failed-and-nobody-said-so"),
    pytest.param(State.DEGRADED, (), 1, id="degraded-and-nobody-said-so"),
    pytest.param(State.STOPPED, (CRASH,), 0, id="stopped-after-a-crash"),
    pytest.param(State.STARTING, (), 0, id="starting"),
]


@pytest.mark.parametrize(("state", "before", "count"), SETTLED)
def test_state_that_has_lasted_puts_right_what_was_missed(people, state, before, count):
    people.look(*before)
    people.wait(600, seen=Seen(state=state, reason="so it is", failure=OOM))

    assert len(people.got) == count


def test_entry_without_its_failure_still_names_the_class(people):
    (message,) = people.look(entry("gave-up", "gave up.", to="failed"))
    assert message.title == "rig-a: gave up"
    people.look(READY)
    bare = Happening(
        at_s=0.0, kind="gave-up", message="gave up.", data=(("to", "failed"), ("failure", "nccl"))
    )

    assert people.look(bare)[0].title.startswith("rig-a: gave up (nccl)")


# --- whatever happens ---

ANY = st.sampled_from([
    CRASH, BACKOFF, STARTING, READY, DEGRADED, GAVE_UP, STOPPED, MAINTENANCE,
    entry("host-finding", "hot", **HOT), entry("host-cleared", "over", **HOT),
    entry("overlay", "changed a to b", to="backoff", failure=OOM), entry("store", "1 write was lost"),
    entry("warmth", "noise"), entry("launched", "noise"), entry("stopped", "4 processes ended"),
])  # fmt: skip
STEPS = st.lists(
    st.tuples(st.lists(ANY, max_size=3), st.sampled_from([0.0, 1.0, 59.0, 900.0, 4000.0]), st.booleans()),
    max_size=40,
)


def _told(steps, *, restarts: bool) -> list[Message]:
    state, got, now_s = AlertState(), [], NOW_S
    for happenings, after_s, quiet in steps:
        now_s += after_s
        at = [replace(happening, at_s=now_s) for happening in happenings]
        if restarts:
            state = ALERT_STATE.validate_json(ALERT_STATE.dump_json(state))
        state, messages = fold(state, at, UP, RULES, rig="r", box="b", now_s=now_s, quiet=quiet)
        got += messages
        assert sum(happening.kind == "gave-up" for happening in happenings) == 0 or messages
    return got


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_restarts_change_nothing_and_giving_up_is_always_told_at_once(steps):
    told = _told(steps, restarts=False)

    assert told == _told(steps, restarts=True)
    assert len({message.id for message in told}) == len(told)
    assert all(message.body and message.title for message in told)


@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_in_the_end_everything_is_told_and_nothing_is_left(steps):
    people = People()
    for happenings, after_s, quiet in steps:
        people.quiet = quiet
        people.look(*happenings, after_s=after_s)
    people.quiet = False
    people.look(READY, entry("host-cleared", "over", **HOT))
    people.wait(30_000, step_s=500, seen=Seen(state=State.READY))

    assert people.state.notes == ()
    assert people.state.problems == ()
    if any(happening.kind == "degraded" for happenings, _, _ in steps for happening in happenings):
        assert any("not warm" in message.body for message in people.got)


def test_what_the_numbers_show_is_told_once_and_once_that_it_is_over(people):
    serving = Seen(state=State.DEGRADED, trends=frozenset({"spec_accept_collapse"}))
    people.look(TREND, LASTS)
    people.wait(600, seen=serving)
    people.look(TREND, LASTS, seen=serving)
    people.wait(600, seen=serving)
    assert len(people.got) == 1
    assert "spec_accept_collapse" in people.got[0].title

    people.look(TREND_OVER, READY)
    people.wait(600, seen=Seen(state=State.READY))

    assert len(people.got) == 2
    assert people.got[1].level == "success"


def test_trend_whose_end_was_never_journalled_is_closed_by_what_is_so(people):
    people.look(TREND)
    people.wait(300, seen=Seen(state=State.READY, trends=frozenset({"spec_accept_collapse"})))
    people.wait(300, seen=Seen(state=State.READY))

    assert people.state.problems == ()
