"""A container engine over its API, reduced to what a run needs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import requests
from docker.api import APIClient
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.utils import kwargs_from_env

from gdn_service.errors import EngineError
from gdn_service.runner.container import LABEL

_TIMEOUT_S = 60


@contextmanager
def _in_words(what: str) -> Iterator[None]:
    try:
        yield
    except (DockerException, requests.RequestException, OSError) as error:
        raise EngineError(f"the container engine cannot {what}: {error}") from error


class Engine:
    """Every method raises EngineError with the engine's words."""

    def __init__(self, url: str) -> None:
        """`url` like unix:///var/run/docker.sock; "" is the engine of the environment."""
        where = {"base_url": url} if url else kwargs_from_env()
        with _in_words("be reached"):
            self._api = APIClient(version="auto", timeout=_TIMEOUT_S, **where)

    def close(self) -> None:
        self._api.close()

    def version(self) -> str:
        with _in_words("say its version"):
            return str(self._api.version()["Version"])

    def image_id(self, reference: str) -> str:
        """The digest of a local image; nothing is pulled."""
        try:
            with _in_words(f"look at image {reference}"):
                return str(self._api.inspect_image(reference)["Id"])
        except EngineError as error:
            if isinstance(error.__cause__, ImageNotFound):
                raise EngineError(
                    f"there is no image {reference} here: build it (docker/README.md) or pull it, "
                    "or set GDN_JUDGE_IMAGE"
                ) from error
            raise

    @contextmanager
    def container(self, body: dict[str, Any]) -> Iterator[Container]:
        """A created container; gone at the end, whatever state it is in."""
        with _in_words("create the container"):
            made = self._api.create_container_from_config(body)["Id"]
        try:
            yield Container(self._api, made)
        finally:
            self._remove(made)

    def sweep(self, worker: str) -> list[str]:
        """Remove all containers of `worker`; the ids of those that were there."""
        with _in_words("list containers"):
            found = self._api.containers(all=True, filters={"label": f"{LABEL}={worker}"})
        for container in found:
            self._remove(container["Id"])
        return [str(container["Id"]) for container in found]

    def _remove(self, container_id: str) -> None:
        with _in_words("remove the container"), contextlib.suppress(NotFound):
            self._api.remove_container(container_id, force=True, v=True)


@dataclass(frozen=True)
class Container:
    _api: Any
    id: str

    @contextmanager
    def attached(self) -> Iterator[int]:
        """A descriptor: what is written to it is stdin, what is read are frames of output."""
        with _in_words("attach to the container"):
            stream = self._api.attach_socket(
                self.id, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            )
        connection = getattr(stream, "_sock", stream)  # closing the stream leaves it open
        try:
            yield stream.fileno()
        finally:
            stream.close()
            connection.close()

    def start(self) -> None:
        with _in_words("start the container"):
            self._api.start(self.id)

    def pid(self) -> int:
        """Of its first process, as the host sees it; 0 when it has ended already."""
        with _in_words("look at the container"):
            return int(self._api.inspect_container(self.id)["State"]["Pid"])

    def kill(self) -> None:
        with _in_words("kill the container"), contextlib.suppress(NotFound):
            try:
                self._api.kill(self.id)
            except APIError as error:
                if error.status_code != 409:  # it has ended meanwhile
                    raise

    def status(self) -> tuple[int, bool]:
        """(exit status, whether memory ran out in it), once it has ended."""
        with _in_words("wait for the container"):
            code = int(self._api.wait(self.id, timeout=_TIMEOUT_S)["StatusCode"])
            state = self._api.inspect_container(self.id)["State"]
        return code, bool(state.get("OOMKilled"))
