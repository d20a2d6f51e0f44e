"""The judge's command, as a process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gdn_judge import cli, report, schema
from gdn_judge.document import Case, Document, Outcome, Verdict

PLAIN = Path(__file__).parents[2] / "support" / "plain_op.py"
OP = "plain_op:fused_gdn_decode_qkvz"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    shutil.copy(PLAIN, folder / "plain_op.py")
    return folder


def command(checkout: Path, *more: str, op: str = OP, suite: str = "determinism") -> list[str]:
    return [
        *(sys.executable, "-I", "-m", "gdn_judge", "run", "--target", str(checkout)),
        *("--import-path", op, "--suite", suite, "--device", "interpreter", "--quick"),
        *("--launches", "any", "--batch-sizes", "2", "--out", str(checkout.parent / "v.json")),
        *more,
    ]


def read(checkout: Path) -> Document:
    return Document.from_json((checkout.parent / "v.json").read_text())


@pytest.mark.usefixtures("own_user")
def test_progress_as_json_and_a_document(checkout: Path) -> None:
    more = ("--progress", "json", "--commit", "a" * 40, "--target-name", "gdn-lab")
    ended = subprocess.run(command(checkout, *more), capture_output=True, text=True)
    events = [json.loads(line) for line in ended.stdout.splitlines()]
    assert ended.returncode == 0, ended.stderr
    assert events[0] == {"event": "planned", "total": 2}
    assert [event["event"] for event in events] == [
        "planned",
        "arm",
        "case",
        "case",
        "arm",
        "finished",
    ]
    assert events[1] == {"event": "arm", "arm": "candidate", "moment": "before"}
    assert events[2]["id"] == "repeat-1x2-T2"
    assert (events[2]["done"], events[2]["total"], events[2]["outcome"]) == (1, 2, "passed")
    assert events[-1]["verdict"] == "passed"
    document = read(checkout)
    assert (document.target, document.commit) == ("gdn-lab", "a" * 40)
    assert document.environment["torch"] is not None
    assert not list(checkout.parent.glob("*.part"))


@pytest.mark.usefixtures("own_user")
def test_text_progress_is_a_table(checkout: Path) -> None:
    ended = subprocess.run(command(checkout), capture_output=True, text=True)
    lines = ended.stdout.splitlines()
    assert lines[0] == f"determinism of {OP} on interpreter"
    assert lines[2].split()[:2] == ["case", "outcome"]
    assert lines[3].split()[:2] == ["repeat-1x2-T2", "passed"]
    assert "passed: all 2 cases passed" in lines
    assert "[1/2] passed" in ended.stderr


@pytest.mark.usefixtures("own_user")
def test_the_document_goes_over_a_descriptor_that_only_the_judge_holds(checkout: Path) -> None:
    (checkout / "spy.py").write_text(
        "import os\n"
        "links = {os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd')\n"
        "         if os.path.islink(f'/proc/self/fd/{fd}')}\n"
        "print('LINKS', sorted(link for link in links if link.startswith('pipe')))\n"
        "from plain_op import fused_gdn_decode_qkvz as op\n"
    )
    reader, writer = os.pipe()
    words = command(checkout, "--out-fd", str(writer), op="spy:op")
    del words[words.index("--out") : words.index("--out") + 2]
    process = subprocess.Popen(words, pass_fds=(writer,), stdout=subprocess.DEVNULL)
    pipe = os.readlink(f"/proc/self/fd/{reader}")
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        length, text = stream.readline(), stream.read()
    assert process.wait(60) == 0
    assert int(length) == len(text)
    document = Document.from_json(text.decode())
    assert document.verdict is Verdict.PASSED
    assert "LINKS ['pipe:" in document.log_tail
    assert pipe not in document.log_tail


def test_an_old_document_is_gone_at_the_start(checkout: Path) -> None:
    old = checkout.parent / "v.json"
    old.write_text('{"verdict": "passed"}')
    ended = subprocess.run(command(checkout, op="no-colon"), capture_output=True, text=True)
    assert ended.returncode == 2
    assert not old.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="the candidate's user could write there anyway")
def test_a_document_is_not_put_where_the_candidate_may_write(checkout: Path) -> None:
    checkout.parent.chmod(0o777)
    ended = subprocess.run(command(checkout), capture_output=True, text=True)
    assert ended.returncode == 2
    assert f"may write in {checkout.parent}; give a folder that only you" in ended.stderr


def test_under_the_judges_own_user_nothing_is_passed(checkout: Path) -> None:
    same = ("--candidate-user", str(os.getuid()))
    ended = subprocess.run(command(checkout, *same), capture_output=True, text=True)
    document = read(checkout)
    assert ended.returncode == 1
    assert document.verdict is Verdict.INCONCLUSIVE
    assert document.reason == (
        "all 2 cases passed, but the candidate had no user of its own: "
        f"--candidate-user {os.getuid()} is the judge's own user"
    )
    assert any(
        note.startswith("The candidate ran under the judge's own") for note in document.notes
    )


def test_a_failed_case_names_its_outcome_once() -> None:
    case = Case(id="a", params={}, outcome=Outcome.FAILED, reason="out_exact is 0.1")
    assert report.summary(case) == "out_exact is 0.1"


def test_an_installation_without_the_kernels_extra_says_what_to_install(checkout: Path) -> None:
    without = (
        "import sys; sys.modules['numpy'] = None; from gdn_judge.cli import main; "
        "raise SystemExit(main(sys.argv[1:]))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", without, *command(checkout)[4:]], capture_output=True, text=True
    )
    assert (ended.returncode, ended.stderr) == (
        5,
        "gdn-judge: cannot run here: no numpy; pip install 'gdn-lab[kernels]'\n",
    )


def test_sigterm_leaves_a_partial_document(checkout: Path) -> None:
    (checkout / "slow.py").write_text(
        "import time\n"
        "from plain_op import fused_gdn_decode_qkvz as right\n"
        "def op(*args, **kwargs):\n"
        "    time.sleep(3e5 if args[0].shape[0] == 1 else 0)\n"
        "    return right(*args, **kwargs)\n"
    )
    process = subprocess.Popen(
        command(checkout, "--progress", "json", op="slow:op"), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    events = (json.loads(line)["event"] for line in process.stdout)
    assert "case" in events  # the first is done, the second calls one row alone
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    rest = process.stdout.read()
    process.stdout.close()
    assert process.wait(30) == 1
    document = read(checkout)
    assert document.partial
    assert document.verdict is Verdict.INCONCLUSIVE
    assert document.reason == "ended by SIGTERM after 1 of 2 cases"
    assert [case.outcome for case in document.cases] == [Outcome.PASSED, Outcome.NOT_RUN]
    assert json.loads(rest.splitlines()[-1])["event"] == "finished"


def test_the_deadline_ends_a_run_without_blame(checkout: Path) -> None:
    ended = subprocess.run(command(checkout, "--deadline", "0.01"), capture_output=True, text=True)
    document = read(checkout)
    assert ended.returncode == 1
    assert document.verdict is Verdict.ERROR
    assert document.failure_class is None
    assert {case.outcome for case in document.cases} == {Outcome.NOT_RUN}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--target", "/no/such/folder"), "--target /no/such/folder is not a folder"),
        (("--import-path", "no-colon"), "should read package.module:attribute"),
        (("--import-path", "a:b;c"), "should read package.module:attribute"),
        (("--python-path", "../.."), "leads out of the checkout"),
        (("--python-path", "missing"), "is not a folder of the checkout"),
        (("--heads", "4x9"), "multiple of KH"),
        (("--out", "/no/such/folder/v.json"), "there is no folder /no/such/folder"),
        (("--candidate-uids", "9-5"), "should read like 60706-61183"),
        (("--candidate-user", "no-such-user"), "no user 'no-such-user'"),
        (("--batch-sizes", "1,x"), "should read like 1,8,64"),
        (("--batch-sizes", "1,1"), "distinct sizes"),
        (("--suite", "speed"), "speed"),
        (("--device", "h100"), "h100"),
        (("--launches", "0"), "a number from 1 on"),
    ],
)
def test_what_cannot_be_meant(
    arguments: tuple[str, str], message: str, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = command(checkout)[4:]
    with pytest.raises(SystemExit) if message in _BY_ARGPARSE else _nothing():
        assert cli.main([*given, *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not (checkout.parent / "v.json").exists()


_BY_ARGPARSE = ("should read like 1,8,64", "distinct sizes", "speed", "h100", "a number from 1 on")
_BY_ARGPARSE += ("should read like 60706-61183",)


def _nothing():  # type: ignore[no-untyped-def]
    import contextlib

    return contextlib.nullcontext()


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["schema"]) == 0
    assert capsys.readouterr().out == schema.text()


@pytest.mark.parametrize("suite", ["roofline", "correctness"])
def test_a_device_that_is_not_there_is_the_hosts_fault(suite: str, checkout: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    run = [*command(checkout, suite=suite), "--device", "sm90"]
    ended = subprocess.run(run, capture_output=True, text=True)
    document = read(checkout)
    assert ended.returncode == 1
    assert document.verdict is Verdict.ERROR
    assert document.failure_class is not None
    assert document.failure_class.value == "host"
    assert "cannot use cuda:0: torch sees no CUDA or HIP device" in document.reason


def test_a_bug_of_the_judge_is_no_verdict(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gdn_judge import prepare

    def broken(*arguments: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(prepare, "prepare", broken)
    assert cli.main(command(checkout)[4:]) == 70  # 5 would blame the host
    error = capsys.readouterr().err
    assert "internal error, no verdict" in error
    assert "ZeroDivisionError: a bug" in error
