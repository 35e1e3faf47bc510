"""Nothing of an Apprise URL that could be a secret is ever shown."""

import pytest

from rigd.rig.alert_urls import holds_secret, masked_url, schema_of, without_url
from rigd.rig.schema import Alerts


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("json://user:pass@example.org:8080/hook/abc?+X-Token=1", "json://example.org:8080/***"),
        ("ntfys://ntfy.sh/my-topic", "ntfys://ntfy.sh/***"),
        ("ntfys://tk_abcdef.x@ntfy.example.org/t", "ntfys://ntfy.example.org/***"),
        ("ntfy://topic-as-host", "ntfy://***"),
        ("mailto://me:pw@gmail.com", "mailto://gmail.com/***"),
        ("tgram://123456789:abcdefg/12315544", "tgram://***"),
        ("discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js", "discord://***"),
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ", "slack://***"),
        ("json://[2001:db8::1]:80/x", "json://[2001:db8::1]:80/***"),
        ("json://a:b:c:d/", "json://***"),
        ("JSON://EXAMPLE.org/x", "json://example.org/***"),
        ("no url at all", "***"),
        ("", "***"),
    ],
)
def test_url_shows_its_schema_and_a_host_that_is_no_token(url, shown):
    assert masked_url(url) == shown


@pytest.mark.parametrize(
    ("url", "holds"),
    [
        ("json://127.0.0.1:9/hook", False),
        ("ntfys://ntfy.sh/topic", False),
        ("json://u@example.org", True),
        ("json://example.org/?+X=1", True),
        ("ntfy://topic-as-host", True),
        ("tgram://1:a/2", True),
    ],
)
def test_url_with_a_credential_is_told_from_one_without(url, holds):
    assert holds_secret(url) is holds


def test_words_that_are_no_url_have_no_schema():
    assert [schema_of(text) for text in ("ntfys", "://x", "a b://x", "json://")] == [None] * 4


def test_parts_of_the_url_are_taken_out_of_what_others_say():
    url = "json://user:hunter22@example.org/hook/abcdef?+X-Token=t0ken"
    said = without_url("POST /hook/abcdef as user:hunter22 (t0ken) to example.org failed, error=500", url)

    assert said == "POST /***/*** as ***:*** (***) to example.org failed, error=500"


def test_settings_show_their_urls_masked_however_they_are_printed():
    rules = Alerts.model_validate({"urls": ["json://u:hunter22@example.org/x", {"env": "URL"}]})

    for text in (repr(rules), str(rules), rules.model_dump_json(), str(rules.model_dump(mode="json"))):
        assert "hunter22" not in text
        assert "json://example.org/***" in text
