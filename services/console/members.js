// The files of a store: those on their way, those that the service reads, and what became of them.

import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { plain } from "./annotations.js";
import { call } from "./api.js";
import { filesOfDrop, filesOfInput } from "./dropped.js";
import { listed, removeFile, storePath } from "./stores.js";
import { bytes } from "./system.js";
import { uploads, useUploads } from "./uploads.js";

const SOON_MS = 1000, LATE_MS = 5000; // between two looks, while something is in progress
const SHOWN = 100; // files at first, and how many more at each press
const ROWS = 8; // files on their way that are shown one by one

const names = new Map(); // of files that were seen, by id: {filename, bytes}

/** The files of a store with their names, at most so many. */
async function filesOf(store, most) {
  const { data, more } = await listed(storePath(store, "files"), most);
  if (data.some((member) => !names.has(member.id))) for (const file of (await call("/v1/files?limit=10000")).data) names.set(file.id, file);
  return { members: data, more };
}

/** The store and its files; looked at again while something is in progress and somebody sees the page, less often if nothing changes. */
function useMembers(id, most, arrived) {
  const [found, setFound] = useState(null);
  const [failure, setFailure] = useState(null);
  const again = useRef(() => {});
  useEffect(() => {
    let live = true, timer = 0, wait = SOON_MS, before = "";
    const look = async () => {
      clearTimeout(timer);
      try {
        const store = await call(storePath(id));
        const counts = JSON.stringify(store.file_counts);
        wait = counts === before ? Math.min(LATE_MS, 1.5 * wait) : SOON_MS;
        const files = counts === before ? null : await filesOf(id, most);
        if (!live) return;
        before = counts;
        setFound((last) => ({ ...last, ...files, store }));
        setFailure(null);
        if (store.file_counts.in_progress) timer = setTimeout(next, wait);
      } catch (error) {
        if (!live) return;
        setFailure(error);
        if (error.status === 0) timer = setTimeout(next, LATE_MS);
      }
    };
    const next = () => (document.hidden ? document.addEventListener("visibilitychange", next, { once: true }) : live && look());
    again.current = () => {
      before = "";
      return look();
    };
    look();
    return () => {
      live = false;
      clearTimeout(timer);
    };
  }, [id, most, arrived]);
  return { found, failure, look: () => again.current() };
}

