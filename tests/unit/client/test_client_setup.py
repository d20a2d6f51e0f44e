from __future__ import annotations

import io
import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from gdn_client import credentials, settings
from gdn_client.errors import NotAuthorised, SettingError
from support.fake_service import TOKEN, FakeService

Client = Callable[..., int]


def user_directory(tmp_path: Path) -> Path:
    return tmp_path / "config"


def test_precedence(tmp_path: Path) -> None:
    user = user_directory(tmp_path)
    user.mkdir()
    (user / "config.toml").write_text('server = "http://user"\ntarget = "user"\ndevice = "user"\n')
    project = Path.cwd() / ".gdn.toml"
    project.write_text('server = "http://project"\ntarget = "project"\n')
    environment = {"GDN_CONFIG_DIR": str(user), "GDN_SERVER": "http://environment"}

    def origins(flags: dict[str, str | None]) -> dict[str, tuple[str, str]]:
        loaded = settings.load(flags, environment=environment)
        return {name: (s.value, s.origin) for name, s in loaded.values.items()}

    assert origins({"server": None}) == {
        "server": ("http://environment", "$GDN_SERVER"),
        "target": ("project", str(project)),
        "device": ("user", str(user / "config.toml")),
        "format": ("table", "default"),
    }
    assert origins({"server": "http://flag/"})["server"] == ("http://flag", "--server")


def test_the_project_file_is_found_from_a_folder_below() -> None:
    (Path.cwd() / ".gdn.toml").write_text('target = "ours"\n')
    below = Path.cwd() / "a" / "b"
    below.mkdir(parents=True)
    assert settings.load(environment={}, directory=below).get("target") == "ours"


def test_a_project_file_beyond_the_repository_is_not_used(tmp_path: Path) -> None:
    (tmp_path / ".gdn.toml").write_text('target = "not ours"\n')
    assert settings.load(environment={}).get("target") is None


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("token = 'gdn_a_b'", "holds a token"),
        ("server = true", "server should be text"),
        ("server = 'ftp://x'", "'ftp://x' is not a server address"),
        ("server = ", "cannot be read"),
        ("format = 'xml'", "'xml' is not a format"),
    ],
)
def test_bad_files_are_named(content: str, complaint: str) -> None:
    path = Path.cwd() / ".gdn.toml"
    path.write_text(content + "\n")
    with pytest.raises(SettingError) as raised:
        settings.load(environment={})
    assert str(path) in raised.value.message
    assert complaint in raised.value.message
    assert raised.value.remedy


def test_a_bad_variable_is_named() -> None:
    with pytest.raises(SettingError, match=r"^\$GDN_TIMEOUT: 'soon' is not a duration$"):
        settings.load(environment={"GDN_TIMEOUT": "soon"})


def test_a_port_that_there_is_not_is_a_fault_of_the_setting() -> None:
    with pytest.raises(SettingError, match=r"^\$GDN_SERVER: 'http://h:99999' has no usable port$"):
        settings.load(environment={"GDN_SERVER": "http://h:99999"})
    for text in ("http://h:65535", "http://[::1]:80/", "https://h"):
        assert settings.parse_server(text) == text.rstrip("/")


@pytest.mark.parametrize(
    ("text", "value"), [("90", 90), ("45s", 45), ("30m", 1800), ("1h30m", 5400), ("0.5s", 0.5)]
)
def test_durations(text: str, value: float) -> None:
    assert settings.seconds(text) == value


def test_a_token_from_the_environment_is_not_sent_where_the_repository_says() -> None:
    (Path.cwd() / ".gdn.toml").write_text('server = "https://evil.example"\n')
    loaded = settings.load(environment={"GDN_TOKEN": TOKEN})
    with pytest.raises(NotAuthorised) as raised:
        credentials.require_token(loaded)
    assert "https://evil.example comes from" in raised.value.message
    assert TOKEN not in raised.value.message
    chosen = settings.load(environment={"GDN_TOKEN": TOKEN, "GDN_SERVER": "https://good.example"})
    assert credentials.require_token(chosen) == TOKEN


