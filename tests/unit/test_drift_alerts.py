"""What people are told of a host that drifts: once, not at night, and that it is over."""

from test_alerts import People, entry

FOUND = entry(
    "drift", "the host is no longer as site.yml says, 1 task differs: Docker's settings", hint="mend it"
)
MORE = entry("drift", "the host is no longer as site.yml says, 2 tasks differ: Docker's settings; Driver")
OVER = entry("drift-over", "the host is as site.yml says again")
TROUBLE = entry("drift-trouble", "cannot say whether the host is as site.yml says: apt is locked")
TROUBLE_OVER = entry("drift-trouble-over", "the host could be held against its playbook again")


def test_drift_is_told_after_the_group_and_so_is_its_end():
    people = People()

    assert people.look(FOUND) == []
    (told,) = people.wait(120)
    assert "the host has drifted" in told.title
    assert "mend it" in told.body
    people.look(OVER)
    (over,) = people.wait(120)
    assert "as site.yml says again" in over.title


def test_more_of_it_is_told_again_and_reminders_go_on_from_there():
    people = People()
    people.look(FOUND)
    people.wait(120)

    people.look(MORE)
    people.wait(4000)

    assert any("2 tasks differ" in message.body for message in people.got)
    assert len(people.state.problems) == 1


def test_drift_does_not_wake_anybody():
    people = People(quiet=True)

    people.look(FOUND)
    people.look(TROUBLE)

    assert people.wait(3000) == []
    people.quiet = False
    assert len(people.wait(120)) == 1


def test_a_check_that_cannot_be_made_is_told_with_its_end():
    people = People()
    people.look(TROUBLE)
    people.wait(120)

    people.look(TROUBLE_OVER)
    people.wait(120)

    assert len(people.got) == 2
    assert "apt is locked" in people.got[0].body


def test_what_rigd_applied_is_told_when_it_is_done_and_not_when_it_begins():
    people = People()
    people.look(entry("drift-apply", "applying site.yml", state="intended"))
    assert people.wait(120) == []

    people.look(entry("drift-apply", "applied site.yml: Docker's settings", state="done"))

    (told,) = people.wait(120)
    assert "applied its playbook" in told.title
