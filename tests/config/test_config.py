"""Settings: what is said is in force, and every wrong value is told at once with where it came from."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from staffetta import config
from staffetta.config.kinds import Wrong, duration, shown_duration
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


def test_what_companies_have_of_their_own_is_shown_without_secrets(tmp_path: Path) -> None:
    secret = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo="
    file = tmp_path / "staffetta.toml"
    file.write_text(
        f'[companies."acme"]\nweight = 2\ntransport = ["smtp://u:s3cret@relay:587"]\ncallback_secret = "{secret}"\n'
    )

    rows = config.shown_of_companies(config.load(file, {}))

    assert "s3cret" not in str(rows)
    assert secret not in str(rows)
    assert ('companies."acme".weight', "2", "the settings file") in rows
    assert ('companies."acme".callback_secret', "***", "the settings file") in rows


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


def test_a_variable_that_is_empty_is_not_set() -> None:
    """Compose files and service units pass on what nobody set as nothing."""
    found = config.load(None, {"STAFFETTA_CALLBACK_URL": "", "STAFFETTA_STORE": "", "STAFFETTA_NO_SUCH": ""})

    assert config.Config() == found


def _of_another_kind(setting: config.Setting) -> list[object]:
    """Values that TOML can write and this setting cannot be."""
    others: list[object] = [True, 7, 7.5, "no such thing", [7], {"a": [1]}, ["x", 7]]
    return [one for one in others if not _reads(setting, one)]


def _reads(setting: config.Setting, value: object) -> bool:
    try:
        setting.kind.read(value)
    except Wrong:
        return False
    return True


@pytest.mark.parametrize("setting", config.settings(), ids=lambda setting: setting.name)
def test_no_setting_takes_what_it_cannot_be(setting: config.Setting, tmp_path: Path) -> None:
    """Each says so in words, by name and with the place, whatever was written there."""
    wrong = _of_another_kind(setting)
    assert wrong, "a setting that takes anything checks nothing"
    for value in wrong:
        line = f"{setting.field if not setting.section else setting.name.partition('.')[2]} = {_toml(value)}"
        file = tmp_path / "own.toml"
        file.write_text(f"[{setting.section}]\n{line}\n" if setting.section else f"{line}\n")
        with pytest.raises(SettingsError) as caught:
            config.load(file, {})
        found = problems(caught)
        assert [setting.name] == list(found)
        assert f"(from {file})" in found[setting.name]


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(one)}" for name, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


@pytest.mark.parametrize(
    "setting",
    [one for one in config.settings() if not _reads(one, "no such thing")],
    ids=lambda setting: setting.name,
)
def test_a_wrong_variable_is_named_by_setting_and_variable(setting: config.Setting) -> None:
    with pytest.raises(SettingsError) as caught:
        config.load(None, {setting.variable: "no such thing"})

    assert f"(from the environment variable {setting.variable})" in problems(caught)[setting.name]


def test_all_settings_wrong_at_once_are_all_named() -> None:
    wrong = {one.variable: "no such thing" for one in config.settings() if not _reads(one, "no such thing")}
    with pytest.raises(SettingsError) as caught:
        config.load(None, wrong)

    assert len(wrong) == len(problems(caught))
