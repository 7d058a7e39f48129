// Conversations in this browser: IndexedDB, one record each. Nothing of them is kept by the service.

const NAME = "chimere", STORE = "conversations";

function open() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "id" });
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

let database;

async function within(mode, act) {
  database ||= open();
  const transaction = (await database).transaction(STORE, mode);
  return new Promise((resolve, reject) => {
    const request = act(transaction.objectStore(STORE));
    transaction.oncomplete = () => resolve(request.result);
    transaction.onerror = transaction.onabort = () => reject(transaction.error);
  });
}

/** All conversations, the latest first. */
export async function all() {
  const found = await within("readonly", (store) => store.getAll());
  return found.sort((a, b) => b.updated - a.updated);
}

/** Keeps a conversation as it is now. */
export const put = (conversation) => within("readwrite", (store) => store.put(conversation));

/** Forgets a conversation. */
export const remove = (id) => within("readwrite", (store) => store.delete(id));
