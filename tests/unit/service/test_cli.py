"""The command ``gdn-service`` as a process: what it prints, where, and how it ends."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from gdn_judge.document import Document, Suite, Verdict
from gdn_service import application, doctor
from gdn_service.cli import app
from gdn_service.errors import InvalidRequest
from gdn_service.settings import load_settings
from gdn_service.store.models import Run
from gdn_service.store.store import Store
from gdn_service.targets import new_target
from support import preloaded
from support.service_rows import DEVICE, add_device, add_job, add_target, add_worker, document


class Command:
    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir

    def __call__(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        words = ["-m", "gdn_service", *arguments]
        return preloaded.run(words, env=self.environment() | environment)

    def afresh(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """In an interpreter of its own, with every import."""
        words = [sys.executable, "-m", "gdn_service", *arguments]
        return subprocess.run(words, env=self.environment(), capture_output=True, text=True)

    def environment(self) -> dict[str, str]:
        ours = {"GDN_DATA_DIR": str(self.data_dir), "GDN_DEVICE_KINDS": "interpreter"}
        return os.environ | ours


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path / "data")


def test_a_token_is_shown_once_and_revoked(command: Command) -> None:
    made = command.afresh("token", "create", "--name", "ci")
    assert re.fullmatch(r"gdn_[0-9a-f]{12}_[\w-]{43}\n", made.stdout)
    token_id = made.stdout.split("_")[1]
    listed = json.loads(command("token", "list", "--json").stdout)
    assert [(t["id"], t["name"], t["scope"]) for t in listed] == [(token_id, "ci", "submit")]
    secret = made.stdout.strip().split("_", 2)[2]
    assert secret not in (command.data_dir / "gdn.sqlite").read_bytes().decode("latin-1")
    assert command("token", "revoke", token_id).returncode == 0
    again = command.afresh("token", "revoke", "nobody")
    assert (again.returncode, again.stderr) == (
        2,
        "gdn-service: there is no token 'nobody'; see gdn-service token list\n",
    )


def test_only_a_failed_run_is_accepted_and_only_with_a_reason(command: Command) -> None:
    for wrong in ([], ["--reason", " "], ["--reason", "meant", "--withdraw"]):
        refused = command("run", "accept", "r0", *wrong)
        assert (refused.returncode, refused.stderr) == (
            2,
            "gdn-service: give --reason TEXT to accept the run, or --withdraw, not both\n",
        )
    unknown = command("run", "accept", "r0", "--reason", "meant")
    assert unknown.returncode == 2
    assert "there is no run 'r0'" in unknown.stderr


NO_BASELINE = [
    ({"suite": Suite.CORRECTNESS}, "it is of the suite correctness; only codeobject compares"),
    ({"partial": True}, "it is partial: some planned cases did not run"),
    ({"verdict": Verdict.PASSED}, "it is passed, not failed; a run that passed is one as it is"),
]


def test_a_run_that_nothing_is_compared_with_is_not_accepted(command: Command) -> None:
    assert command("migrate").returncode == 0
    failed = document(suite=Suite.CODEOBJECT, verdict=Verdict.FAILED, reason="spills")
    with application.open_store(load_settings(data_dir=command.data_dir)) as store:
        add_target(store)
        add_device(store)
        usable, *others = [
            finished(store, dataclasses.replace(failed, **change))
            for change in ({}, *(change for change, _ in NO_BASELINE))
        ]
        for run_id, (_, why) in zip(others, NO_BASELINE, strict=True):
            refused = command("run", "accept", run_id, "--reason", "meant")
            assert refused.returncode == 2
            assert f"run {run_id} cannot be a baseline: {why}" in refused.stderr
        never = command("run", "accept", usable, "--withdraw")
        assert (never.returncode, never.stderr) == (
            2,
            f"gdn-service: run {usable} is not accepted as a baseline\n",
        )
        assert command("run", "accept", usable, "--reason", "meant").returncode == 0
        assert accepted(store) == {usable: "meant"}
        assert command("run", "accept", usable, "--withdraw").returncode == 0
        assert accepted(store) == {}


def finished(store: Store, judged: Document) -> str:
    """The id of a run with `judged` as its document."""
    (run,) = add_job(store, suites=(judged.suite,)).runs
    with store.write() as tx:
        tx.jobs.start_run(run.id, DEVICE)
        tx.results.receive(run.id, judged.to_json())
        assert tx.results.store(run.id, judged)
    return run.id


def accepted(store: Store) -> dict[str, str | None]:
    with store.read() as tx:
        runs = tx.session.scalars(select(Run).where(Run.accepted.is_not(None)))
        return {run.id: run.accepted for run in runs}


def test_a_local_repository_becomes_an_absolute_path(command: Command, tmp_path: Path) -> None:
    arguments = ["--repository", str(tmp_path), "--import-path", "m:f", "--python-path", "src"]
    assert command("target", "add", "demo", *arguments).returncode == 0
    (target,) = json.loads(command("target", "list", "--json").stdout)
    assert target == {"name": "demo", "repository": str(tmp_path), "import_path": "m:f"}


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"GDN_SUITE_TIMEOUT_S": "99999"}, "suite_timeout_s (99999 s) must be smaller than job"),
        ({"GDN_PORT": "x"}, "GDN_PORT: "),
        ({"GDN_DEVICE_KINDS": "sm90"}, "no device of the kinds asked for (sm90)"),
    ],
)
def test_wrong_settings_end_with_a_sentence(
    command: Command, environment: dict[str, str], words: str
) -> None:
    if environment == {"GDN_DEVICE_KINDS": "sm90"} and Path("/dev/nvidia0").exists():
        pytest.skip("this machine has an NVIDIA device")
    ended = command("worker", **environment)
    assert ended.returncode == 2
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_port_in_use_is_named(command: Command) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = command("serve", "--port", str(port))
    assert ended.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in ended.stderr


def test_doctor_names_what_is_missing_and_the_remedy(command: Command) -> None:
    ended = command("doctor", "--json", GDN_JUDGE_COMMAND="/does/not/exist")
    findings = {finding["what"]: finding for finding in json.loads(ended.stdout)}
    assert ended.returncode == 1
    assert findings["judge"]["level"] == "missing"
    assert findings["judge"]["remedy"] == "check GDN_JUDGE_COMMAND"
    assert findings["git"]["level"] == "ok"
    assert findings["database"]["detail"].startswith("SQLite")
    unreachable = command("doctor", GDN_DATABASE_URL="postgresql://x@127.0.0.1:1/x")
    assert "missing database: " in unreachable.stdout
    assert "-> check GDN_DATABASE_URL" in unreachable.stdout


@pytest.mark.parametrize(
    "arguments",
    ["devices", "token list", "target list", "run accept r0 --withdraw", "migrate", "worker"],
)
def test_a_database_out_of_reach_is_one_line(command: Command, arguments: str) -> None:
    ended = command(*arguments.split(), GDN_DATABASE_URL="postgresql://x:hush@127.0.0.1:1/x")
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("gdn-service: the database cannot be reached: connection failed")
    assert line.endswith("Connection refused; check GDN_DATABASE_URL and that the server runs")
    assert "hush" not in line


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"GDN_DATABASE_URL": "db.example"}, "Could not parse SQLAlchemy URL"),
        ({"GDN_DATABASE_URL": "nosql://x/y"}, "Can't load plugin: sqlalchemy.dialects:nosql"),
        ({"GDN_DATA_DIR": "/dev/null/gdn"}, "/dev/null/gdn cannot be made: Not a directory"),
    ],
)
def test_no_database_and_no_folder_for_one_are_told(
    command: Command, environment: dict[str, str], words: str
) -> None:
    ended = command("migrate", **environment)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert words in line
    assert "database: " in command("doctor", GDN_DATABASE_URL="nosql://x/y").stdout


def test_an_installation_without_the_service_extra_says_what_to_install() -> None:
    without = (
        "import sys; sys.modules['structlog'] = None; from gdn_service.__main__ import main; main()"
    )
    ended = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (
        1,
        "gdn-service: no structlog; pip install 'gdn-lab[service]'\n",
    )


def test_doctor_asks_the_judge_whether_the_candidate_gets_a_user_of_its_own(tmp_path: Path) -> None:
    def account(script: str, **overrides: Any) -> tuple[str, str]:
        judge = tmp_path / "judge.py"
        judge.write_text(script)
        command = (sys.executable, "-I", str(judge))
        made = load_settings(data_dir=tmp_path / "not/yet", judge_command=command, **overrides)
        (finding,) = doctor._account(made)
        return finding.level.value, finding.detail

    words = f"['account', '--work-dir', '{tmp_path}', '--candidate-uids', '70000-70009'"
    own = "import sys; print('a user of its own, as', sys.argv[1:])"
    level, detail = account(own, candidate_uids="70000-70009")
    assert level == "ok"
    tree = f"'--target', '{tmp_path}/gdn-doctor-"
    assert detail.startswith(f"the candidate has a user of its own, as {words}, {tree}")
    _, detail = account(own, candidate_uids="70000-70009", candidate_user="gdn")
    assert f"{words}, '--candidate-user', 'gdn', {tree}" in detail
    assert list(tmp_path.glob("gdn-doctor-*")) == []
    shared = """print("the judge's own user: no uidmap"); raise SystemExit(1)"""
    assert account(shared) == ("missing", "the candidate has the judge's own user: no uidmap")


@pytest.mark.usefixtures("own_user")
def test_the_real_judge_answers_the_doctor(tmp_path: Path) -> None:
    (finding,) = doctor._account(load_settings(data_dir=tmp_path / "data"))
    assert finding.level.value == "ok"
    assert "a user of its own for each run, for instance uid" in finding.detail


def test_devices_are_listed(command: Command) -> None:
    (device,) = json.loads(command("devices", "--json").stdout)
    assert (device["kind"], device["idle"]) == ("interpreter", True)
    refused = command("devices", "--lift-quarantine", "nope")
    assert (refused.returncode, refused.stderr) == (
        2,
        "gdn-service: there is no device 'nope'\n",
    )


def test_devices_of_a_host_that_is_gone_are_retired(command: Command) -> None:
    command("devices")
    with application.open_store(load_settings(data_dir=command.data_dir)) as store:
        add_device(store)
        add_worker(store)
    refused = command("devices", "--retire", "bench")
    assert (refused.returncode, refused.stderr) == (
        2,
        "gdn-service: the worker of 'bench' is alive; stop it first\n",
    )
    with application.open_store(load_settings(data_dir=command.data_dir)) as store:
        with store.write() as tx:
            tx.leases.release("worker:bench", "bench")
    assert command("devices", "--retire", "bench").returncode == 0
    with application.open_store(load_settings(data_dir=command.data_dir)) as store:
        with store.read() as tx:
            present = {device.host: device.present for device in tx.devices.all()}
    assert present.pop("bench") is False
    assert list(present.values()) == [True]
    refused = command("devices", "--retire", "bench")
    assert refused.returncode == 2
    assert "no device is of a host 'bench'; there are " in refused.stderr


@pytest.mark.skipif(Path("/dev/kfd").exists(), reason="this machine may have an AMD device")
def test_a_kind_asked_for_by_name_that_is_not_there_is_missing(command: Command) -> None:
    asked = {"GDN_DEVICE_KINDS": "interpreter,gfx950"}
    ended = command("doctor", "--json", **asked)
    (amd,) = [finding for finding in json.loads(ended.stdout) if finding["what"] == "AMD"]
    assert (ended.returncode, amd["level"]) == (1, "missing")
    assert amd["detail"].startswith("no gfx950 device, which GDN_DEVICE_KINDS asks for: ")
    listed = command("devices", **asked)
    assert listed.returncode == 0
    assert listed.stdout.splitlines()[0].endswith("interpreter on the CPU\tidle")
    assert listed.stderr == (
        "no gfx950 device here, which GDN_DEVICE_KINDS asks for; see gdn-service doctor\n"
    )


@pytest.mark.skipif(Path("/dev/kfd").exists(), reason="this machine may have an AMD device")
def test_a_kind_that_nobody_asked_for_is_not_missing() -> None:
    (finding,) = doctor._amd(load_settings(device_kinds=("auto",)))
    assert finding.level is doctor.Level.NOTE


@pytest.mark.parametrize(
    ("version", "level"),
    [("3.8.0", "ok"), ("3.10.1+rocm7.2", "ok"), ("3.7.1", "note"), ("main", "note")],
)
def test_doctor_says_whether_the_judges_triton_has_gluon(version: str, level: str) -> None:
    finding = doctor.judge_triton(version)
    assert finding.level == level
    assert version in finding.detail
    assert ("install Triton 3.8 or later" in finding.remedy) == (level == "note")


def test_doctor_asks_the_judges_own_python(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 3.7.1\n")
    python.chmod(0o755)
    settings = load_settings(judge_command=f"{python},-I,-m,gdn_judge")
    (finding,) = doctor._triton(settings)
    assert (finding.level, finding.detail.split(":")[0]) == ("note", "3.7.1")
    assert list(doctor._triton(load_settings(judge_command="/usr/bin/judge"))) == []


def test_doctor_and_kernels_agree_on_the_first_triton_with_gluon() -> None:
    platform = pytest.importorskip("gdn_kernels.platform")
    assert doctor.GLUON_SINCE == platform.GLUON_SINCE


def test_every_command_says_what_it_does() -> None:
    for command in app.registered_commands:
        assert command.callback is not None
        assert command.callback.__doc__, command.callback.__name__


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "Demo"}, "'Demo' is not a target name"),
        ({"repository": "--upload-pack=id"}, "not a path or URL"),
        ({"import_path": "m.f"}, "write package.module:attribute"),
        ({"chain_import_path": "m:f;id"}, "write package.module:attribute"),
        ({"python_path": ["../x"]}, "not a folder inside the checkout"),
        ({"default_device_kind": "h100"}, "not a device kind; known: gfx950"),
        ({"suites": ["compare"]}, "'compare' is not a suite"),
    ],
)
def test_wrong_targets_are_refused(values: dict[str, object], message: str) -> None:
    right: dict[str, object] = {"name": "demo", "repository": "/r", "import_path": "m:f"}
    with pytest.raises(InvalidRequest, match=message):
        new_target(**right | values)  # type: ignore[arg-type]
