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

async function failure(response) {
  const text = await response.text();
  let message = text || response.statusText;
  let code = null;
  try {
    ({ message, code } = JSON.parse(text).error);
  } catch {
    // Not an error of ours, so its text is all there is.
  }
  return new ApiError(response.status, message, Number(response.headers.get("retry-after")) || 0, code);
}

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
    throw new ApiError(0, "the service cannot be reached");
  }
  if (!response.ok) throw await failure(response);
  return response;
}

/** A call whose answer is JSON; `null` where there is none. */
export async function call(path, options) {
  const text = await (await send(path, options)).text();
  return text ? JSON.parse(text) : null;
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
