"""`gdn-judge`: judge a checkout on this machine, without a service.

Exit codes: 0 passed, 1 any other verdict with a document, 2 usage, 5 this machine
cannot run it, 70 a bug of the judge.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gdn_judge import JUDGE_VERSION, schema
from gdn_judge.document import DeviceKind, Document, Suite, Verdict
from gdn_judge.errors import HostError, Terminated, UsageError

if TYPE_CHECKING:
    from gdn_judge.run import Events

EXTRA = ("numpy", "scipy", "torch", "triton")  # what the client's installation lacks
INSTALL = "pip install 'gdn-lab[kernels]'"
# Unused in the tables of systemd (UIDS-GIDS), given by Debian on demand alone, and in a namespace.
UIDS = range(60706, 61184)
EXIT_PASSED, EXIT_JUDGED, EXIT_USAGE, EXIT_COULD_NOT_RUN, EXIT_BUG = 0, 1, 2, 5, 70


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code. Without `arguments` this process is the judge's own."""
    options = parser().parse_args(arguments)
    options.own_process = arguments is None
    try:
        code: int = options.handler(options)
    except UsageError as error:
        print(f"gdn-judge: {error}", file=sys.stderr)
        return EXIT_USAGE
    except HostError as error:
        print(f"gdn-judge: cannot run here: {error}", file=sys.stderr)
        return EXIT_COULD_NOT_RUN
    except Exception as error:  # noqa: BLE001 - the border of the process: no verdict
        if isinstance(error, ModuleNotFoundError) and error.name in EXTRA:
            print(f"gdn-judge: cannot run here: no {error.name}; {INSTALL}", file=sys.stderr)
            return EXIT_COULD_NOT_RUN
        print("gdn-judge: internal error, no verdict", file=sys.stderr)
        traceback.print_exc()
        return EXIT_BUG
    return code


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(
        prog="gdn-judge", description="Hold a fused_gdn_decode_qkvz op against its contract."
    )
    root.add_argument("--version", action="version", version=f"gdn-judge {JUDGE_VERSION}")
    commands = root.add_subparsers(required=True, metavar="COMMAND")
    _add_run(commands.add_parser("run", help="run one suite and write its verdict document"))
    _add_bugs(commands.add_parser("bugs", help="spoil the gfx950 kernel on purpose; list catches"))
    _add_codeobject(commands.add_parser("codeobject", help="what the compiled kernels use"))
    _add_account(commands.add_parser("account", help="whether a candidate has a user of its own"))
    show = commands.add_parser("schema", help="print the JSON schema of the verdict document")
    show.set_defaults(handler=_schema)
    return root


def _add_run(run: argparse.ArgumentParser) -> None:
    add = run.add_argument
    add("--target", type=Path, required=True, metavar="DIR", help="checkout to judge")
    add("--import-path", required=True, metavar="M:F", help="op as package.module:attribute")
    add("--python-path", action="append", default=[], metavar="P", help="folder in the checkout")
    add("--chain", metavar="M:F", help="unfused op timed beside it (roofline)")
    add("--baseline", type=Path, metavar="FILE", help="document to compare with (codeobject)")
    add(
        "--commits-behind",
        type=_at_least_one,
        metavar="N",
        help="from the commit to the baseline's",
    )
    add("--target-name", default="", help="name for the document")
    add("--commit", metavar="SHA40", help="commit for the document")
    add(
        "--suite",
        required=True,
        type=Suite,
        choices=list(Suite),
        metavar="SUITE",
        help=", ".join(Suite),
    )
    add(
        "--device",
        required=True,
        type=DeviceKind,
        choices=list(DeviceKind),
        metavar="KIND",
        help=", ".join(DeviceKind),
    )
    add("--device-index", type=int, default=0, metavar="I")
    add("--batch-sizes", type=_sizes, metavar="1,8,64", help="instead of the suite's own")
    add("--heads", metavar="KHxVH", help="key and value heads, for instance 4x8")
    add("--quick", action="store_true", help="a shorter plan")
    add(
        "--launches",
        type=_launches,
        default=1,
        metavar="N|any",
        help="kernels that one call may launch (default 1)",
    )
    add("--deadline", type=float, metavar="SECONDS", help="end the run after this long")
    add(
        "--call-timeout",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="longest that one call may take, more where it has many rows (120)",
    )
    add(
        "--processes",
        type=_at_least_one,
        metavar="N",
        help="that the emulator may use (default: the cores that this process may use)",
    )
    _add_candidate(run)
    out = run.add_mutually_exclusive_group(required=True)
    out.add_argument("--out", type=Path, metavar="FILE", help="the document goes here")
    out.add_argument("--out-fd", type=int, metavar="N", help="or into this open descriptor")
    add("--progress", choices=("text", "json"), default="text")
    run.set_defaults(handler=_run)


