"""Settings: what is said is in force, and every wrong value is told at once with where it came from."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from staffetta import config
from staffetta.config.kinds import duration, shown_duration
from staffetta.config.sample import reference, sample
from staffetta.errors import SettingsError

ROOT = Path(__file__).parents[2]


def problems(caught: pytest.ExceptionInfo[SettingsError]) -> dict[str, str]:
    return {problem.field: problem.problem for problem in caught.value.problems}


def test_without_anything_the_embedded_default_is_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newcomer sets nothing and gets SQLite, the local queue, and loopback."""
    monkeypatch.chdir(tmp_path)

    found = config.load(None, {})

    assert ("sqlite:///staffetta.db", "local", (), "127.0.0.1:8025", "production") == (
        found.store.url,
        found.queue.url,
        found.transport.url,
        found.api.listen,
        found.profile,
    )


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "staffetta.toml"
    file.write_text('[delivery]\nin_doubt_delay = "5m"\n[store]\nurl = "sqlite:///a.db"\n')

    found = config.load(file, {"STAFFETTA_STORE": "sqlite:///b.db", "STAFFETTA_DELIVERY__CONCURRENCY": "7"})

    assert (300_000, "sqlite:///b.db", 7) == (
        found.delivery.in_doubt_delay_ms,
        found.store.url,
        found.delivery.concurrency,
    )
    assert "the environment variable STAFFETTA_STORE" == found.sources["store.url"]


def test_every_wrong_value_is_named_at_once(tmp_path: Path) -> None:
    """Mending settings one error at a time costs a restart each."""
    file = tmp_path / "own.toml"
    file.write_text(
        'profile = "test"\n[delivery]\nin_doubt = "maybe"\ndeadlin = 3\n[callback]\nsecret = "hunter2"\n'
        '[companies."acme"]\nweight = -1\ntransport = "nobody"\n[limitr]\nmax = 1\n'
    )

    with pytest.raises(SettingsError) as caught:
        config.load(
            file, {"STAFFETTA_LISTEN": "localhost", "STAFFETTA_STOR": "x", "STAFFETTA_TRANSPORT": "http://x"}
        )

    found = problems(caught)
    assert {
        "profile",
        "delivery.in_doubt",
        "delivery.deadlin",
        "callback.secret",
        'companies."acme".weight',
        'companies."acme".transport',
        "limitr",
        "api.listen",
        "STAFFETTA_STOR",
        "transport.url",
    } == set(found)
    assert "did you mean delivery.deadline?" in found["delivery.deadlin"]
    assert "did you mean STAFFETTA_STORE?" in found["STAFFETTA_STOR"]
    assert str(file) in found["delivery.in_doubt"]
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["smtp://user:s3cret@relay:port", "ftp://user:s3cret@relay", "smtp://user:s3cret@relay?tls=maybe"]
)
def test_a_wrong_address_never_repeats_its_password(text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        config.load(None, {"STAFFETTA_TRANSPORT": text})

    assert "s3cret" not in str(caught.value)


def test_settings_are_shown_without_secrets() -> None:
    secret = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo="
    found = config.load(
        None, {"STAFFETTA_TRANSPORT": "smtp://u:s3cret@relay:587#main", "STAFFETTA_CALLBACK__SECRET": secret}
    )

    text = repr(found) + str(config.shown(found))

    assert "s3cret" not in text
    assert secret not in text
    assert "smtp://u:***@relay:587#main" in text


def test_a_chain_of_transports_keeps_its_order_and_its_names() -> None:
    found = config.load(None, {"STAFFETTA_TRANSPORT": "smtp://a:2525, ses://eu-west-1#aws , sink://"})

    assert ["a:2525", "aws", "sink"] == [config.kinds.transport_name(one) for one in found.transport.url]


def test_two_transports_of_one_name_are_refused() -> None:
    """A pause or an alarm by name must mean one of them."""
    with pytest.raises(SettingsError, match="called 'a'"):
        config.load(None, {"STAFFETTA_TRANSPORT": "smtp://h1#a,smtp://h2#a"})


def test_a_heartbeat_slower_than_death_is_refused() -> None:
    with pytest.raises(SettingsError, match="twice worker.heartbeat"):
        config.load(None, {"STAFFETTA_WORKER__HEARTBEAT": "50s"})


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("[store\n")

    for path, words in ((tmp_path / "none.toml", "cannot be read"), (broken, "line 1")):
        with pytest.raises(SettingsError, match=words):
            config.load(path, {})


@given(st.integers(1, 10_000_000))
def test_a_duration_is_read_back_as_it_is_shown(milliseconds: int) -> None:
    assert milliseconds == duration("any").read(shown_duration(milliseconds))


@pytest.mark.parametrize(
    ("url", "path"),
    [("sqlite:///var/s.db", "var/s.db"), ("sqlite:////srv/s.db", "/srv/s.db"), ("sqlite:///s.db", "s.db")],
)
def test_sqlite_paths_are_relative_with_three_slashes_and_absolute_with_four(url: str, path: str) -> None:
    assert Path(path) == config.sqlite_path(url)


def test_the_sample_names_every_setting_and_its_defaults_hold() -> None:
    """Uncommented whole, the sample is read without a problem, and what it shows as a default is one."""
    text = sample()
    commented = "\n".join(line for line in text.splitlines() if not line.startswith("# "))

    data = tomllib.loads(commented.replace("#", "", 1) if commented.startswith("#") else commented)
    uncommented = tomllib.loads("\n".join(line.removeprefix("#") for line in commented.splitlines()))

    assert set(config.SECTIONS) <= set(data)
    named = {"profile"} | {
        f"{section}.{key}" for section, body in uncommented.items() if isinstance(body, dict) for key in body
    }
    assert {setting.name for setting in config.settings()} <= named
    uncommented["callback"]["secret"] = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo="
    uncommented["companies"]["acme"]["callback_secret"] = uncommented["callback"]["secret"]
    reading = config._Reading()
    reading.file(uncommented, "the sample")
    assert [] == reading.problems


@pytest.mark.parametrize(
    ("page", "made"), [("docs/reference/settings.md", reference), ("docs/reference/staffetta.toml", sample)]
)
def test_the_pages_are_those_the_program_makes(page: str, made: object) -> None:
    """`python -m staffetta.config.sample docs/reference` writes them anew."""
    assert callable(made)
    assert made() == (ROOT / page).read_text(encoding="utf-8")
