"""A copy of one kind of objects, kept by a list and a watch behind it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

from scheduler.launch.kubernetes.api import ApiFailed, Json, KubernetesApi, WatchExpired, with_query

_AGAIN_S = 0.5
_MOST_AGAIN_S = 5.0
_SERVED_AGAIN_S = 60.0  # before an API that the cluster does not serve is looked for again

log = logging.getLogger("muster.kubernetes")


class Mirror:
    """A copy of objects of the cluster that follows changes. `path`, `query`: of the list. `keep`:
    returns the part of an object that is kept. `changed`: is called at every change. `revision`:
    how many there were. `by_name`: by namespace/name where the list is of all namespaces."""

    def __init__(
        self,
        api: KubernetesApi,
        path: str,
        query: Mapping[str, str],
        changed: Callable[[], None],
        keep: Callable[[Json], Any],
        *,
        has_namespaces: bool = False,
    ) -> None:
        self.by_name: dict[str, Any] = {}
        self.is_current = False  # it has been listed, and the watch behind that stands
        self.fault = ""
        self.revision = 0
        self._api, self._path, self._query = api, path, dict(query)
        self._changed, self._keep, self._has_namespaces = changed, keep, has_namespaces

    def _key(self, item: Json) -> str:
        meta = item["metadata"]
        return f"{meta['namespace']}/{meta['name']}" if self._has_namespaces else str(meta["name"])

    async def run(self) -> None:
        """Follow the objects for ever."""
        version, pause_s = "", _AGAIN_S
        while True:
            try:
                if not version:
                    version = await self._list()
                async with aclosing(self._api.watch(self._path, self._query, version)) as events:
                    async for kind, item in events:
                        version = item["metadata"]["resourceVersion"]
                        pause_s, self.fault = _AGAIN_S, ""
                        self._take(kind, item)
            except WatchExpired:
                version = ""
            except ApiFailed as error:
                self.is_current = False
                if str(error) != self.fault:
                    self.fault = str(error)
                    log.warning("%s", error)
                # What is missed while it does not answer is listed, for its store may be another.
                version = ""
                self._tell()
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _MOST_AGAIN_S)

    async def _list(self) -> str:
        answer = await self._api.call("GET", with_query(self._path, self._query))
        self.by_name = {self._key(item): self._keep(item) for item in answer.get("items") or ()}
        self.is_current = True
        self._tell()
        return str(answer["metadata"]["resourceVersion"])

    def _take(self, kind: str, item: Json) -> None:
        self.is_current = True
        if kind == "DELETED":
            self.by_name.pop(self._key(item), None)
        elif kind in ("ADDED", "MODIFIED"):
            self.by_name[self._key(item)] = self._keep(item)
        else:  # a bookmark
            return
        self._tell()

    def _tell(self) -> None:
        self.revision += 1
        self._changed()


async def follow_served(
    api: KubernetesApi,
    group: str,
    versions: tuple[str, ...],
    resource: str,
    namespace: str,
    serve: Callable[[str, Mirror], None],
    changed: Callable[[], None],
    keep: Callable[[Json], Any],
) -> None:
    """Follow objects of an API group for ever, in the first of `versions` that the cluster serves.
    `serve` is called with that version and the copy. While it serves none, look again every
    minute."""
    while not (version := await _served_version(api, group, versions, resource)):
        await asyncio.sleep(_SERVED_AGAIN_S)
    path = f"/apis/{group}/{version}/namespaces/{namespace}/{resource}"
    mirror = Mirror(api, path, {}, changed, keep)
    serve(version, mirror)
    await mirror.run()


async def _served_version(
    api: KubernetesApi, group: str, versions: tuple[str, ...], resource: str
) -> str:
    for version in versions:
        try:
            answer = await api.call("GET", f"/apis/{group}/{version}")
        except ApiFailed:
            continue
        if any(each.get("name") == resource for each in answer.get("resources") or ()):
            return version
    return ""
