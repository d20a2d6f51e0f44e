"""The command ``gdn-service``. Data on stdout, messages on stderr; exit 2 for wrong use."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from gdn_service import application, doctor
from gdn_service.auth import Scope, create_token
from gdn_service.clock import iso
from gdn_service.errors import ServiceError, SettingsError
from gdn_service.jobs.baseline import why_no_baseline
from gdn_service.jobs.placement import Fleet, why_no_jobs
from gdn_service.runner.inventory import Inventory, build_probes
from gdn_service.settings import Settings, load_settings
from gdn_service.store.store import Store, Transaction
from gdn_service.targets import new_target

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__
)
token_app = typer.Typer(no_args_is_help=True, help="Bearer tokens.")
run_app = typer.Typer(no_args_is_help=True, help="Runs that were stored.")
target_app = typer.Typer(no_args_is_help=True, help="Repositories whose op is tested.")
app.add_typer(token_app, name="token")
app.add_typer(run_app, name="run")
app.add_typer(target_app, name="target")

Host = Annotated[str | None, typer.Option(help="Address to listen on (GDN_HOST).")]
Port = Annotated[int | None, typer.Option(help="Port to listen on (GDN_PORT).")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def serve(host: Host = None, port: Port = None) -> None:
    """Run API and worker in one process."""
    settings = _listening(host, port)
    application.migrate(settings)
    _say(f"serving http://{settings.host}:{settings.port} (data in {settings.data_dir})")
    application.serve_all(settings)


@app.command()
def api(host: Host = None, port: Port = None) -> None:
    """Run the API alone; workers run elsewhere on the same database."""
    settings = _listening(host, port)
    application.migrate(settings)
    _say(f"serving http://{settings.host}:{settings.port}")
    application.serve_api(settings)


@app.command()
def worker() -> None:
    """Run a worker alone, for the devices of this host."""
    settings = load_settings()
    application.migrate(settings)
    application.serve_worker(settings)


@app.command()
def migrate() -> None:
    """Create or update the database tables."""
    settings = load_settings()
    application.migrate(settings)
    _say("the database is up to date")


@app.command("doctor")
def doctor_command(as_json: Json = False) -> None:
    """Tell what is missing on this machine, and how to get it."""
    findings = doctor.examine(load_settings())
    if as_json:
        print(json.dumps([finding.as_dict() for finding in findings], indent=2))
    else:
        for finding in findings:
            print(finding.as_text())
    if any(finding.level is doctor.Level.MISSING for finding in findings):
        raise typer.Exit(1)


@app.command()
def devices(
    as_json: Json = False,
    record_baseline: Annotated[
        bool, typer.Option(help="Record the memory that idle devices use now as their baseline.")
    ] = False,
    lift_quarantine: Annotated[
        str | None, typer.Option(metavar="DEVICE", help="Put a device back to use.")
    ] = None,
    retire: Annotated[
        str | None,
        typer.Option(metavar="HOST", help="Show devices of a host that is gone no more."),
    ] = None,
) -> None:
    """Show the devices of this host, and why one is not idle."""
    settings = load_settings()
    application.migrate(settings)
    with application.open_store(settings) as store:
        if lift_quarantine is not None:
            with store.write() as tx:
                if not tx.devices.quarantine(lift_quarantine, None):
                    raise SettingsError(f"there is no device {lift_quarantine!r}")
        if retire is not None:
            with store.write() as tx:
                _retire(tx, retire)
        _show_devices(settings, store, as_json=as_json, record=record_baseline)


def _retire(tx: Transaction, host: str) -> None:
    """Raises SettingsError where its worker lives, or where it has no devices."""
    fleet = Fleet(tx)
    if host in fleet.alive:
        raise SettingsError(f"the worker of {host!r} is alive; stop it first")
    hosts = sorted({device.host for device in fleet.devices})
    if host not in hosts:
        raise SettingsError(f"no device is of a host {host!r}; there are {', '.join(hosts)}")
    tx.devices.retain(host, [])


def _show_devices(settings: Settings, store: Store, *, as_json: bool, record: bool) -> None:
    inventory = Inventory(settings, store, build_probes(settings))
    rows = []
    for device in inventory.refresh():
        report = inventory.idle(device)
        if record and report.used_bytes is not None and not report.offenders:
            with store.write() as tx:
                tx.devices.set_baseline(device.id, report.used_bytes)
        with store.read() as tx:
            no_jobs = why_no_jobs(tx, settings.worker_name, device.facts.kind)
        rows.append(
            {
                "id": device.id,
                "kind": str(device.facts.kind),
                "name": device.facts.name,
                "idle": report.idle,
                "why_not_idle": report.why,
                "used_bytes": report.used_bytes,
                "why_no_jobs": no_jobs,
            }
        )
    for kind in settings.device_kinds:
        if kind not in ("auto", "none", *inventory.kinds()):
            _say(f"no {kind} device here, which GDN_DEVICE_KINDS asks for; see gdn-service doctor")
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        why = "; ".join(str(row[name]) for name in ("why_not_idle", "why_no_jobs") if row[name])
        print(f"{row['id']}\t{row['name']}\t{why or 'idle'}")


@token_app.command("create")
def token_create(
    name: Annotated[str, typer.Option(help="Whose token it is.")],
    scope: Annotated[Scope, typer.Option(help="What it allows.")] = Scope.SUBMIT,
) -> None:
    """Make a token and print it, once."""
    settings = load_settings()
    application.migrate(settings)
    with application.open_store(settings) as store:
        print(create_token(store, name, scope))
    _say("keep it safe: it is stored hashed and cannot be shown again")


@token_app.command("list")
def token_list(as_json: Json = False) -> None:
    """List tokens, without their secrets."""
    with _store() as store, store.read() as tx:
        rows = [
            {
                "id": token.id,
                "name": token.name,
                "scope": token.scope,
                "created_at": iso(token.created_at),
                "revoked_at": iso(token.revoked_at) if token.revoked_at else None,
            }
            for token in tx.tokens.all()
        ]
    _table(rows, as_json)


@token_app.command("revoke")
def token_revoke(token_id: str) -> None:
    """Revoke a token by its id; at once and for good."""
    with _store() as store, store.write() as tx:
        if not tx.tokens.revoke(token_id):
            raise SettingsError(f"there is no token {token_id!r}; see gdn-service token list")
    _say(f"token {token_id} is revoked")


@run_app.command("accept")
def run_accept(
    run_id: str,
    reason: Annotated[
        str | None, typer.Option(help="Why later commits are compared with it though it failed.")
    ] = None,
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Accept it no longer.")] = False,
) -> None:
    """Make a failed run a baseline: a loss of resources that is meant."""
    if withdraw == bool(reason and reason.strip()):
        raise SettingsError("give --reason TEXT to accept the run, or --withdraw, not both")
    with _store() as store, store.write() as tx:
        run = tx.jobs.run(run_id)
        if run is None:
            raise SettingsError(f"there is no run {run_id!r}; gdn-client show names runs")
        why = "" if withdraw else why_no_baseline(run)
        if why:
            raise SettingsError(f"run {run_id} cannot be a baseline: {why}")
        if withdraw and run.accepted is None:
            raise SettingsError(f"run {run_id} is not accepted as a baseline")
        tx.results.accept(run_id, None if withdraw else reason)
    _say(f"run {run_id} is {'no longer ' if withdraw else ''}accepted as a baseline")


@target_app.command("add")
def target_add(
    name: str,
    repository: Annotated[str, typer.Option(help="Path or URL of the git repository.")],
    import_path: Annotated[str, typer.Option(help="The op, package.module:attribute.")],
    python_path: Annotated[
        list[str] | None, typer.Option(help="Folder of the checkout put on sys.path.")
    ] = None,
    chain: Annotated[str | None, typer.Option(help="The unfused chain it replaces.")] = None,
    device_kind: Annotated[str | None, typer.Option(help="Default device kind.")] = None,
) -> None:
    """Add a target, or change what its name means."""
    local = Path(repository)
    target = new_target(
        name=name,
        repository=str(local.absolute()) if local.exists() else repository,
        import_path=import_path,
        python_path=python_path or [],
        chain_import_path=chain,
        default_device_kind=device_kind,
    )
    with _store() as store, store.write() as tx:
        tx.targets.put(target)
    _say(f"target {name} is set")


@target_app.command("list")
def target_list(as_json: Json = False) -> None:
    """List targets."""
    with _store() as store, store.read() as tx:
        rows = [
            {"name": t.name, "repository": t.repository, "import_path": t.import_path}
            for t in tx.targets.all()
        ]
    _table(rows, as_json)


def _store() -> application.OpenStore:
    settings = load_settings()
    application.migrate(settings)
    return application.open_store(settings)


def _listening(host: str | None, port: int | None) -> Settings:
    given = {"host": host, "port": port}
    settings = load_settings(**{name: value for name, value in given.items() if value is not None})
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            raise SettingsError(
                f"cannot listen on {settings.host}:{settings.port}: {error.strerror}; "
                "choose another with --port"
            ) from error
    return settings


def _table(rows: Sequence[Mapping[str, str | None]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print("\t".join("-" if value is None else value for value in row.values()))


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def main() -> None:
    application.configure_logs()
    try:
        app()
    except ServiceError as error:
        _say(f"gdn-service: {error}")
        sys.exit(2)
