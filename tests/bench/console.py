"""Every page of the console, with 10,000,000 tasks and 1,000 biz_types: how long, how large."""

from __future__ import annotations

import re
import time
from statistics import median
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import urlopen

from broker.console.pages import PAGES
from tests.bench.audits import chunks
from tests.bench.figure import Row
from tests.bench.product import Product
from tests.fix_sessions import until

BIZ_TYPES: Final = 1_000
TURNS: Final = 20
FOLD_S_MAX: Final = 1_200.0
# The bounds: on the server, and over the wire, unpacked.
MS_MAX: Final = 100.0
BYTES_MAX: Final = 150_000
NAME: Final = "line-7"
# What lists and searches are asked for beside nothing.
ASKED: Final = {
    "/console/biz": ("?order=pending", "?search=line-5&page=2"),
    "/console/tasks": (f"?biz_type={NAME}", f"?biz_type={NAME}&status=failed"),
    "/console/dead": (f"?biz_type={NAME}",),
    "/console/ledger": (f"?biz_type={NAME}&by=day", f"?biz_type={NAME}&by=quarter"),
    "/console/changes": (f"?object={NAME}", "?action=key.create"),
    "/console/forecast": (f"?biz_type={NAME}",),
    "/console/cron": ("?cron=0+9+29+2+*&timezone=Asia/Shanghai",),
    "/console/schedules": (f"?biz_type={NAME}",),
}


async def measure() -> list[Row]:
    """The wheel is built by SQL beside a service that runs; each page is asked for in turn."""
    async with Product() as product:
        for load in chunks(BIZ_TYPES, int(time.time() * 1000)):
            await product.sql(load)
        await product.sql("VACUUM ANALYZE")
        await until_folded(product)
        await furnish(product)
        names = await named(product)
        url = f"http://127.0.0.1:{product.port}"
        return [row for path in paths(names) if (row := page(url, path)) is not None]


async def until_folded(product: Product) -> None:
    """Counts read what is still to be folded: of ten million tasks at once more than ever is."""

    async def is_folded() -> bool:
        found = await product.sql("SELECT EXISTS (SELECT FROM timer_ledger_unfolded)")
        return found == [(False,)]

    await until(is_folded, FOLD_S_MAX)


async def furnish(product: Product) -> None:
    """What there is beside tasks."""
    for n in range(BIZ_TYPES):
        headers = {"x-line": str(n), "authorization": "Bearer x"}
        url = f"http://127.0.0.1:{product.port}/demo/echo"
        await product.configure(f"line-{n}", callback_url=url, callback_headers=headers)
    for n in range(30):
        await product.configure(NAME, callback_url=url, timeout=1 + n)
        body: dict[str, Any] = {"name": f"key {n}", "scopes": ["read"], "biz_types": ["line-*"]}
        await product.call("POST", "/v1/keys", body)
        nobody = {"biz_type": f"line-{n}", "biz_id_prefix": "nobody's-"}
        body = {"action": "cancel", "filter": nobody}
        await product.call("POST", "/v1/operations", body)
        body = {"cron": f"{n} 9 * * *", "timezone": "Asia/Shanghai"}
        await product.call("PUT", f"/v1/biz/{NAME}/schedules/daily-{n}", body)


async def named(product: Product) -> dict[str, str]:
    """Something there for each parameter of a path."""
    ((task_id,),) = await product.sql(
        "SELECT task_id FROM timer_dead ORDER BY finish_time DESC LIMIT 1"
    )
    ((key_id,),) = await product.sql("SELECT key_id FROM timer_key_api LIMIT 1")
    ((operation_id,),) = await product.sql("SELECT operation_id FROM timer_operation LIMIT 1")
    return {
        "biz_type": NAME,
        "task_id": str(task_id),
        "key_id": str(key_id),
        "operation_id": str(operation_id),
        "audit": "ledger",
        "name": "daily-1",
    }


def paths(names: dict[str, str]) -> list[str]:
    """Every page, with what is there in its parameters; lists as they may be asked, too."""
    found = []
    for one in PAGES:
        path = re.sub(r"{(\w+)(:\w+)?}", lambda match: names[match[1]], one.path)
        found += [path, *(path + query for query in ASKED.get(path, ()))]
    return found


def page(url: str, path: str) -> Row | None:
    """A page, asked for again and again; None where it leads elsewhere, or is not there now."""
    took_ms = []
    for _ in range(TURNS):
        began_s = time.perf_counter()
        try:
            with urlopen(url + path) as answer:
                content = answer.read()
        except HTTPError as error:
            if error.code >= 500:
                raise
            return None
        took_ms.append((time.perf_counter() - began_s) * 1000)
        if not answer.url.startswith(url + path.partition("?")[0]):
            return None
    typical, worst = median(took_ms), max(took_ms[1:])
    return Row(
        f"console {path}",
        f"{MS_MAX:g} ms, {BYTES_MAX / 1000:g} kB",
        f"{typical:.0f} ms, worst {worst:.0f} ms, {len(content) / 1000:.0f} kB",
        typical < MS_MAX and len(content) < BYTES_MAX,
        {"median_ms": typical, "worst_ms": worst, "bytes": len(content)},
    )
