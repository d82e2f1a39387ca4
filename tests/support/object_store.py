"""A store on loopback that answers as S3 does where files are listed, read, written and deleted."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

_TYPE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


class ObjectStore:
    """Buckets of objects, and what was asked for.

    objects: by `bucket/key`. requests: what came, as (method, `bucket/key`). forbidden: what nobody may read.
    uploads: parts of objects that are written in several, by upload and number.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.objects: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.forbidden: set[str] = set()
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.lock = Lock()

    @property
    def options(self) -> str:
        """The query of a URL that finds this store."""
        return f"endpoint_override=127.0.0.1:{self.port}&scheme=http"

    def url(self, key: str) -> str:
        """The URL of `bucket/key`."""
        return f"s3://{key}?{self.options}"

    def listed(self, bucket: str, prefix: str, delimiter: str, after: str, count: int) -> str:
        """The body of a ListObjectsV2 answer; `after` is the last key or prefix that was given before."""
        names: list[str] = []
        for key in sorted(key.removeprefix(f"{bucket}/") for key in self.objects):
            if f"{bucket}/{key}" not in self.objects or not key.startswith(prefix):
                continue
            rest = key[len(prefix) :]
            name = prefix + rest[: rest.index(delimiter) + 1] if delimiter and delimiter in rest else key
            if name > after and name not in names:
                names.append(name)
        shown, cut = names[:count], len(names) > count
        parts = [
            f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
            if delimiter and name.endswith(delimiter)
            else f"<Contents><Key>{escape(name)}</Key><Size>{len(self.objects[f'{bucket}/{name}'])}</Size>"
            '<LastModified>2026-01-05T00:00:00.000Z</LastModified><ETag>"1"</ETag></Contents>'
            for name in shown
        ]
        token = f"<NextContinuationToken>{escape(shown[-1])}</NextContinuationToken>" if cut else ""
        return (
            f"<ListBucketResult {_TYPE}><Name>{bucket}</Name><IsTruncated>{str(cut).lower()}</IsTruncated>"
            f"<KeyCount>{len(shown)}</KeyCount>{token}{''.join(parts)}</ListBucketResult>"
        )


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """A store that listens on loopback as long as the context lasts."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.store = store = ObjectStore(server.server_port)  # type: ignore[attr-defined]
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Small answers wait for nothing.
    disable_nagle_algorithm = True

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        store: ObjectStore = self.server.store  # type: ignore[attr-defined]
        parts = urlsplit(self.path)
        path, query = unquote(parts.path).lstrip("/"), parse_qs(parts.query)
        bucket, _, key = path.partition("/")
        one = {name: values[0] for name, values in query.items()}
        store.requests.append((self.command, path))
        if not any(name.startswith(f"{bucket}/") for name in store.objects):
            self._error(404, "NoSuchBucket")
        elif path in store.forbidden:
            self._error(403, "AccessDenied")
        elif not key:
            after = one.get("continuation-token", one.get("start-after", ""))
            body = store.listed(
                bucket, one.get("prefix", ""), one.get("delimiter", ""), after, int(one.get("max-keys", 1000))
            )
            self._send(200, body.encode(), {"Content-Type": "application/xml"})
        elif path not in store.objects:
            self._error(404, "NoSuchKey")
        else:
            self._object(store.objects[path])

    def do_PUT(self) -> None:
        store, path, query = self._asked()
        data = self._body()
        if "uploadId" in query:
            store.uploads[query["uploadId"]][int(query["partNumber"])] = data
            self._send(200, b"", {"ETag": f'"{len(data)}"'})
            return
        with store.lock:
            if self.headers.get("If-None-Match") == "*" and path in store.objects:
                self._error(412, "PreconditionFailed")
                return
            store.objects[path] = data
        self._send(200, b"", {"ETag": f'"{len(data)}"'})

    def do_POST(self) -> None:
        store, path, query = self._asked()
        data = self._body()
        if "delete" in query:
            bucket = path.partition("/")[0]
            for key in re.findall(r"<Key>(.*?)</Key>", data.decode()):
                store.objects.pop(f"{bucket}/{unescape(key)}", None)
            self._xml("DeleteResult", "")
        elif "uploads" in query:
            name = str(len(store.uploads))
            store.uploads[name] = {}
            bucket, _, key = path.partition("/")
            upload = f"<Bucket>{bucket}</Bucket><Key>{escape(key)}</Key><UploadId>{name}</UploadId>"
            self._xml("InitiateMultipartUploadResult", upload)
        else:
            parts = store.uploads[query["uploadId"]]
            store.objects[path] = b"".join(parts[number] for number in sorted(parts))
            bucket, _, key = path.partition("/")
            whole = f'<Bucket>{bucket}</Bucket><Key>{escape(key)}</Key><ETag>"1"</ETag>'
            self._xml("CompleteMultipartUploadResult", whole)

    def do_DELETE(self) -> None:
        store, path, _ = self._asked()
        store.objects.pop(path, None)
        self._send(204, b"", {})

    def _asked(self) -> tuple[ObjectStore, str, dict[str, str]]:
        store: ObjectStore = self.server.store  # type: ignore[attr-defined]
        parts = urlsplit(self.path)
        path = unquote(parts.path).lstrip("/")
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        store.requests.append((self.command, path))
        return store, path, query

    def _body(self) -> bytes:
        """What was sent; in pieces with signatures or checksums between them, as `aws-chunked` is."""
        data = self._plain_body()
        if "aws-chunked" not in self.headers.get("Content-Encoding", ""):
            return data
        found, rest = b"", data
        while True:
            head, _, rest = rest.partition(b"\r\n")
            size = int(head.partition(b";")[0], 16)
            if not size:
                return found
            found, rest = found + rest[:size], rest[size + 2 :]

    def _plain_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return found

    def _xml(self, kind: str, inner: str) -> None:
        self._send(200, f"<{kind} {_TYPE}>{inner}</{kind}>".encode(), {"Content-Type": "application/xml"})

    def _object(self, data: bytes) -> None:
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start = int(found[1]) if found else 0
        end = min(len(data), int(found[2]) + 1) if found and found[2] else len(data)
        headers = {
            "Last-Modified": "Mon, 05 Jan 2026 00:00:00 GMT", "Accept-Ranges": "bytes",
            "ETag": f'"{len(data)}"',
        }  # fmt: skip
        if found:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        self._send(206 if found else 200, data[start:end], headers)

    def _error(self, status: int, code: str) -> None:
        body = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>"
        self._send(status, body.encode(), {"Content-Type": "application/xml"})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""
