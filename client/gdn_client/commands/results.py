"""Commands on stored results: show, compare, history, report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gdn_client.commands import options
from gdn_client.commands.options import chosen_format, ends_with
from gdn_client.exit_codes import ExitCode

if TYPE_CHECKING:
    from gdn_client.results import Result
    from gdn_client.session import Session


@ends_with
def show(
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="[JOB|COMMIT]...", help="What to show; HEAD by default."),
    ] = None,
    environment: Annotated[
        bool,
        typer.Option("--environment", "-e", help="Where it ran; of two, the differences in words."),
    ] = False,
    target: options.Target = None,
    device: options.Device = None,
    suite: options.Suites = None,
    strict: options.Strict = False,
    form: options.Format = None,
    as_json: options.Json = False,
    server: options.Server = None,
) -> ExitCode:
    """Show a job's result, or the latest stored results of a commit."""
    from gdn_client import results
    from gdn_client.errors import UsageError
    from gdn_client.session import connected

    names = what or ["HEAD"]
    if len(names) > (2 if environment else 1):
        raise UsageError(
            "show takes one job or commit, or two with --environment",
            remedy="`gdn-client compare A B` sets two commits beside each other.",
        )
    flags = {"server": server, "target": target, "format": chosen_format(form, as_json)}
    with connected(flags) as session:
        found = [_find(session, name, device, suite) for name in names]
        form = session.settings.get("format") or "table"
        if environment:
            _show_environments(session, names, found, form)
            return ExitCode.PASSED
        results.present(found[0], form, session.screen)
        return found[0].exit_code(strict=strict)


@ends_with
def report(
    commit: Annotated[str, typer.Argument(metavar="[COMMIT]", help="HEAD by default.")] = "HEAD",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write here instead of stdout."),
    ] = None,
    target: options.Target = None,
    device: options.Device = None,
    suite: options.Suites = None,
    form: options.Format = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    server: options.Server = None,
) -> ExitCode:
    """Write a commit's stored results as a document: Markdown unless told otherwise."""
    from gdn_client.errors import UsageError
    from gdn_client.results import rendered
    from gdn_client.session import connected

    form = chosen_format(form, as_json) or "markdown"
    if form == "table":
        raise UsageError("a report is markdown, junit or json", remedy="`show` prints tables.")
    with connected({"server": server, "target": target, "format": form}, quiet=quiet) as session:
        text = rendered(_commit_result(session, commit, device, suite), form)
        if output is None:
            session.screen.data(text)
        else:
            _write_whole(output, text)
            session.screen.say(f"wrote {output}")
    return ExitCode.PASSED


@ends_with
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="The commit to compare with.")],
    b: Annotated[str, typer.Argument(metavar="[B]", help="HEAD by default.")] = "HEAD",
    target: options.Target = None,
    device: options.Device = None,
    as_json: options.Json = False,
    server: options.Server = None,
) -> ExitCode:
    """Stored medians and compiled kernels of two commits. No statistics, so no verdict."""
    from gdn_client.report.terminal import print_section
    from gdn_client.session import connected
    from gdn_client.sides import comparisons, comparisons_json

    with connected({"server": server, "target": target}) as session:
        pairs = comparisons(session, a, b, device)
        if as_json:
            session.screen.data(comparisons_json(pairs))
        else:
            for pair in pairs:
                print_section(pair.section, session.screen.console())
    return ExitCode.PASSED


@ends_with
def history(
    commit: Annotated[str, typer.Argument(metavar="[COMMIT]", help="HEAD by default.")] = "HEAD",
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=200, help="How many commits back.")
    ] = 10,
    target: options.Target = None,
    device: options.Device = None,
    as_json: options.Json = False,
    server: options.Server = None,
) -> ExitCode:
    """Verdicts and medians of a branch's commits, first parents only, newest first."""
    import json

    from gdn_client import history as log
    from gdn_client.errors import CommitUnavailable
    from gdn_client.listing import print_plain
    from gdn_client.repository import Repository
    from gdn_client.session import connected
    from gdn_client.submission import choose_target

    with connected({"server": server, "target": target}) as session:
        repository = Repository.find(Path.cwd())
        tip = repository.resolve(commit)
        if tip is None:
            raise CommitUnavailable(
                f"{commit!r} names no commit in this repository",
                remedy="History follows first parents, so it needs the commit here: `git fetch`.",
            )
        name = choose_target(session.api, session.settings.get("target")).name
        commits = repository.first_parents(tip.sha, limit)
        entries = log.collect(session.api, commits, name, device)
        if as_json:
            session.screen.data(json.dumps(log.as_json(entries), indent=2))
            return ExitCode.PASSED
        for table in log.tables(entries):
            print_plain(table, session.screen)
        if not any(entry.results for entry in entries):
            session.screen.say(f"no stored result in the last {len(entries)} commits")
    return ExitCode.PASSED


def _find(session: Session, name: str, device: str | None, suites: list[str] | None) -> Result:
    """A job of that id, else a commit of that name."""
    from gdn_client import results
    from gdn_client.errors import UnknownName

    try:
        job = session.api.job(name)
    except UnknownName:
        return _commit_result(session, name, device, suites)
    return results.of_job(session.api, job, suites)


def _commit_result(
    session: Session, name: str, device: str | None, suites: list[str] | None
) -> Result:
    from gdn_client import results
    from gdn_client.submission import choose_target, find_commit

    target = choose_target(session.api, session.settings.get("target"))
    commit = find_commit(session.api, name, target, Path.cwd()).commit
    return results.of_commit(
        session.api, commit.sha, commit.subject, target.name, device_kind=device, suites=suites
    )


def _show_environments(session: Session, names: list[str], found: list[Result], form: str) -> None:
    from gdn_client.environments import described, differences

    if len(found) == 1:
        session.screen.data(described(found[0], as_json=form == "json"))
    else:
        session.screen.data(differences(names, found, as_json=form == "json"))


def _write_whole(path: Path, text: str) -> None:
    """The whole file or none of it."""
    from gdn_client.errors import UsageError

    temporary = path.with_name(f".{path.name}.part")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UsageError(
            f"cannot write {path}: {error.strerror}", remedy="Choose another --output."
        ) from error
