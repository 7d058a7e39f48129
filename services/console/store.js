// Conversations in this browser: IndexedDB. A conversation is a head (title, settings, the shown turn) and a record for each turn, so
// that two tabs which add to one conversation cannot overwrite each other. Nothing of them is kept by the service.

const NAME = "chimere", VERSION = 2, HEADS = "heads", TURNS = "turns", OLD = "conversations";

/** The store is there but this page must not use it now; the message is a whole sentence. */
export class Unusable extends Error {}

const NEWER = "This browser keeps conversations of a newer version of this page. They are safe, but this version cannot show them, and what is said here is not kept.";
const HELD = "Another tab has an older version of this page open. Close that tab and reload this one: then conversations are here again. Until then what is said here is not kept.";

function open() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, VERSION);
    request.onupgradeneeded = () => upgrade(request.result, request.transaction);
    request.onsuccess = () => {
      // A later version of the console in another tab must not wait for this one.
      request.result.onversionchange = () => request.result.close();
      resolve(request.result);
    };
    // A store of a newer version is left as it is.
    request.onerror = () => reject(request.error.name === "VersionError" ? new Unusable(NEWER) : request.error);
    request.onblocked = () => reject(new Unusable(HELD));
  });
}

function upgrade(database, transaction) {
  const heads = database.createObjectStore(HEADS, { keyPath: "id" });
  const turns = database.createObjectStore(TURNS, { keyPath: ["conversation", "id"] });
  turns.createIndex("conversation", "conversation");
  if (!database.objectStoreNames.contains(OLD)) return;
  // The first version kept a whole conversation in one record.
  transaction.objectStore(OLD).openCursor().onsuccess = ({ target: { result: cursor } }) => {
    if (!cursor) return database.deleteObjectStore(OLD);
    const { turns: all, system, ...head } = cursor.value;
    heads.put({ ...head, settings: { system: system || "" } });
    // Imports of the first version were not looked at closely; a turn without a name of its own would end the upgrade.
    for (const [id, turn] of Object.entries(all || {})) if (turn) turns.put({ ...turn, id, conversation: head.id });
    cursor.continue();
  };
}

let database;

async function within(mode, act) {
  database ||= open();
  const transaction = (await database).transaction([HEADS, TURNS], mode);
  return new Promise((resolve, reject) => {
    const request = act(transaction.objectStore(HEADS), transaction.objectStore(TURNS));
    transaction.oncomplete = () => resolve(request?.result);
    transaction.onerror = transaction.onabort = () => reject(transaction.error);
  });
}

/** All heads. */
export const heads = () => within("readonly", (heads) => heads.getAll());

/** The turns of a conversation by their names. */
export async function turns(id) {
  const found = await within("readonly", (_, turns) => turns.index("conversation").getAll(id));
  return Object.fromEntries(found.map(({ conversation, ...turn }) => [turn.id, turn]));
}

/** Keeps what a conversation is beside its turns. */
export const putHead = ({ turns, ...head }) => within("readwrite", (heads) => heads.put(head));

/** Keeps a turn as it is now. */
export const putTurn = (id, turn) => within("readwrite", (_, turns) => turns.put({ ...turn, conversation: id }));

/** Forgets turns of a conversation. */
export const removeTurns = (id, names) => within("readwrite", (_, turns) => void names.forEach((name) => turns.delete([id, name])));

/** Forgets a conversation. */
export const remove = (id) =>
  within("readwrite", (heads, turns) => {
    heads.delete(id);
    turns.delete(IDBKeyRange.bound([id], [id, []]));
  });

/** The names of the conversations in which somebody says `words`, in small letters. */
export async function search(words) {
  const found = new Set();
  await within("readonly", (_, turns) => {
    turns.openCursor().onsuccess = ({ target: { result: cursor } }) => {
      if (!cursor) return;
      if (cursor.value.content.toLowerCase().includes(words)) found.add(cursor.value.conversation);
      cursor.continue();
    };
  });
  return found;
}