def _add_candidate(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--candidate-user",
        metavar="NAME|UID",
        help="run the candidate as this user (default: one of --candidate-uids)",
    )
    add(
        "--candidate-uids",
        type=_uids,
        default=UIDS,
        metavar="A-B",
        help=f"users without accounts, one for each run ({UIDS.start}-{UIDS.stop - 1})",
    )
    add("--work-dir", type=Path, metavar="DIR", help="where temporary folders are made")


def _add_account(account: argparse.ArgumentParser) -> None:
    _add_candidate(account)
    account.add_argument("--target", type=Path, default=Path(), metavar="DIR", help="checkout")
    account.set_defaults(handler=_account)


def _account(options: argparse.Namespace) -> int:
    from gdn_judge import accounts, userns

    if options.own_process:
        userns.try_to_enter()
    found = accounts.choose(
        options.candidate_user,
        options.candidate_uids,
        options.target.resolve(),
        options.work_dir,
        device="cpu",
        python=sys.executable,
    )
    own = f"a user of its own for each run, for instance uid {found.uid}"
    print(f"the judge's own user: {found.why_shared}" if found.uid is None else own)
    return EXIT_JUDGED if found.uid is None else EXIT_PASSED


def _add_codeobject(listing: argparse.ArgumentParser) -> None:
    add = listing.add_argument
    add("--arch", choices=("gfx950", "sm90"), default="gfx950")
    add("--json", action="store_true", help="one JSON document on stdout")
    add("--target", type=Path, default=Path(), metavar="DIR", help="checkout (default: here)")
    add("--import-path", default="gdn_kernels:fused_gdn_decode_qkvz", metavar="M:F")
    add("--python-path", action="append", default=[], metavar="P", help="default: kernels")
    add("--batch-sizes", type=_sizes, metavar="1,8,64", help="default: 1 to 256")
    add("--heads", metavar="KHxVH", default="4x8")
    add("--no-fp8", action="store_true", help="without the FP8 epilogue")
    listing.set_defaults(handler=_codeobject)


def _add_bugs(bugs: argparse.ArgumentParser) -> None:
    add = bugs.add_argument
    add("--target", type=Path, default=Path(), metavar="DIR", help="checkout (default: here)")
    add("--import-path", default="gdn_kernels:fused_gdn_decode_qkvz", metavar="M:F")
    add("--python-path", action="append", default=[], metavar="P", help="default: kernels")
    add("--rows", type=int, default=3, metavar="T", help="batch size (default 3)")
    add("--heads", metavar="KHxVH", default="1x2")
    add("--per-kind", type=int, metavar="N", help="at most N mutants of a kind")
    bugs.set_defaults(handler=_bugs)


def _bugs(options: argparse.Namespace) -> int:
    from gdn_judge.codeobject import listing

    return listing.bugs(options)


def _codeobject(options: argparse.Namespace) -> int:
    from gdn_judge.codeobject import listing

    return listing.show(options)


def _sizes(text: str) -> list[int]:
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} should read like 1,8,64") from None
    if not sizes or min(sizes) < 0 or len(set(sizes)) != len(sizes):
        raise argparse.ArgumentTypeError(f"{text!r} should be distinct sizes of at least 0")
    return sizes


def _launches(text: str) -> int | None:
    if text == "any":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} should be a number from 1 on, or any")
    return int(text)


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} should be a number from 1 on")
    return int(text)


def _uids(text: str) -> range:
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last)):
        raise argparse.ArgumentTypeError(f"{text!r} should read like 60706-61183")
    return range(int(first), int(last) + 1)


def _schema(options: argparse.Namespace) -> int:
    print(schema.text(), end="")
    return EXIT_PASSED


def _run(options: argparse.Namespace) -> int:
    from gdn_judge import delivery, userns

    if options.out is None:
        delivery.take(options.out_fd)
    else:
        delivery.clear(options.out)
    if options.own_process:
        userns.try_to_enter()  # before anything below starts a thread
    from gdn_judge import prepare, report, run

    deadline = None if options.deadline is None else time.monotonic() + options.deadline
    request, session = prepare.prepare(options, deadline)
    events: Events = report.JsonEvents() if options.progress == "json" else report.TextEvents()
    signal.signal(signal.SIGTERM, _terminate)

    def deliver(document: Document) -> None:
        if options.out is None:
            delivery.send(document, options.out_fd)
        else:
            delivery.write(document, options.out)

    document = run.run(request, session, events, deliver=deliver)
    return EXIT_PASSED if document.verdict is Verdict.PASSED else EXIT_JUDGED


def _terminate(number: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated("ended by SIGTERM")
