"""One request to the Responses API over a WebSocket (RFC 6455), with the standard library alone."""
import base64
import json
import os
import socket
import struct

ENDS = {"response.completed", "response.incomplete", "response.failed", "error"}


class Frames:
    """Frames of a socket that has shaken hands."""

    def __init__(self, host, path, seconds):
        name, port = host.rsplit(":", 1)
        self.socket = socket.create_connection((name, int(port)), timeout=seconds)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode())
        self.read = self.socket.makefile("rb")
        self.status = int(self.read.readline().split()[1])
        while self.read.readline().strip():
            pass

    def send(self, opcode, data):
        mask = os.urandom(4)
        length = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack(">H", len(data)) if len(data) < 65536 \
            else b"\xff" + struct.pack(">Q", len(data))
        self.socket.sendall(bytes([0x80 | opcode]) + length + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(data)))

    def frame(self):
        """Opcode and data of the next frame; the service sends whole messages."""
        opcode, length = self.read.read(2)
        if length == 126:
            length, = struct.unpack(">H", self.read.read(2))
        elif length == 127:
            length, = struct.unpack(">Q", self.read.read(8))
        return opcode & 15, self.read.read(length)


def respond(host, path, body, seconds):
    """Status and bytes of the response that a body ends with."""
    frames = Frames(host, path, seconds)
    try:
        if frames.status != 101:
            return frames.status, b""
        frames.send(1, json.dumps({"type": "response.create"} | body).encode())
        while True:
            opcode, data = frames.frame()
            if opcode == 9:
                frames.send(10, data)
            elif opcode == 8:
                return -1, data
            elif (event := json.loads(data))["type"] in ENDS:
                frames.send(8, struct.pack(">H", 1000))
                return event.get("status", 200) if event["type"] == "error" else 200, json.dumps(event.get("response", event)).encode()
    finally:
        frames.socket.close()
