// Files that a person drops or chooses, folders with all that is in them. Hidden files are left out.

/** Files that are taken at once: more than the service keeps in one store. */
const FILES_MAX = 10_000;

const hidden = (path) => path.split("/").some((part) => part.startsWith(".") || ["Thumbs.db", "desktop.ini", "__MACOSX"].includes(part));

const promised = (act) => new Promise(act);
const fileOf = (entry) => promised((resolve, reject) => entry.file(resolve, reject));

/** What is in a folder; a browser tells some entries at a time. */
async function entriesOf(folder) {
  const reader = folder.createReader(), found = [];
  for (;;) {
    const some = await promised((resolve, reject) => reader.readEntries(resolve, reject));
    if (!some.length) return found;
    found.push(...some);
  }
}

/** Takes down what an entry holds: `{found: [{file, path}], hidden, left}`, the last two as numbers. */
async function walk(entries) {
  const told = { found: [], hidden: 0, left: 0 };
  const waiting = entries.reverse();
  for (let entry = waiting.pop(); entry; entry = waiting.pop()) {
    const path = entry.fullPath.replace(/^\//, "");
    if (hidden(path)) told.hidden += 1;
    else if (entry.isDirectory) waiting.push(...(await entriesOf(entry)).reverse());
    else if (told.found.length >= FILES_MAX) told.left += 1;
    else told.found.push({ file: await fileOf(entry), path });
  }
  return told;
}

/** The files of a drop. The browser shows its entries only while the event is handled, so they are taken before anything waits. */
export function filesOfDrop(transfer) {
  const items = [...transfer.items].filter((item) => item.kind === "file");
  const entries = items.map((item) => item.webkitGetAsEntry?.());
  // A browser that has no entry for something has its file.
  if (entries.some((entry) => !entry)) return Promise.resolve(filesOfInput(transfer.files));
  return walk(entries);
}

/** The files of a field. */
export function filesOfInput(files) {
  const all = [...files].map((file) => ({ file, path: file.webkitRelativePath || file.name }));
  const shown = all.filter(({ path }) => !hidden(path));
  return { found: shown.slice(0, FILES_MAX), hidden: all.length - shown.length, left: Math.max(0, shown.length - FILES_MAX) };
}
