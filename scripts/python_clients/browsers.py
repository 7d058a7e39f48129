"""Programs with a page of their own, driven in Chromium as their users do."""
import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

START_SECONDS, END_SECONDS, WAIT_MS = 240, 30, 120_000
# Of Open WebUI: no account, no other machine asked, and no tools of its own, whose declarations are beyond the shipped model's context.
SETTINGS = {"WEBUI_AUTH": "False", "WEBUI_SECRET_KEY": "none", "ENABLE_OLLAMA_API": "false", "OFFLINE_MODE": "true", "HF_HUB_OFFLINE": "1",
            "RAG_EMBEDDING_ENGINE": "openai", "ENABLE_VERSION_UPDATE_CHECK": "false", "ANONYMIZED_TELEMETRY": "false", "DO_NOT_TRACK": "true",
            "SCARF_NO_ANALYTICS": "true", "DEFAULT_MODEL_METADATA": json.dumps({"capabilities": {"builtin_tools": False}})}


@contextlib.contextmanager
def web_ui(url):
    """Open WebUI with nothing kept of earlier runs. Gives its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data = pathlib.Path("data").resolve()
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir()
    environment = os.environ | SETTINGS | {"DATA_DIR": str(data), "OPENAI_API_BASE_URL": url, "OPENAI_API_KEY": "none"}
    command = [pathlib.Path(sys.executable).parent / "open-webui", "serve", "--host", "127.0.0.1", "--port", str(port)]
    with open("open-webui.log", "w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        end = time.monotonic() + START_SECONDS
        while not is_there(f"http://127.0.0.1:{port}/health"):
            assert time.monotonic() < end and process.poll() is None, "it does not start: see open-webui.log"
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()


def is_there(url):
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:
            return reply.status == 200
    except OSError:
        return False


def open_webui(url, model):
    """Two turns, of which the second has the first before it; titles and follow-ups are asked for beside them."""
    from playwright.sync_api import sync_playwright
    told = "(n, text) => { const all = document.querySelectorAll('.chat-assistant'); return all.length === n && all[n - 1].innerText.includes(text) }"
    with web_ui(url) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.set_default_timeout(WAIT_MS)
        page.goto(address)
        page.wait_for_selector("#chat-input")
        # What is new in this version lies over the page at first.
        page.keyboard.press("Escape")
        for n, (question, answer) in enumerate([("What is 17 + 25?", "42"), ("What is 3 + 4?", "7")], 1):
            page.click("#chat-input")
            page.keyboard.type(question)
            page.keyboard.press("Enter")
            page.wait_for_function(f"([n, text]) => ({told})(n, text)", arg=[n, answer])
        browser.close()
