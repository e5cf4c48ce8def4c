"""The Kubernetes API as the machines use it: raw objects, many calls at once, watches that never end."""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import yaml

JSON, MERGE, STRATEGIC = (f"application/{kind}json" for kind in ("", "merge-patch+", "strategic-merge-patch+"))
Object = dict[str, Any]
log = logging.getLogger("api")


class ApiError(Exception):
    """The API refused: `status` is the HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class Api:
    """One connection pool with a client certificate. Must be made inside the event loop."""

    def __init__(self, kubeconfig: Path) -> None:
        content = yaml.safe_load(kubeconfig.read_text())
        cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
        tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        with tempfile.NamedTemporaryFile() as pem:
            for key in ("client-certificate-data", "client-key-data"):
                pem.write(base64.b64decode(user[key]) + b"\n")
            pem.flush()
            tls.load_cert_chain(pem.name)
        self._session = aiohttp.ClientSession(
            cluster["server"],
            connector=aiohttp.TCPConnector(ssl=tls, limit=64),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=30),
        )

    async def close(self) -> None:
        await self._session.close()

    async def call(self, method: str, path: str, body: Any = None, *, kind: str = JSON, **query: str) -> Object:
        """One request; raises ApiError, and TimeoutError after 60 s."""
        data = None if body is None else msgspec.json.encode(body)
        async with (
            asyncio.timeout(60),
            self._session.request(method, path, data=data, params=query, headers={"Content-Type": kind}) as answer,
        ):
            text = await answer.read()
            if answer.status >= 400:
                raise ApiError(answer.status, text.decode(errors="replace"))
            return dict(msgspec.json.decode(text))

    async def get(self, path: str) -> Object | None:
        try:
            return await self.call("GET", path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def patch(self, path: str, body: Any, kind: str = STRATEGIC) -> Object | None:
        """None when the object is gone."""
        try:
            return await self.call("PATCH", path, body, kind=kind)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def apply(self, path: str, body: Object) -> Object:
        """Server-side apply; what others set on the object stays."""
        return await self.call(
            "PATCH", path, body, kind="application/apply-patch+yaml", fieldManager="ack", force="true"
        )

    async def delete(self, path: str, uid: str) -> None:
        """Delete now, this very object; gone is fine."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        try:
            await self.call("DELETE", path, body)
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    async def watch(self, path: str, **query: str) -> AsyncIterator[tuple[str, Any]]:
        """First ("ALL", [objects]), then ("ADDED" | "MODIFIED" | "DELETED", object) as they come, for ever.

        "ALL" comes again whenever changes may have been missed.
        """
        while True:
            try:
                found = await self.call("GET", path, **query)
                yield "ALL", found["items"]
                version = found["metadata"]["resourceVersion"]
                async for event in self._events(path, version, query):
                    yield event["type"], event["object"]
            except (ApiError, aiohttp.ClientError, TimeoutError) as error:
                log.warning("watch of %s begins again: %s", path, error)
                await asyncio.sleep(0.2)

    async def _events(self, path: str, version: str, query: dict[str, str]) -> AsyncIterator[Object]:
        while True:
            wanted = {**query, "watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true"}
            async with self._session.get(path, params=wanted) as stream:
                if stream.status >= 400:
                    raise ApiError(stream.status, await stream.text())
                rest = b""
                async for chunk in stream.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        event = msgspec.json.decode(line)
                        if event["type"] == "ERROR":
                            raise ApiError(event["object"].get("code", 500), event["object"].get("message", ""))
                        version = event["object"]["metadata"]["resourceVersion"]
                        if event["type"] != "BOOKMARK":
                            yield event


def pod_path(pod: Object, subresource: str = "") -> str:
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}{subresource}"