const counted = (n, one, several = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : several}`;
const STATES = { in_progress: "is read", completed: "ready", failed: "failed", cancelled: "given up" };

/** How the files of a store stand, in words. */
export function standing({ file_counts: counts, vectors, self_test: test }) {
  const parts = Object.entries(STATES).filter(([name]) => counts[name]).map(([name, words]) => `${counts[name].toLocaleString("en")} ${name === "in_progress" ? "in progress" : words}`);
  if (vectors?.waiting) parts.push(`${counted(vectors.waiting, "passage")} without vectors yet`);
  else if (test) parts.push(`vectors count ${vectors.weight}`);
  if (test?.fell_points) parts.push(`searches find ${test.fell_points} points less than before`);
  return [counted(counts.total, "file"), ...parts].join(" · ");
}

function Member({ member, busy, onRemove }) {
  const file = names.get(member.id);
  const name = plain(member.attributes?.path || member.filename || file?.filename || member.id);
  const facts = [STATES[member.status] || member.status, member.chunks && counted(member.chunks, "passage"), file && bytes(file.bytes)].filter(Boolean).join(" · ");
  return html`<li class=${member.status}><bdi>${name}</bdi> <span class="facts">${facts}</span>
    ${member.last_error && html`<span class="reason">${member.last_error.message}</span>`}
    <button type="button" disabled=${busy} aria-label=${`Delete ${name}`} onClick=${() => onRemove(member, name)}>Delete</button></li>`;
}

/** What is on its way, in bytes, and what did not arrive. */
function Sending({ tasks, store }) {
  const failed = tasks.filter((task) => task.state === "failed");
  const open = tasks.filter((task) => task.state !== "failed");
  if (!tasks.length) return null;
  const done = uploads.finished.get(store) || 0;
  const sum = (of) => open.reduce((sum, task) => sum + of(task), done);
  const sent = sum((task) => task.sent), all = sum((task) => task.file.size);
  const active = open.filter((task) => task.state !== "waiting").slice(0, ROWS);
  return html`<div class="sending">
    ${open.length > 0 && html`<p role="status">${counted(open.length, "file")} on the way</p>
      <div class="row"><progress max=${all || 1} value=${sent} aria-label="Bytes sent"></progress><span>${bytes(sent)} of ${bytes(all)}</span></div>
      <ul class="files">${active.map((task) => html`<li><bdi>${plain(task.path)}</bdi> <span class="facts">${bytes(task.sent)} of ${bytes(task.file.size)}</span></li>`)}</ul>`}
    ${failed.length > 0 && html`<ul class="files" aria-label="Files that did not arrive">${failed.slice(0, SHOWN).map((task) => html`<li class="failed"><bdi>${plain(task.path)}</bdi> <span class="reason">${task.error}</span>
      <button type="button" onClick=${() => uploads.again(task)}>Try again</button><button type="button" aria-label=${`Forget ${task.path}`} onClick=${() => uploads.forget(task)}>✕</button></li>`)}</ul>
      ${failed.length > SHOWN && html`<p>and ${counted(failed.length - SHOWN, "other")}</p>`}`}</div>`;
}

/** What was not taken, in words. */
function leftOut({ hidden, left }) {
  const parts = [hidden && `${counted(hidden, "hidden file or folder", "hidden files or folders")} left out`, left && `${counted(left, "file")} too many left out`];
  return parts.filter(Boolean).join(". ");
}

/** Takes files that are dropped or chosen into a store. Gives what is said of them. */
function useTaking(store) {
  const [over, setOver] = useState(false);
  const [said, setSaid] = useState("");
  const take = async (files) => {
    setOver(false);
    try {
      const told = await files;
      setSaid(leftOut(told));
      if (told.found.length) uploads.add(store, told.found);
    } catch (error) {
      setSaid(`A file could not be read: ${error.message}`);
    }
  };
  const drop = {
    onDragOver: (event) => (event.preventDefault(), setOver(true)),
    onDragLeave: (event) => event.currentTarget.contains(event.relatedTarget) || setOver(false),
    onDrop: (event) => {
      event.preventDefault();
      take(filesOfDrop(event.dataTransfer));
    },
  };
  const chosen = (event) => {
    const told = filesOfInput(event.target.files);
    event.target.value = "";
    take(told);
  };
  return { over, said, setSaid, drop, chosen };
}

const Taking = ({ taking: { over, drop, chosen } }) => html`<div class=${`drop ${over ? "over" : ""}`} ...${drop}>
  <p>Drop files or folders here</p>
  <div class="row"><label class="button">Add files<input type="file" class="unseen" multiple onChange=${chosen} /></label>
    <label class="button">Add a folder<input type="file" class="unseen" webkitdirectory onChange=${chosen} /></label></div></div>`;

/** The files of a store. `refused` says why nothing may be changed here, if so. */
export function Members({ id, refused, onStore }) {
  const [most, setMost] = useState(SHOWN);
  const [busy, setBusy] = useState("");
  const tasks = useUploads(id);
  const { found, failure, look } = useMembers(id, most, uploads.arrived.get(id));
  const taking = useTaking(id);
  const list = useRef(null);
  useEffect(() => void (found && onStore(found.store)), [found?.store]);
  const act = async (what, action) => {
    setBusy(what);
    await action().catch((error) => taking.setSaid(error.message));
    await look();
    setBusy("");
  };
  const remove = (member, name) => confirm(`Delete “${name}”? It goes from every store that has it.`) && act(member.id, () => removeFile(member.id)).then(() => list.current?.focus());
  const cancels = tasks.some((task) => task.state !== "failed") || found?.store.file_counts.in_progress > 0;
  return html`<section aria-label="Files">
    ${!refused && html`<${Taking} taking=${taking} />`}
    <p role="status" class="said">${taking.said}</p>
    <${Sending} tasks=${tasks} store=${id} />
    ${!refused && cancels && html`<button type="button" onClick=${() => act("cancel", () => uploads.cancel(id))}>Cancel what is not ready</button>`}
    ${failure && html`<p class="trouble" role="alert">${failure.message}</p>`}
    ${found && html`<p role="status">${standing(found.store)}</p>
      <ul class="files" tabindex="-1" ref=${list} aria-label="Files of the store">${found.members.map((member) => html`<${Member} key=${member.id} member=${member} busy=${Boolean(refused) || busy === member.id} onRemove=${remove} />`)}</ul>
      ${found.more && html`<button type="button" onClick=${() => setMost(most + SHOWN)}>Show more files</button>`}`}</section>`;
}
