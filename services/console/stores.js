// Vector stores of this key's account: listed for every view that shows or chooses one.

import { useEffect, useState } from "./vendor/preact-htm.js";
import { plain } from "./annotations.js";
import { call } from "./api.js";

const STORES = "/v1/vector_stores";
const PAGE = 100; // entries, the most that the service gives at once

/** The path of a store, or of something in it. */
export const storePath = (id, ...parts) => [STORES, ...[id, ...parts].map(encodeURIComponent)].join("/");

/** Entries of a list, page after page, at most so many; `more` tells whether there are others. */
export async function listed(path, most = Infinity) {
  const data = [];
  for (let after = "", more = true; more; ) {
    const page = await call(`${path}?limit=${PAGE}${after && `&after=${encodeURIComponent(after)}`}`);
    data.push(...page.data);
    after = page.last_id;
    more = Boolean(page.has_more && after);
    if (data.length >= most) return { data, more };
  }
  return { data, more: false };
}

export const stores = async () => (await listed(STORES)).data;
export const create = (name) => call(STORES, { body: { name } });
export const rename = (id, name) => call(storePath(id), { body: { name } });

const FILES_AT_ONCE = 4;

/** Deletes a store and its files; `onDone` is told how many are gone, of how many. */
export async function removeStore(id, onDone) {
  const { data } = await listed(storePath(id, "files"));
  await call(storePath(id), { method: "DELETE" });
  const left = data.map((member) => member.id);
  const worker = async () => {
    for (let file = left.pop(); file; file = left.pop()) {
      await removeFile(file);
      onDone(data.length - left.length, data.length);
    }
  };
  await Promise.all(Array.from({ length: FILES_AT_ONCE }, worker));
}

/** Deletes a file of the account, which takes it out of all stores. */
export async function removeFile(id) {
  try {
    await call(`/v1/files/${encodeURIComponent(id)}`, { method: "DELETE" });
  } catch (error) {
    if (error.status !== 404) throw error;
  }
}

/** What people call a store. */
export const nameOf = (store) => plain(store.name || "Unnamed");

const watchers = new Set();

/** Has all views that show stores ask for them again. */
export const storesChanged = () => watchers.forEach((look) => look());

/** The stores, null until they are there, and why they are not. Nothing is asked for unless `wanted`. */
export function useStores(wanted = true) {
  const [list, setList] = useState(null);
  const [failure, setFailure] = useState(null);
  useEffect(() => {
    if (!wanted) return;
    let live = true;
    const look = () => stores().then((found) => live && (setList(found), setFailure(null)), (error) => live && setFailure(error));
    watchers.add(look);
    look();
    return () => {
      live = false;
      watchers.delete(look);
    };
  }, [wanted]);
  return { list, failure };
}