def test_a_stored_token_is_for_its_server_only() -> None:
    credentials.store(settings.load({"server": "http://one"}), TOKEN)
    assert credentials.token_for(settings.load({"server": "http://one"})) == TOKEN
    assert credentials.token_for(settings.load({"server": "http://two"})) is None


@pytest.mark.parametrize("end", ["\nabc", "\u00fc", "\x01"])
def test_a_token_with_odd_characters_is_refused_and_not_shown(end: str) -> None:
    loaded = settings.load(environment={"GDN_TOKEN": TOKEN + end})
    with pytest.raises(NotAuthorised, match="GDN_TOKEN: that is not a GDN Lab token") as raised:
        credentials.require_token(loaded)
    assert TOKEN not in raised.value.message + (raised.value.remedy or "")


def test_a_line_end_behind_the_token_is_left_out() -> None:
    loaded = settings.load(environment={"GDN_TOKEN": f"{TOKEN}\n"})
    assert credentials.require_token(loaded) == TOKEN


def test_settings_never_show_the_token() -> None:
    assert TOKEN not in repr(settings.load(environment={"GDN_TOKEN": TOKEN}))


def login(client: Client, monkeypatch: pytest.MonkeyPatch, typed: str) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    return client("login")


def test_login_keeps_the_token_for_its_owner_alone(
    client: Client,
    service: FakeService,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GDN_TOKEN")
    assert login(client, monkeypatch, f"{TOKEN}\n") == 0
    said = capsys.readouterr()
    assert f"logged in to {service.url} as ada with scope submit" in said.err
    assert TOKEN not in said.out + said.err
    kept = user_directory(tmp_path) / "credentials.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert json.loads(kept.read_text()) == {service.url: TOKEN}
    assert client("status") == 0
    assert client("login", "--forget") == 0
    assert client("status") == 4


def test_login_keeps_nothing_that_the_server_refuses(
    client: Client,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert login(client, monkeypatch, "gdn_abc123_wrong\n") == 4
    assert not (user_directory(tmp_path) / "credentials.json").exists()
    assert "gdn_abc123_wrong" not in capsys.readouterr().err


def test_login_refuses_what_is_no_token(
    client: Client,
    service: FakeService,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert login(client, monkeypatch, "hunter2\n") == 4
    said = capsys.readouterr().err
    assert "gdn-service token create" in said
    assert "hunter2" not in said
    monkeypatch.setenv("GDN_TOKEN", "hunter2")
    assert client("status") == 4
    assert service.requests == []


def test_login_warns_where_the_token_would_travel_in_the_open(
    client: Client, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GDN_SERVER", "http://gdn.invalid")
    login(client, monkeypatch, "not a token\n")
    assert "http://gdn.invalid is not https" in capsys.readouterr().err
    monkeypatch.setenv("GDN_SERVER", "https://gdn.invalid")
    login(client, monkeypatch, "not a token\n")
    assert "is not https" not in capsys.readouterr().err


def test_no_command_takes_a_token_as_an_option(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    assert client("login", "--token", TOKEN) == 2
    assert "No such option" in capsys.readouterr().err


def test_credentials_that_others_can_read_are_refused(
    client: Client,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    login(client, monkeypatch, f"{TOKEN}\n")
    kept = user_directory(tmp_path) / "credentials.json"
    kept.chmod(0o644)
    monkeypatch.delenv("GDN_TOKEN")
    capsys.readouterr()
    assert client("status") == 2
    assert f"chmod 600 {kept}" in capsys.readouterr().err


def test_config_set_get_list_unset(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = user_directory(tmp_path) / "config.toml"
    assert client("config", "set", "target", "gdn-lab") == 0
    assert path.read_text() == 'target = "gdn-lab"\n'
    capsys.readouterr()
    assert client("config", "get", "target") == 0
    assert capsys.readouterr() == ("gdn-lab\n", f"from {path}\n")
    assert client("config", "list", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["target"] == {"value": "gdn-lab", "origin": str(path)}
    assert listed["server"]["origin"] == "$GDN_SERVER"
    assert listed["device"] is None
    assert client("config", "list") == 0
    assert "$GDN_SERVER" in capsys.readouterr().out
    assert client("config", "path") == 0
    assert capsys.readouterr().out == f"{path}\n"
    assert client("config", "unset", "target") == 0
    assert client("config", "get", "target") == 2
    assert "gdn-client config set target VALUE" in capsys.readouterr().err


def test_config_set_says_when_it_has_no_effect_here(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    assert client("config", "set", "server", "https://gdn.example.org/api/v1") == 0
    assert "$GDN_SERVER overrides it here" in capsys.readouterr().err


def test_config_refuses_unknown_keys_and_bad_values(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert client("config", "set", "token", TOKEN) == 2
    assert "there is no setting 'token'" in capsys.readouterr().err
    assert client("config", "set", "timeout", "never") == 2
    assert not (user_directory(tmp_path) / "config.toml").exists()


def test_devices(
    client: Client,
    service: FakeService,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    service.devices = [
        {
            "kind": "sm90",
            "name": "NVIDIA H200",
            "index": 0,
            "host": "gpu-1",
            "idle": False,
            "why_not_idle": "pid 4242 (python) holds 10240 MiB",
            "seen_at": "2026-01-02T03:04:05Z",
            "quarantined": False,
            "measures": ["gpu_time", "host_time"],
        },
        {
            "kind": "gfx950-emulated",
            "name": "CPU",
            "index": 0,
            "host": "cpu-1",
            "idle": True,
            "why_not_idle": "",
            "seen_at": "2026-01-02T03:04:05Z",
            "quarantined": True,
            "quarantine_reason": "three host failures in a row",
            "measures": ["emulated_traffic"],
        },
    ]
    assert client("devices") == 0
    said = capsys.readouterr().out
    words = " ".join(said.split())
    assert (
        "NVIDIA H200 gpu-1 no gpu_time, host_time 01-02 03:04 pid 4242 (python) holds 10240 MiB"
        in words
    )
    assert (
        "CPU cpu-1 quarantined emulated_traffic 01-02 03:04 three host failures in a row" in words
    )
    assert client("devices", "--json") == 0
    assert json.loads(capsys.readouterr().out)["items"] == service.devices


def test_a_device_of_a_dead_worker_is_shown_as_such(
    client: Client,
    service: FakeService,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    gone = "worker gpu-1 is not alive; last seen 2026-01-02T03:04:05.000Z"
    device = {
        "kind": "sm90",
        "name": "NVIDIA H200",
        "index": 0,
        "host": "gpu-1",
        "live": False,
        "idle": False,
        "why_not_idle": gone,
        "seen_at": "2026-01-02T03:04:05Z",
        "quarantined": False,
    }
    service.devices = [device, {**device, "quarantined": True, "quarantine_reason": "fan"}]
    assert client("devices") == 0
    words = " ".join(capsys.readouterr().out.split())
    assert f"gpu-1 no worker 01-02 03:04 {gone}" in words
    assert f"gpu-1 quarantined 01-02 03:04 fan; {gone}" in words
    assert client("devices", "--json") == 0
    assert json.loads(capsys.readouterr().out)["items"][0]["live"] is False


def test_devices_say_why_a_host_takes_no_jobs(
    client: Client,
    service: FakeService,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    why = "gpu-1 has no usable sm90 device and takes no sm90 jobs; they go to gpu-2"
    device = {"kind": "sm90", "name": "NVIDIA H200", "index": 0, "host": "gpu-1", "idle": True}
    service.devices = [{**device, "quarantined": True, "quarantine_reason": "fan"}]
    assert client("devices") == 0
    assert "why no jobs" not in capsys.readouterr().out
    service.devices[0]["why_no_jobs"] = why
    assert client("devices") == 0
    head, _, row = capsys.readouterr().out.splitlines()
    assert head.split()[-6:] == ["why", "not", "idle", "why", "no", "jobs"]
    assert " ".join(row.split()).endswith(f"quarantined fan {why}")
    monkeypatch.setenv("COLUMNS", "80")
    assert client("devices") == 0
    folded = capsys.readouterr().out
    assert max(map(len, folded.splitlines())) <= 80
    assert {*why.split()} <= {*folded.split()}


def test_no_devices(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    assert client("devices") == 0
    assert capsys.readouterr() == ("", "no worker serves any device\n")
