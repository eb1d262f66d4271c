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
    how many there were."""

    def __init__(
        self,
        api: KubernetesApi,
        path: str,
        query: Mapping[str, str],
        changed: Callable[[], None],
        keep: Callable[[Json], Any],
    ) -> None:
        self.by_name: dict[str, Any] = {}
        self.is_current = False  # it has been listed, and the watch behind that stands
        self.fault = ""
        self.revision = 0
        self._api, self._path, self._query = api, path, dict(query)
        self._changed, self._keep = changed, keep

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
        items = answer.get("items") or ()
        self.by_name = {item["metadata"]["name"]: self._keep(item) for item in items}
        self.is_current = True
        self._tell()
        return str(answer["metadata"]["resourceVersion"])

    def _take(self, kind: str, item: Json) -> None:
        self.is_current = True
        if kind == "DELETED":
            self.by_name.pop(item["metadata"]["name"], None)
        elif kind in ("ADDED", "MODIFIED"):
            self.by_name[item["metadata"]["name"]] = self._keep(item)
        else:  # a bookmark
            return
        self._tell()

    def _tell(self) -> None:
        self.revision += 1
        self._changed()


class ServedMirror(Mirror):
    """A copy of the objects of an API group in a namespace. `version`: the first of `versions` that
    the cluster serves, "" while it serves none, which is looked at again every minute."""

    def __init__(
        self,
        api: KubernetesApi,
        group: str,
        versions: tuple[str, ...],
        resource: str,
        namespace: str,
        changed: Callable[[], None],
        keep: Callable[[Json], Any],
    ) -> None:
        super().__init__(api, "", {}, changed, keep)
        self.version = ""
        self._group, self._versions = f"/apis/{group}", versions
        self._resource, self._namespace = resource, namespace

    async def run(self) -> None:
        """Follow the objects for ever, from when the cluster serves them."""
        while not await self._is_served():
            await asyncio.sleep(_SERVED_AGAIN_S)
        self._path = self.path_of(self._resource)
        await super().run()

    def path_of(self, resource: str) -> str:
        """Return the path of objects of the API group in the namespace."""
        return f"{self._group}/{self.version}/namespaces/{self._namespace}/{resource}"

    async def _is_served(self) -> bool:
        for version in self._versions:
            try:
                answer = await self._api.call("GET", f"{self._group}/{version}")
            except ApiFailed:
                continue
            if any(each.get("name") == self._resource for each in answer.get("resources") or ()):
                self.version = version
                return True
        return False
