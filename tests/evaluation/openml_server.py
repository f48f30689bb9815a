"""A server that speaks the part of OpenML's interface that is used, and every fault of it."""

import gzip
import hashlib
import io
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pandas as pd

NAMESPACE = 'xmlns:oml="http://openml.org/openml"'
DENSE = """@RELATION weather
@ATTRIBUTE row INTEGER
@ATTRIBUTE heat REAL
@ATTRIBUTE sky {sunny,overcast,rainy}
@ATTRIBUTE wind {TRUE,FALSE}
@ATTRIBUTE remark STRING
@ATTRIBUTE play {yes,no}
@DATA
"""
SPARSE = """@RELATION sparse
@ATTRIBUTE first REAL
@ATTRIBUTE second {low,high}
@ATTRIBUTE class {a,b}
@DATA
"""


def dense(rows=120):
    """An ARFF table; sky is missing in the first row, heat in the second."""
    skies = ("sunny", "overcast", "rainy")
    lines = [
        f"{n},{'?' if n == 1 else n / 8},{'?' if n == 0 else skies[n % 3]},"
        f"{'TRUE' if n % 5 else 'FALSE'},'text {n % 4}',{'yes' if n % 2 else 'no'}"
        for n in range(rows)
    ]
    return DENSE + "\n".join(lines) + "\n"


def sparse(rows=120):
    """A sparse ARFF table; every fourth row says nothing, and so does the last."""
    lines = [
        "{}" if n % 4 == 3 else f"{{0 {n / 8}, 1 {'high' if n % 3 else 'low'}, 2 {'ab'[n % 2]}}}"
        for n in range(rows)
    ]
    return SPARSE + "\n".join(lines) + "\n"


@dataclass
class Table:
    """What the server has.

    Attributes:
        arff: The file.
        target: Its target; None where it has none.
        sparse: Whether the file is sparse.
        frame: The same as parquet, where there is one.
        classes: As the list of tables says; 0 for a regression.
    """

    arff: str
    target: str | None = "play"
    sparse: bool = False
    frame: pd.DataFrame | None = None
    classes: int = 2


