#!/usr/bin/env python3
"""Subscribes to the KV events of a service with ZeroMQ's own library, has it read two turns, and checks what it tells; see scripts/gateways.py.

    python kv_subscriber.py http://127.0.0.1:8080 tcp://127.0.0.1:5557 tcp://127.0.0.1:5558 map
"""
import json
import sys
import urllib.request

import msgpack
import zmq

WAIT_MS, UNIT = 20_000, 64
NAMES = {"BlockStored": ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name"),
         "BlockRemoved": ("block_hashes", "medium"), "AllBlocksCleared": ()}


def post(url, body):
    request = urllib.request.Request(url, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.loads(reply.read())


def events(payload, encoding):
    """The events of a payload as maps, whatever they are written as."""
    _, listed, _ = msgpack.unpackb(payload)
    if encoding == "map":
        return listed
    return [{"type": event[0], **dict(zip(NAMES[event[0]], event[1:], strict=True))} for event in listed]


def socket(context, kind, address):
    made = context.socket(kind)
    made.setsockopt(zmq.RCVTIMEO, WAIT_MS)
    made.connect(address)
    return made


def main(url, listen, replay, encoding):
    context = zmq.Context()
    subscribed = socket(context, zmq.SUB, listen)
    subscribed.setsockopt(zmq.SUBSCRIBE, b"")
    text = " ".join(f"word {number}" for number in range(200))
    ids = post(url + "/v1/completions/render", {"prompt": text})[0]["token_ids"]
    # A subscriber that comes late misses what came before: another prompt is read until something is heard.
    heard = None
    for number in range(100):
        post(url + "/inference/v1/generate", {"token_ids": [number + 10, *ids], "sampling_params": {"max_tokens": 1}})
        if subscribed.poll(100):
            heard = subscribed.recv_multipart()
            break
    topic, number, payload = heard
    assert topic == b"", topic
    stored = next(event for event in events(payload, encoding) if event["type"] == "BlockStored")
    assert stored["block_size"] == UNIT and stored["medium"] == "GPU" and stored["parent_block_hash"] is None, stored
    assert len(stored["token_ids"]) == UNIT * len(stored["block_hashes"]) and stored["token_ids"][1:] == ids[:len(stored["token_ids"]) - 1]
    asks = socket(context, zmq.DEALER, replay)
    asks.send_multipart([b"", number])
    _, topic, again, said = asks.recv_multipart()
    assert (topic, again, said) == (b"", number, payload)
    while asks.recv_multipart()[2] != b"\xff" * 8:
        pass
    post(url + "/flush_cache", {})
    while not any(event["type"] == "BlockRemoved" and set(stored["block_hashes"]) <= set(event["block_hashes"]) for event in events(payload, encoding)):
        payload = subscribed.recv_multipart()[2]
    print(f"{len(stored['block_hashes'])} units were told of, said again and taken back")


if __name__ == "__main__":
    main(*sys.argv[1:])
