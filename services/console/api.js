// The service as the console sees it: requests with the key, errors in words, server-sent events as they come.

const KEY = "chimere.key";
const BURST_MS = 8;

/** The key of this tab; it is gone when the tab is closed. */
export const key = {
  get: () => sessionStorage.getItem(KEY) || "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

/** What the service answered instead of what was wanted. `status` 0 is a service that cannot be reached. */
export class ApiError extends Error {
  constructor(status, message, retryAfter, code) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryAfter = retryAfter;
  }
}

function headers(body) {
  const found = {};
  if (key.get()) found.authorization = `Bearer ${key.get()}`;
  if (body !== undefined) found["content-type"] = "application/json";
  return found;
}

function failure(status, text, retryAfter) {
  let message = text;
  let code = null;
  try {
    ({ message, code } = JSON.parse(text).error);
  } catch {
    // Not an error of ours, so its text is all there is.
  }
  return new ApiError(status, message, Number(retryAfter) || 0, code);
}

const UNREACHABLE = "the service cannot be reached";

async function send(path, { method, body, signal } = {}) {
  let response;
  try {
    response = await fetch(path, {
      method: method || (body === undefined ? "GET" : "POST"),
      headers: headers(body),
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, UNREACHABLE);
  }
  if (!response.ok) throw failure(response.status, (await response.text()) || response.statusText, response.headers.get("retry-after"));
  return response;
}

/** A call whose answer is JSON; `null` where there is none. */
export async function call(path, options) {
  const text = await (await send(path, options)).text();
  return text ? JSON.parse(text) : null;
}

/** Sends a form, and tells how many bytes have left, which `fetch` does not know. The answer is JSON. */
export function upload(path, form, { signal, onSent }) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", path);
    for (const [name, value] of Object.entries(headers())) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => onSent(event.loaded);
    request.onload = () => {
      if (request.status < 400) resolve(JSON.parse(request.responseText));
      else reject(failure(request.status, request.responseText || request.statusText, request.getResponseHeader("retry-after")));
    };
    request.onerror = () => reject(new ApiError(0, UNREACHABLE));
    request.onabort = () => reject(new DOMException("the upload was given up", "AbortError"));
    signal.addEventListener("abort", () => request.abort());
    request.send(form);
  });
}

/** A call whose answer is text. */
export async function text(path, options) {
  return (await send(path, options)).text();
}

/** Why this tab may not follow a stream, in the service's words, or an empty text; nothing of the stream is read. */
export async function refusal(path) {
  const stop = new AbortController();
  try {
    await send(path, { signal: stop.signal });
    return "";
  } catch (error) {
    if (error.status !== 403) throw error;
    return error.message;
  } finally {
    stop.abort();
  }
}

/** Events of a stream, parsed, until it ends with `[DONE]` or is closed. An event that is an error is thrown. */
export async function* events(path, options) {
  const reader = (await send(path, options)).body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let begun = performance.now();
  // What has come already is read without a pause, which the page needs; one read may bring hundreds of events.
  const isLate = () => performance.now() - begun > BURST_MS;
  const pause = async () => {
    await new Promise((resolve) => setTimeout(resolve));
    begun = performance.now();
  };
  try {
    for (;;) {
      if (isLate()) await pause();
      const { done, value } = await reader.read();
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      const lines = rest.split(/\r?\n/);
      rest = lines.pop();
      for (const line of lines) {
        if (!line.startsWith("data:")) continue;
        const data = line.slice(5).trim();
        if (data === "[DONE]") return;
        const event = JSON.parse(data);
        if (event.error) throw new ApiError(event.error.code || 500, event.error.message);
        yield event;
        if (isLate()) await pause();
      }
    }
  } catch (error) {
    if (error instanceof ApiError || error.name === "AbortError") throw error;
    throw new ApiError(0, "the service went away while it answered");
  } finally {
    reader.cancel().catch(() => {});
  }
}