@dataclass
class Server:
    """A running server.

    Attributes:
        url: Of its interface, as the client is configured.
        tables: By data id.
        faults: By start of a path: a status, or "truncated", "garbled" (another checksum) or
            "hung"; with a number of times after which all is well.
        requests: How often each path was asked for.
    """

    tables: dict[int, Table]
    url: str = ""
    faults: dict[str, tuple[int | str, int]] = field(default_factory=dict)
    requests: Counter = field(default_factory=Counter)
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def root(self):
        return self.url.split("/api")[0]

    def fault(self, path):
        """The fault that a path has now."""
        for start, (kind, times) in self.faults.items():
            if path.startswith(start) and times:
                self.faults[start] = (kind, times - 1)
                return kind
        return None

    def describe(self, number):
        table = self.tables[number]
        lines = [
            f"<oml:data_set_description {NAMESPACE}><oml:id>{number}</oml:id>",
            f"<oml:name>table{number % 10}</oml:name><oml:version>1</oml:version>",
            f"<oml:format>{'Sparse_ARFF' if table.sparse else 'ARFF'}</oml:format>",
            f"<oml:url>{self.root}/data/v1/download/{number}/table.arff</oml:url>",
            f"<oml:md5_checksum>{hashlib.md5(table.arff.encode()).hexdigest()}</oml:md5_checksum>",
        ]
        if table.frame is not None:
            lines.append(f"<oml:parquet_url>{self.root}/datasets/{number}.pq</oml:parquet_url>")
        if table.target is not None:
            lines.append(
                f"<oml:default_target_attribute>{table.target}</oml:default_target_attribute>"
            )
        if "@ATTRIBUTE row" in table.arff:
            lines.append("<oml:row_id_attribute>row</oml:row_id_attribute>")
        return "".join(lines) + "</oml:data_set_description>"

    def study(self, number):
        ids = "".join(f"<oml:data_id>{n}</oml:data_id>" for n in self.tables)
        return (
            f"<oml:study {NAMESPACE}><oml:id>{number}</oml:id><oml:name>all</oml:name>"
            "<oml:main_entity_type>task</oml:main_entity_type><oml:status>active</oml:status>"
            "<oml:description>All</oml:description><oml:creation_date>2026</oml:creation_date>"
            f"<oml:creator>1</oml:creator><oml:data>{ids}</oml:data>"
            "<oml:tasks><oml:task_id>1</oml:task_id></oml:tasks></oml:study>"
        )

    def listing(self):
        rows = "".join(
            f"<oml:dataset><oml:did>{n}</oml:did><oml:name>table{n % 10}</oml:name>"
            "<oml:version>1</oml:version><oml:status>active</oml:status>"
            '<oml:format>ARFF</oml:format><oml:quality name="NumberOfClasses">'
            f'{table.classes}</oml:quality><oml:quality name="NumberOfInstances">120'
            "</oml:quality></oml:dataset>"
            for n, table in self.tables.items()
        )
        return f"<oml:data {NAMESPACE}>{rows}</oml:data>"

    def body(self, path):
        """Content of a path; None where there is nothing."""
        parts = path.split("?")[0].strip("/").split("/")
        if path.startswith("/api/v1/xml/study/"):
            return self.study(parts[-1]).encode()
        if path.startswith("/api/v1/xml/data/list/"):
            return self.listing().encode()
        number = next((int(p.removesuffix(".pq")) for p in parts if p[:1].isdigit()), None)
        if number not in self.tables:
            return None
        table = self.tables[number]
        if path.startswith("/api/v1/xml/data/"):
            return self.describe(number).encode()
        if path.startswith("/data/v1/download/"):
            return table.arff.encode()
        buffer = io.BytesIO()
        table.frame.to_parquet(buffer)
        return buffer.getvalue()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: Server

    def do_HEAD(self):
        self._answer(with_body=False)

    def do_GET(self):
        self._answer(with_body=True)

    def log_message(self, *_):
        pass

    def _answer(self, *, with_body):
        path = self.path
        if with_body:
            self.state.requests[path.split("?")[0]] += 1
        fault = self.state.fault(path) if with_body or not path.endswith(".pq") else None
        if fault == "hung":
            self.state.ended.wait(60)
            return
        body = self.state.body(path)
        if isinstance(fault, int) or body is None:
            self._send(fault or 412, _error(fault or 412), with_body)
            return
        if fault == "garbled":
            body = body.replace(b"yes", b"yea")
        self._send(200, body, with_body, truncated=fault == "truncated")

    def _send(self, status, body, with_body, *, truncated=False):
        packed = not self.path.endswith(".pq")
        body = gzip.compress(body) if packed else body
        self.send_response(status)
        if packed:
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Sun, 22 Nov 2026 08:00:00 GMT")
        if truncated:
            self.send_header("Connection", "close")
        self.end_headers()
        if with_body:
            self.wfile.write(body[: len(body) // 2] if truncated else body)
        self.close_connection = truncated


def _error(status):
    """As OpenML words faults: its own in XML, those of what stands before it in HTML."""
    if status == 412:
        return (
            f"<oml:error {NAMESPACE}><oml:code>111</oml:code>"
            "<oml:message>Unknown dataset</oml:message></oml:error>"
        ).encode()
    return f"<html><head><meta charset=utf8><body>{status}".encode()


@contextmanager
def running(tables):
    """A server on the loopback address, for the block."""
    server = Server(tables)
    handler = type("Handler", (_Handler,), {"state": server})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        http.daemon_threads = True
        server.url = f"http://127.0.0.1:{http.server_address[1]}/api/v1/xml"
        thread = threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.ended.set()
            http.shutdown()
            thread.join()
