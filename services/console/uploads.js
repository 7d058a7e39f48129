// Files on their way into stores. They belong to the page and not to a view: they go on whatever is shown.

import { useEffect, useState } from "./vendor/preact-htm.js";
import { call, upload } from "./api.js";
import { removeFile, storePath } from "./stores.js";

const AT_ONCE = 3; // uploads; the service takes some more of all keys together
const DRAWN_MS = 200; // between two drawings of the progress
const BATCH = 50, BATCH_MS = 1000; // files that enter a store together, and how long the first of them waits
const TRIES = 6, RETRY_MS = 2000; // where the service has no room
const PATH_MAX = 512; // characters of an attribute

/** A file on its way: `state` is `waiting`, `sending`, `sent` (not yet in its store) or `failed`. */
class Task {
  constructor(store, { file, path }) {
    Object.assign(this, { store, file, path, state: "waiting", sent: 0, error: "", stopper: new AbortController() });
  }
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

class Uploads {
  constructor() {
    this.tasks = new Set();
    this.batches = []; // {store, id}, of this page
    this.watchers = new Set();
    this.finished = new Map(); // bytes that left, by store, since nothing was on its way
    this.arrived = new Map(); // how often files came into a store
    this.timers = new Map(); // by store: files that were sent wait for others
    addEventListener("beforeunload", (event) => this.busy().length && event.preventDefault());
  }

  of(store) {
    return [...this.tasks].filter((task) => task.store === store);
  }

  busy() {
    return [...this.tasks].filter((task) => task.state !== "failed");
  }

  watch(watcher) {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }

  changed() {
    if (this.drawing) return;
    this.drawing = setTimeout(() => {
      this.drawing = 0;
      for (const watcher of this.watchers) watcher();
    }, DRAWN_MS);
  }

  add(store, found) {
    if (!this.of(store).some((task) => task.state !== "failed")) this.finished.set(store, 0);
    for (const of of found) this.tasks.add(new Task(store, of));
    this.pump();
  }

  pump() {
    this.changed();
    const sending = this.busy().filter((task) => task.state === "sending").length;
    for (const task of this.busy().filter((task) => task.state === "waiting").slice(0, Math.max(0, AT_ONCE - sending))) this.send(task);
  }

  async send(task) {
    task.state = "sending";
    try {
      task.id = (await this.sent(task)).id;
      task.state = "sent";
      this.attachSoon(task.store);
    } catch (error) {
      if (error.name === "AbortError") this.tasks.delete(task);
      else this.fail(task, error);
    }
    this.pump();
  }

  /** Sends a file, again where the service had no room for it. */
  async sent(task) {
    for (let tries = 1; ; tries++) {
      const form = new FormData();
      form.append("purpose", "assistants");
      form.append("file", task.file, task.file.name);
      const onSent = (bytes) => {
        task.sent = Math.min(bytes, task.file.size);
        this.changed();
      };
      try {
        return await upload("/v1/files", form, { signal: task.stopper.signal, onSent });
      } catch (error) {
        if (![429, 503].includes(error.status) || tries === TRIES) throw error;
        await pause(1000 * error.retryAfter || RETRY_MS);
        task.stopper.signal.throwIfAborted();
      }
    }
  }

  fail(task, error) {
    Object.assign(task, { state: "failed", sent: 0, error: error.message });
    this.changed();
  }

  again(task) {
    Object.assign(task, { state: "waiting", error: "" });
    this.pump();
  }

  forget(task) {
    this.tasks.delete(task);
    this.changed();
  }

  /** Files enter their store together, so that a folder does not make hundreds of batches. */
  attachSoon(store) {
    const sent = this.of(store).filter((task) => task.state === "sent" && !task.attaching);
    const more = this.of(store).some((task) => ["waiting", "sending"].includes(task.state));
    if (sent.length >= BATCH || !more) return this.attach(store, sent);
    if (!this.timers.has(store)) this.timers.set(store, setTimeout(() => this.attach(store, this.of(store).filter((task) => task.state === "sent")), BATCH_MS));
  }

  async attach(store, tasks) {
    clearTimeout(this.timers.get(store));
    this.timers.delete(store);
    const some = tasks.filter((task) => !task.attaching);
    if (!some.length) return;
    for (const task of some) task.attaching = true;
    const files = some.map(({ id, path }) => ({ file_id: id, ...(path.includes("/") && path.length <= PATH_MAX ? { attributes: { path } } : {}) }));
    try {
      const batch = await call(storePath(store, "file_batches"), { body: { files } });
      this.batches.push({ store, id: batch.id });
      // Somebody gave them up while they entered.
      if (some.some((task) => task.stopper.signal.aborted)) await this.cancelBatches(store);
      for (const task of some) {
        this.finished.set(store, (this.finished.get(store) || 0) + task.file.size);
        this.tasks.delete(task);
      }
    } catch (error) {
      for (const task of some) this.fail(task, error);
      discard(some);
    }
    for (const task of some) task.attaching = false;
    this.arrived.set(store, (this.arrived.get(store) || 0) + 1);
    this.changed();
  }

  /** Gives up what is on its way into a store, and what the service has not read yet of what this page sent there. */
  cancel(store) {
    const idle = this.of(store).filter((task) => task.state === "waiting" || (task.state === "sent" && !task.attaching));
    for (const task of this.of(store)) task.stopper.abort();
    for (const task of idle) this.tasks.delete(task);
    discard(idle.filter((task) => task.state === "sent"));
    this.changed();
    return this.cancelBatches(store);
  }

  /** A batch that is over has nothing to give up. */
  async cancelBatches(store) {
    const own = this.batches.filter((batch) => batch.store === store);
    this.batches = this.batches.filter((batch) => batch.store !== store);
    await Promise.allSettled(own.map(({ id }) => call(storePath(store, "file_batches", id, "cancel"), { method: "POST" })));
  }
}

/** Files that were sent and are in no store would be in nobody's sight. */
function discard(tasks) {
  for (const task of tasks) removeFile(task.id).catch(() => {});
}

export const uploads = new Uploads();

/** The uploads into a store, drawn again as they change. */
export function useUploads(store) {
  const [, draw] = useState(0);
  useEffect(() => uploads.watch(() => draw((n) => n + 1)), []);
  return uploads.of(store);
}
