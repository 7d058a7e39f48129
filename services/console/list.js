// The conversations at the left: choose, look for, rename, hand out and take back.

import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { closes, left, useReturn } from "./focus.js";
import { ahead } from "./later.js";
import * as store from "./store.js";
import * as tree from "./tree.js";

const SEARCH_MS = 200; // of quiet, before what was said is searched
const JSON_TYPE = "application/json", MARKDOWN_TYPE = "text/markdown";

const exchange = ahead(() => import("./exchange.js"));

/** The conversations whose title or turns have some words. */
function useSearch(list) {
  const [words, setWords] = useState("");
  const [said, setSaid] = useState(new Set());
  useEffect(() => {
    setSaid(new Set());
    if (!words.trim()) return;
    let wanted = true;
    const timer = setTimeout(() => store.search(words.trim().toLowerCase()).then((found) => wanted && setSaid(found), () => {}), SEARCH_MS);
    return () => {
      wanted = false;
      clearTimeout(timer);
    };
  }, [words]);
  const wanted = words.trim().toLowerCase();
  const found = wanted ? list.filter((c) => c.title.toLowerCase().includes(wanted) || said.has(c.id)) : list;
  return { words, setWords, found };
}

/** A field for another title; an empty one leaves it. */
export function Rename({ c, onDone }) {
  const [title, setTitle] = useState(c.title);
  const place = useRef(null);
  useEffect(() => {
    place.current.focus();
    place.current.select();
  }, []);
  const save = (event) => {
    event.preventDefault();
    onDone(title.trim());
  };
  return html`<form class="rename" onSubmit=${save} onKeyDown=${(e) => e.key === "Escape" && (e.stopPropagation(), onDone(""))}>
    <label class="unseen" for="title">Title</label>
    <input id="title" dir="auto" maxlength="200" value=${title} ref=${place} onInput=${(e) => setTitle(e.target.value)} />
    <button type="submit" class="small">Save</button></form>`;
}

function Item({ c, library, onShow }) {
  const [renaming, setRenaming] = useState(false);
  const name = useReturn(renaming);
  const chosen = c.id === library.current.id;
  const title = c.title || "Untitled";
  const rename = (to) => {
    setRenaming(false);
    if (!to || to === c.title) return;
    c.title = to;
    library.keepHead(c);
  };
  const whole = async () => tree.path(await library.turnsOf(c));
  const exports = {
    json: async () => (await exchange()).download(`${title}.json`, JSON.stringify(await library.turnsOf(c), null, 1), JSON_TYPE),
    markdown: async () => {
      const { download, markdown } = await exchange();
      download(`${title}.md`, markdown(c.title, await whole()), MARKDOWN_TYPE);
    },
  };
  if (renaming) return html`<li><${Rename} c=${c} onDone=${rename} /></li>`;
  return html`<li class=${chosen ? "chosen" : ""}>
    <button type="button" class="name" ref=${name} dir="auto" title=${title} aria-current=${chosen ? "true" : undefined} onClick=${() => (library.choose(c), onShow())} onDblClick=${() => setRenaming(true)}>${title}</button>
    ${library.generation(c) && html`<span class="busy" role="img" aria-label="is answering" title="Is answering">●</span>`}
    <details class="menu" onKeyDown=${closes} onFocusOut=${left} onToggle=${opened}><summary class="small" aria-label=${`More about ${title}`}>⋯</summary><div>
      <button type="button" onClick=${() => setRenaming(true)}>Rename</button>
      <button type="button" onClick=${exports.markdown}>Export as Markdown</button>
      <button type="button" aria-label=${`Export ${title}`} onClick=${exports.json}>Export as JSON</button>
      <button type="button" aria-label=${`Delete ${title}`} onClick=${() => confirm(`Delete “${title}”?`) && library.remove(c)}>Delete</button></div></details></li>`;
}

/** The menu of the last conversation of a long list lies below it. */
function opened(event) {
  if (event.currentTarget.open) event.currentTarget.lastElementChild.scrollIntoView({ block: "nearest" });
}

export function List({ library, onShow }) {
  const { words, setWords, found } = useSearch(library.list);
  const bring = async (event) => {
    const [file] = event.target.files;
    event.target.value = "";
    if (!file) return;
    try {
      const { parse } = await exchange();
      await library.bring(parse(await file.text()));
      onShow();
    } catch (error) {
      library.say(`${file.name} was not imported: ${error.message}`);
    }
  };
  const exportAll = async () => {
    const all = [];
    for (const c of library.list) all.push(await library.turnsOf(c));
    (await exchange()).download("conversations.json", JSON.stringify(all, null, 1), JSON_TYPE);
  };
  const begin = () => {
    library.begin();
    onShow();
  };
  return html`<nav class="list" aria-label="Conversations">
    <button type="button" class="first" onClick=${begin}>New conversation</button>
    ${library.all.size > 0 && html`<label><span class="unseen">Search conversations</span><input type="search" dir="auto" placeholder="Search" value=${words} onInput=${(e) => setWords(e.target.value)} /></label>`}
    ${words.trim() && !found.length && html`<p class="empty" role="status">Nothing found.</p>`}
    <ul>${found.map((c) => html`<${Item} key=${c.id} c=${c} library=${library} onShow=${onShow} />`)}</ul>
    <div class="row"><button type="button" onClick=${exportAll} disabled=${!library.all.size}>Export all</button>
      <label class="button">Import<input type="file" class="unseen" accept="application/json,.json" onChange=${bring} /></label></div>
  </nav>`;
}
