"""The digest of a specification changes exactly when something that is launched changes."""

from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from rigd.engine.launch import launch_spec
from rigd.rig.schema import Rig

WORDS = st.text(alphabet="abcxyz012", min_size=1, max_size=6)
ENGINES = st.fixed_dictionaries(
    {"model": WORDS, "port": st.integers(1024, 1030)},
    optional={
        "served_model_name": WORDS,
        "api_key": st.sampled_from([{"env": "A"}, {"env": "B"}, {"file": "/a"}]),
        "environment": st.dictionaries(WORDS.map(str.upper), WORDS, max_size=3),
        "arguments": st.fixed_dictionaries(
            {},
            optional={
                "max_num_seqs": st.integers(1, 4),
                "enforce_eager": st.booleans(),
                "extra": st.dictionaries(WORDS, st.integers(0, 3), max_size=3),
            },
        ),
    },
)


def spec_of(engine, **rest):
    """Return the specification of a rig with these settings."""
    given_engine = {"runtime": "process", "version": "0.32.0"} | engine
    rig = Rig.model_validate({"name": "box", "engine": given_engine, **rest})
    return launch_spec(rig, rig_folder=Path("/etc/rigd"), home=Path("/home/me"))


@settings(max_examples=60, deadline=None)
@given(first=ENGINES, second=ENGINES)
def test_the_digest_differs_exactly_when_the_launch_differs(first, second):
    one, other = spec_of(first), spec_of(second)

    assert (one.digest == other.digest) is (one == other)


@settings(max_examples=30, deadline=None)
@given(engine=ENGINES, attempts=st.integers(1, 9), data=st.data())
def test_order_and_supervision_do_not_change_it(engine, attempts, data):
    shuffled = {key: engine[key] for key in data.draw(st.permutations(list(engine)))}

    assert spec_of(shuffled, supervision={"attempts": attempts}).digest == spec_of(engine).digest


def test_how_an_image_or_folder_comes_to_be_there_does_not_change_it():
    docker = {"image": "a:1", "container": "c", "mounts": [{"source": "/m", "target": "/m"}]}
    spec = spec_of({"model": "m", "runtime": "docker", "docker": docker})
    assert spec.container is not None
    mounts = tuple(replace(mount, create=True) for mount in spec.container.mounts)
    other = replace(spec, container=replace(spec.container, pull="never", mounts=mounts))

    assert other.digest == spec.digest
    assert replace(spec, container=replace(spec.container, image="a:2")).digest != spec.digest
