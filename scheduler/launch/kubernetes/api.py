"""Calls of the Kubernetes API, in plain JSON.

The official client does what is hard (kubeconfig, tokens that expire, exec plug-ins, TLS, pools of
connections); its generated classes are passed by, for they take ten times as long for a list.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import aiohttp
import msgspec
from kubernetes.aio import config
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject

from scheduler.launch.keys import KubernetesKeys
from scheduler.launch.substrate import SubstrateFailed
from scheduler.observe.supervision import Heartbeats

PARALLEL = 24  # calls at once
_PATIENCE_S = 30.0
_WATCH_S = 280  # after which a watch is asked for anew, as client-go does
MERGE_PATCH = "application/merge-patch+json"
_TOKEN_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/token"

Json = dict[str, Any]


class ApiFailed(SubstrateFailed):
    """The API server refused a call, or did not answer. `status`: of HTTP, 0 where it did not
    answer."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status

    @property
    def is_absence(self) -> bool:
        return self.status == 404

    @property
    def is_conflict(self) -> bool:
        return self.status == 409


class WatchExpired(Exception):
    """The version from which to watch is too old: list again."""


async def configuration(keys: KubernetesKeys) -> Configuration:
    """Find the cluster: without `kubeconfig` that of the user, or of this pod's service account.
    Raises: ApiFailed."""
    settings = Configuration()
    path = keys.kubeconfig or os.environ.get("KUBECONFIG", "")
    is_in_pod = not path and os.path.exists(_TOKEN_FILE)
    files = (path or os.path.expanduser("~/.kube/config")).split(os.pathsep)
    if not is_in_pod and not any(map(os.path.exists, files)):
        ways = "name one by kubernetes.kubeconfig or KUBECONFIG"
        raise ApiFailed(f"there is no kubeconfig {os.pathsep.join(files)}: {ways}")
    try:
        if is_in_pod:
            config.load_incluster_config(settings)  # type: ignore[no-untyped-call]
        else:
            await config.load_kube_config(  # type: ignore[no-untyped-call]
                path or None, keys.context, settings, persist_config=False
            )
    except (config.ConfigException, OSError, ValueError, TypeError, KeyError) as error:
        raise ApiFailed(f"cannot use {path or 'the kubeconfig'}: {error}") from None
    settings.connection_pool_maxsize = 4 * PARALLEL  # watches hold some for ever
    return settings


class KubernetesApi:
    """One cluster. Every call raises ApiFailed. `beats`: counts calls that it forbids."""

    def __init__(self, keys: KubernetesKeys, beats: Heartbeats | None = None) -> None:
        self._keys = keys
        self._beats = beats or Heartbeats()
        self._configuration: Configuration | None = None
        self._rest: RESTClientObject | None = None
        self._turns = asyncio.Semaphore(PARALLEL)

    async def _connected(self) -> tuple[Configuration, RESTClientObject]:
        if self._configuration is None or self._rest is None:
            settings = await configuration(self._keys)
            try:
                self._rest = RESTClientObject(settings)
            except OSError as error:
                raise ApiFailed(f"cannot use the certificates of the kubeconfig: {error}") from None
            self._configuration = settings
        return self._configuration, self._rest

    async def _request(
        self, method: str, path: str, body: Any, kind: str, patience: Any
    ) -> aiohttp.ClientResponse:
        configuration, rest = await self._connected()
        headers = {"Accept": "application/json", "Content-Type": kind}
        try:
            token = await configuration.get_api_key_with_prefix("BearerToken", "authorization")
            if token:
                headers["Authorization"] = token
            url = configuration.host + path
            answer = await rest.request(  # type: ignore[no-untyped-call]
                method, url, headers=headers, body=body, _request_timeout=patience
            )
        except (aiohttp.ClientError, OSError, TimeoutError, config.ConfigException) as error:
            text = str(error) or type(error).__name__
            raise ApiFailed(f"{method} {path}: {text}") from None
        return answer.response  # type: ignore[no-any-return]

    def _refusal(self, method: str, path: str, data: bytes, status: int) -> ApiFailed:
        """Return the error of an answer, and count what the service account may not do."""
        if status == HTTPStatus.FORBIDDEN:
            self._beats.refused["kubernetes",] += 1
        return ApiFailed(f"{method} {path}: {_message(data)}", status)

    async def call(
        self, method: str, path: str, body: Any = None, *, kind: str = "application/json"
    ) -> Json:
        """Make one call and return its answer."""
        async with self._turns:
            response = await self._request(method, path, body, kind, _PATIENCE_S)
            try:
                data = await response.read()
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise ApiFailed(f"{method} {path}: {error or type(error).__name__}") from None
            finally:
                response.release()
        if response.status >= 400:
            raise self._refusal(method, path, data, response.status)
        try:
            body = msgspec.json.decode(data) if data else {}
        except msgspec.DecodeError:
            raise ApiFailed(f"{method} {path}: the answer is not JSON", response.status) from None
        return body if isinstance(body, dict) else {}

    async def watch(
        self, path: str, query: Mapping[str, str], version: str
    ) -> AsyncGenerator[tuple[str, Json]]:
        """Yield (type, object) of each change after `version`, until the server ends it. Raises:
        WatchExpired."""
        parameters = {
            **query,
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
        }
        parameters["timeoutSeconds"] = str(_WATCH_S)
        patience = aiohttp.ClientTimeout(total=None, sock_connect=_PATIENCE_S)
        response = await self._request("GET", with_query(path, parameters), None, "", patience)
        try:
            if response.status == 410:
                raise WatchExpired
            if response.status >= 400:
                raise self._refusal("GET", path, await response.read(), response.status)
            async with aclosing(_lines(response)) as lines:
                async for line in lines:
                    event = msgspec.json.decode(line)
                    kind, item = event["type"], event["object"]
                    if kind == "ERROR":
                        if item.get("code") == 410:
                            raise WatchExpired
                        text = f"GET {path}: {item.get('message')}"
                        raise ApiFailed(text, int(item.get("code") or 0))
                    yield kind, item
        except (aiohttp.ClientError, OSError, TimeoutError, msgspec.DecodeError) as error:
            raise ApiFailed(f"GET {path}: {error or type(error).__name__}") from None
        finally:
            response.close()

    async def close(self) -> None:
        if self._rest is not None:
            await self._rest.close()


async def _lines(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
    """Objects may be longer than any limit on lines."""
    rest = b""
    async for chunk in response.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                yield line


def with_query(path: str, query: Mapping[str, str]) -> str:
    """Return the path with these parameters, if there are any."""
    return f"{path}?{urlencode(query)}" if query else path


def _message(data: bytes) -> str:
    """Return the message of a Status."""
    try:
        status = msgspec.json.decode(data)
        return str(status["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return data[:200].decode("utf-8", "replace").strip() or "no reason given"
