"""Requests that are sent when they are due, whatever became of those before, and what a client sees of their streams.

Processes share the arrivals of a probe, so that reading streams is not what limits it. Only the standard library is needed.
"""
import asyncio
import contextlib
import dataclasses
import json
import multiprocessing
import ssl
import time
import urllib.parse

# A connection that was begun and not made.
CONNECT_SECONDS = 10
# From one look at a stop sign or at the clock to the next.
LOOK_SECONDS = 0.05
TEXTS = ("content", "reasoning_content", "reasoning")


@dataclasses.dataclass
class Record:
    """What a client saw of one request; times in seconds after it was due."""

    due: float
    late: float = 0.0
    first: float = float("inf")
    last: float = 0.0
    gaps: list = dataclasses.field(default_factory=list)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    error: str = ""


class Endpoint:
    """An OpenAI endpoint: address, headers, and the way there."""

    def __init__(self, url, key):
        parts = urllib.parse.urlsplit(url)
        self.host, self.secure = parts.hostname, parts.scheme == "https"
        self.port = parts.port or (443 if self.secure else 80)
        self.path = parts.path.rstrip("/").removesuffix("/v1") + "/v1/chat/completions"
        self.headers = {"host": parts.netloc, "content-type": "application/json", "connection": "close"}
        if key:
            self.headers["authorization"] = f"Bearer {key}"

    async def open(self, body):
        """Sends a body; gives the reader behind the head of a good reply, whether it is in chunks, and the writer."""
        tls = ssl.create_default_context() if self.secure else None
        reader, writer = await asyncio.wait_for(asyncio.open_connection(self.host, self.port, ssl=tls), CONNECT_SECONDS)
        try:
            data = json.dumps(body).encode()
            head = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
            writer.write(f"POST {self.path} HTTP/1.1\r\n{head}content-length: {len(data)}\r\n\r\n".encode() + data)
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            status = int(head.split(" ", 2)[1])
            if status != 200:
                text = await asyncio.wait_for(reader.read(400), CONNECT_SECONDS)
                raise ValueError(f"{status} {text.decode(errors='replace')}")
        except BaseException:
            writer.close()
            raise
        return reader, "transfer-encoding: chunked" in head, writer


async def lines(reader, chunked):
    """The lines of a body."""
    if not chunked:
        while line := await reader.readline():
            yield line
        return
    rest = b""
    while size := int((await reader.readline()).split(b";")[0] or b"0", 16):
        rest += await reader.readexactly(size)
        await reader.readline()
        *whole, rest = rest.split(b"\n")
        for line in whole:
            yield line


def said(event):
    """Does a chunk of a stream have text?"""
    deltas = [choice.get("delta", {}) for choice in event.get("choices", [])]
    return any(delta.get(name) for delta in deltas for name in TEXTS) or any(delta.get("tool_calls") for delta in deltas)


async def follow(endpoint, body, record, begin):
    """Sends a request and reads its stream to the end."""
    reader, chunked, writer = await endpoint.open(body)
    with contextlib.closing(writer):
        async for line in lines(reader, chunked):
            data = line.strip().removeprefix(b"data:").strip()
            if not line.startswith(b"data:") or data == b"[DONE]":
                continue
            event, now = json.loads(data), time.monotonic() - begin - record.due
            if "error" in event:
                raise ValueError(json.dumps(event["error"])[:400])
            if usage := event.get("usage"):
                record.prompt_tokens, record.output_tokens = usage["prompt_tokens"], usage["completion_tokens"]
                record.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
            if said(event):
                if record.first == float("inf"):
                    record.first = now
                else:
                    record.gaps.append(now - record.last)
                record.last = now
    if record.first == float("inf") or not record.output_tokens:
        raise ValueError("the stream ended without a token or without its usage")


class Shared:
    """What the processes of a probe tell each other: how many have ended, how many are lost, and whether to stop."""

    def __init__(self, context):
        self.ended, self.lost = context.Value("q", 0), context.Value("q", 0)
        self.in_flight, self.stop = context.Value("q", 0), context.Event()

    @staticmethod
    def add(value, n):
        with value.get_lock():
            value.value += n


async def one(endpoint, body, record, begin, shared, ttft):
    Shared.add(shared.in_flight, 1)
    try:
        await follow(endpoint, body, record, begin)
    except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError) as error:
        record.error = record.error or f"{type(error).__name__}: {error}"[:400]
        record.first = float("inf")
    except asyncio.CancelledError:
        record.error, record.first = "not done when the probe ended", float("inf")
    finally:
        Shared.add(shared.in_flight, -1)
        Shared.add(shared.ended, 1)
        if record.first > ttft:
            Shared.add(shared.lost, 1)


async def send(endpoint, arrivals, begin, shared, bounds):
    """Sends each body when it is due; ends when all streams have, at the probe's end, or at a stop."""
    ttft, ends, in_flight_max = bounds
    tasks, records = [], []
    for due, body in arrivals:
        while (left := begin + due - time.monotonic()) > 0 and not shared.stop.is_set():
            await asyncio.sleep(min(left, LOOK_SECONDS))
        if shared.stop.is_set():
            break
        record = Record(due, late=time.monotonic() - begin - due)
        records.append(record)
        if shared.in_flight.value >= in_flight_max:
            record.error = f"{in_flight_max} requests were in flight"
            shared.stop.set()
            break
        tasks.append(asyncio.create_task(one(endpoint, body, record, begin, shared, ttft)))
    while time.monotonic() < begin + ends and not shared.stop.is_set() and not all(task.done() for task in tasks):
        await asyncio.sleep(LOOK_SECONDS)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return records


def work(pipe, endpoint, arrivals, begin, shared, bounds):
    pipe.send(asyncio.run(send(endpoint, arrivals, begin, shared, bounds)))
    pipe.close()


def probe(endpoint, arrivals, processes, bounds, lost_max, tell):
    """Sends all arrivals; gives the records of those that were sent, and whether all were. `bounds` are the limit to the first token, the
    second at which the probe ends, and the most requests in flight. Where more than `lost_max` have lost that limit the probe is over."""
    context = multiprocessing.get_context("fork")
    shared, begin = Shared(context), time.monotonic() + 0.2
    workers = []
    for at in range(processes):
        mine, theirs = context.Pipe(duplex=False)
        share = arrivals[at::processes]
        process = context.Process(target=work, args=(theirs, endpoint, share, begin, shared, bounds), daemon=True)
        process.start()
        theirs.close()
        workers.append((process, mine))
    records, left, said_at = [], list(workers), begin
    while left:
        for process, mine in list(left):
            if mine.poll(LOOK_SECONDS):
                with contextlib.suppress(EOFError):
                    records += mine.recv()
                left.remove((process, mine))
        if shared.lost.value > lost_max:
            shared.stop.set()
        if time.monotonic() > said_at + 5:
            said_at = time.monotonic()
            tell(shared.ended.value, shared.in_flight.value)
    for process, _ in workers:
        process.join(CONNECT_SECONDS)
        process.kill()
    return sorted(records, key=lambda record: record.due), not shared.stop.is_set()
