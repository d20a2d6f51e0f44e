"""Users of candidates: one for each run, let in where a folder is closed, ended as a whole."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gdn_judge import accounts, delivery, enter, processes, userns
from gdn_judge.accounts import Account
from gdn_judge.errors import HostError, UsageError
from support import chains

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can take another user")
UIDS = range(64900, 64910)  # beside those of runs
NOBODY = 65534


@pytest.fixture
def released() -> Iterator[None]:
    """The uids that a test takes are free again after it."""
    before = len(accounts._held)
    yield
    while len(accounts._held) > before:
        os.close(accounts._held.pop())


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A checkout below a folder that only its owner may enter, with something secret beside."""
    tmp_path.chmod(0o700)
    (tmp_path / "secret").write_text("s3cret")
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "op.py").write_text("x = 1\n")
    return checkout


def choose(root: Path, name: str | None = None, uids: range = UIDS, device: str = "cpu") -> Account:
    return accounts.choose(name, uids, root, None, device=device, python=sys.executable)


def run_as(account: Account, code: str, work: Path) -> str:
    """What `code` prints as that user, in `work`."""
    assert account.uid is not None
    os.chown(work, account.uid, -1)
    before, arguments = accounts.started(account.uid, account.shown, work)
    command = [*before, sys.executable, "-I", "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, **arguments)
    return ended.stdout.strip()


def test_users_are_resolved() -> None:
    assert accounts.resolve_user(None) is None
    assert accounts.resolve_user("0") == 0
    assert accounts.resolve_user("root") == 0
    with pytest.raises(UsageError, match="no user 'nobody-such'"):
        accounts.resolve_user("nobody-such")


@needs_root
def test_each_run_has_a_user_of_its_own(released: None, closed: Path) -> None:
    first, second = choose(closed), choose(closed)
    assert {first.uid, second.uid} < set(UIDS)
    assert first.uid != second.uid
    assert first.why_shared == second.why_shared == ""


@needs_root
def test_a_user_with_an_account_or_a_process_is_not_taken(released: None, closed: Path) -> None:
    sleeper = subprocess.Popen(["sleep", "600"], user=64900, group=64900, extra_groups=[])
    try:
        assert choose(closed).uid == 64901
        with pytest.raises(HostError, match=r"user 64900 has other processes \(\d+\), which would"):
            choose(closed, "64900")
    finally:
        sleeper.kill()
        sleeper.wait()
    named = pwd.getpwnam("nobody").pw_uid
    assert choose(closed, uids=range(named, named + 2)).uid == named + 1


@needs_root
def test_a_range_can_be_used_up_and_a_named_user_is_for_one_run(
    released: None, closed: Path
) -> None:
    assert choose(closed, uids=range(64909, 64910)).uid == 64909
    with pytest.raises(HostError, match=r"all uids of 64909-64909 are in use"):
        choose(closed, uids=range(64909, 64910))
    with pytest.raises(HostError, match="another run has user 64909; leave it out"):
        choose(closed, "64909")


@needs_root
def test_the_lock_of_a_user_ends_with_its_process(released: None, closed: Path) -> None:
    code = (
        "import sys, pathlib; from gdn_judge import accounts\n"
        "print(accounts.choose(None, range(64900, 64901), pathlib.Path(sys.argv[1]), None,"
        " device='cpu', python=sys.executable).uid)"
    )
    for _ in range(2):
        told = subprocess.run([sys.executable, "-c", code, str(closed)], capture_output=True)
        assert told.stdout == b"64900\n", told.stderr


@needs_root
def test_a_closed_folder_is_passed_and_shows_nothing_else(
    released: None, closed: Path, tmp_path: Path
) -> None:
    account = choose(closed)
    assert closed in account.shown
    work = tmp_path / "work"
    work.mkdir()
    code = f"""
import os
print(os.getuid(), sorted(os.listdir({str(tmp_path)!r})), open({str(closed / "op.py")!r}).read())
open("mine", "w").write("1")
for path in ({str(closed / "new")!r}, {str(tmp_path / "new")!r}, {str(tmp_path / "secret")!r}):
    try:
        print(path, open(path, "w" if path.endswith("new") else "r"))
    except OSError as error:
        print(type(error).__name__, error.errno)
"""
    lines = run_as(account, code, work).splitlines()
    assert lines[:2] == [f"{account.uid} ['checkout', 'work'] x = 1", ""]
    assert lines[2:] == ["OSError 30", "PermissionError 13", "FileNotFoundError 2"]
    assert (work / "mine").stat().st_uid == account.uid
    assert (tmp_path / "secret").read_text() == "s3cret"  # covered for the other user alone


@needs_root
def test_what_lies_open_needs_no_mount(released: None) -> None:
    usual = Path("/usr/bin/python3")
    if not usual.exists() or enter.closed_above(accounts.AGENT) is not None:
        pytest.skip("no Python, or no checkout of this project, where everybody may read")
    made = accounts.choose(None, UIDS, Path("/usr/lib"), None, device="cpu", python=str(usual))
    assert (made.uid in UIDS, made.shown) == (True, ())


@needs_root
def test_files_that_only_their_owner_may_read_leave_no_user(released: None, closed: Path) -> None:
    closed.chmod(0o700)
    account = choose(closed)
    assert account.uid is None
    assert f"Permission denied: '{closed}'" in account.why_shared
    assert "keep both where every user may read" in account.why_shared
    with pytest.raises(UsageError, match="user 64908 cannot run"):
        choose(closed, "64908")


@needs_root
def test_who_may_not_mount_gives_a_copy_of_the_checkout(closed: Path) -> None:
    """Root in a plain container; its Python must lie open then."""
    usual = Path("/usr/bin/python3")
    if not usual.exists() or enter.closed_above(accounts.AGENT) is not None:
        pytest.skip("no Python, or no checkout of this project, where everybody may read")
    code = (
        "import pathlib, sys; from gdn_judge import accounts\n"
        "found = accounts.choose(None, range(64900, 64910), pathlib.Path(sys.argv[1]), None,"
        " device='cpu', python=sys.argv[2])\n"
        "print(found.uid, found.shown, (found.copy / 'op.py').read_text().strip(), found.copy)"
    )
    unable = ["setpriv", "--bounding-set", "-sys_admin"]
    command = [*unable, sys.executable, "-c", code, str(closed), str(usual)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.stdout.startswith("64900 () x = 1 "), told.stderr
    copy = Path(told.stdout.split()[-1])
    assert copy.name == closed.name
    assert not copy.parent.exists()


def test_the_judges_own_user_is_no_other(closed: Path) -> None:
    account = choose(closed, str(os.getuid()))
    assert account.uid is None
    assert "is the judge's own user" in account.why_shared


@needs_root
def test_a_chain_of_forks_ends_with_its_user(tmp_path: Path) -> None:
    with chains.running(tmp_path, 64907) as running, chains.running(tmp_path, 64906) as others:
        assert processes.end_user(64907) == []
        assert not any(chain.goes_on() for chain in running)
        assert all(chain.goes_on() for chain in others)  # the control: another user's are left
        assert processes.end_user(64906) == []
        assert not any(chain.goes_on() for chain in others)


@needs_root
def test_the_processes_of_root_are_not_ended() -> None:
    ended = subprocess.run([sys.executable, "-I", str(processes._REAP), "0"], capture_output=True)
    assert (ended.returncode, ended.stderr) == (1, b"root's processes are not ended\n")


# A judge that is not root.


def as_nobody(folder: Path, *words: str, path: str = "", subids: str = "") -> str:
    """What `gdn-judge account` says to a user without rights. `subids`: lines of /etc/subuid."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    os.chown(home, NOBODY, -1)
    (folder / "subids").write_text(subids)
    shown = accounts.shown_folders(Path("/"), sys.executable)
    plan = {"uid": NOBODY, "gid": NOBODY, "groups": [], "work": str(home)}
    plan["show"] = [str(each) for each in shown if each != Path("/")]
    judge = [sys.executable, "-I", "-m", "gdn_judge", "account", "--target", "/usr", *words]
    inner = [sys.executable, "-I", str(accounts.ENTER), json.dumps(plan), *judge]
    binds = "".join(
        f"[ -e {file} ] || exit 9; mount --bind {folder}/subids {file}; "
        for file in (("/etc/subuid", "/etc/subgid") if subids else ())
    )
    told = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f'{binds}exec "$@"', "sh", *inner],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PATH": path or os.environ["PATH"]},
    )
    if told.returncode == 9:
        pytest.skip("no /etc/subuid that a test could cover with its own")
    return told.stdout.strip() or told.stderr


@needs_root
def test_without_uidmap_a_plain_user_hears_how_to_get_it(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("unshare", "sh", "mount"):
        (bare / name).symlink_to(str(shutil.which(name)))
    said = as_nobody(tmp_path, path=str(bare))
    assert said.startswith("the judge's own user: newuidmap is not installed: apt-get install")
    assert "or run it as root" in said


@needs_root
@pytest.mark.skipif(shutil.which("newuidmap") is None, reason="uidmap is not installed")
@pytest.mark.parametrize(
    ("subids", "words"),
    [
        ("nobody:100000:65536\n", "a user of its own for each run, for instance uid 60706"),
        ("65534:300000:2000\n", "a user of its own for each run, for instance uid 1523"),
        ("other:100000:65536\n", "the judge's own user: nobody has no line in /etc/subuid: sudo"),
    ],
    ids=["by name", "few", "none"],
)
def test_a_plain_user_with_subordinate_ids_has_other_users(
    tmp_path: Path, subids: str, words: str
) -> None:
    assert as_nobody(tmp_path, subids=subids).startswith(words)


def test_the_first_line_of_this_user_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = pwd.getpwuid(os.getuid()).pw_name
    path = tmp_path / "subuid"
    path.write_text(f"other:1:2\n{name}:100000:65536\n{name}:300000:65536\n")
    assert userns._range(path) == (100000, 65536)
    path.write_text(f"{os.getuid()}:7000:999999\n")
    assert userns._range(path) == (7000, 65536)
    path.write_text("other:1:2\nnonsense\n")
    with pytest.raises(userns.NoUsers, match=rf"{name} has no line in {path}: sudo usermod"):
        userns._range(path)


# Where a document may be written.


@pytest.mark.parametrize(
    ("mode", "owner", "refused"),
    [(0o755, 0, False), (0o1777, 0, False), (0o777, 0, True), (0o755, 64905, True)],
)
@needs_root
def test_a_document_lies_where_the_candidate_cannot_write(
    tmp_path: Path, mode: int, owner: int, refused: bool
) -> None:
    folder = tmp_path / "there" / "below"
    folder.mkdir(parents=True)
    folder.parent.chmod(mode)
    os.chown(folder.parent, owner, -1)
    if not refused:
        delivery.refuse_place(folder / "v.json", 64905)
        return
    with pytest.raises(UsageError, match=f"may write in {folder.parent}; give a folder"):
        delivery.refuse_place(folder / "v.json", 64905)
