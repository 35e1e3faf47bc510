"""Speculative decoding that real vLLM refuses at its start: turned off at once, and said."""

from rigs import LAB

pytestmark = LAB


def test_speculation_that_the_model_cannot_do_is_turned_off_at_once(make_rig, lab_models):
    rig = make_rig(("vllm", "process"))
    rig.settings["engine"]["model"] = str(lab_models / "tiny")
    rig.settings["engine"]["arguments"]["speculative"] = {"method": "mtp", "num_speculative_tokens": 1}
    rig.start_daemon()

    status = rig.wait("ready")

    turned = next(event for event in rig.events() if event["kind"] == "overlay")
    print(f"\n{rig.launches()} launches: {turned['message']}")
    assert "speculative" in turned["message"]
    assert rig.launches() == 2
    assert [(step["kind"], step["knob"], step["new"]) for step in status["overlay"]] == [
        ("spec_config", "speculative", None)
    ]
