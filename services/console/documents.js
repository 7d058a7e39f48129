// Documents: vector stores, their files, and what a search in one finds.

import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { plain } from "./annotations.js";
import { call, key, refusal } from "./api.js";
import { useReturn } from "./focus.js";
import { Rename } from "./list.js";
import { Members, standing } from "./members.js";
import { create, nameOf, removeStore, rename, storePath, storesChanged, useStores } from "./stores.js";
import { bytes } from "./system.js";
import { Unset } from "./unset.js";

const chosenId = () => decodeURIComponent(location.hash.split("/")[2] || "");

/** The store that the address names. */
function useChosen() {
  const [id, setId] = useState(chosenId());
  useEffect(() => {
    const moved = () => setId(chosenId());
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  return id;
}

/** Why this tab may not keep documents, null until it is known: they belong to a key, or to whoever may follow the steps. */
function useRefused(onClosed) {
  const [refused, setRefused] = useState(null);
  useEffect(() => {
    if (key.get()) setRefused("");
    else refusal("/v1/console/steps").then(setRefused, (error) => ([0, 401].includes(error.status) ? onClosed(error) : setRefused(error.message)));
  }, []);
  return refused;
}

/** A text without the title above it, which its first line may say again. */
function untitled(text, headings) {
  const [first, ...rest] = text.split("\n");
  const own = first.replace(/^[#\s]+|[#\s]+$/g, "").replace(/\s+/g, " ");
  return own === headings?.at(-1) && rest.some((line) => line.trim()) ? rest.join("\n").replace(/^[\r\n]+/, "") : text;
}

/** Where the passages of a search stand, and why they were found. */
function Found({ of }) {
  const legs = Object.entries(of.scores || {}).filter(([, score]) => Number.isFinite(score));
  const facts = [of.page && `page ${of.page.toLocaleString("en")}`, of.headings?.join(" › "), Number.isFinite(of.score) && `score ${of.score.toFixed(3)}`, ...legs.map(([leg, score]) => `${leg} ${score.toFixed(3)}`)];
  return html`<li><bdi class="where">${plain(of.filename)}</bdi> <span class="facts">${facts.filter(Boolean).map((fact) => html`<span>${fact}</span> `)}</span>
    <blockquote dir="auto">${untitled(of.content.map((part) => part.text).join("\n"), of.headings)}</blockquote></li>`;
}

function Search({ id }) {
  const [query, setQuery] = useState("");
  const [found, setFound] = useState(null);
  const [trouble, setTrouble] = useState("");
  const search = (event) => {
    event.preventDefault();
    setTrouble("");
    call(storePath(id, "search"), { body: { query, max_num_results: 10 } }).then((answer) => setFound(answer.data), (error) => setTrouble(error.message));
  };
  return html`<section aria-label="Search"><form class="row" role="search" onSubmit=${search}>
      <label>Search this store<input required type="search" dir="auto" value=${query} onInput=${(e) => setQuery(e.target.value)} /></label><button type="submit">Search</button></form>
    ${trouble && html`<p class="trouble" role="alert">${trouble}</p>`}
    ${found && html`<p role="status">${found.length ? `${found.length} ${found.length === 1 ? "passage" : "passages"}, the best first` : "Nothing found."}</p>
      <ol class="found">${found.map((of) => html`<${Found} of=${of} />`)}</ol>`}</section>`;
}

function Store({ id, refused }) {
  const [store, setStore] = useState(null);
  const [renaming, setRenaming] = useState(false);
  const [said, setSaid] = useState("");
  const renamer = useReturn(renaming);
  const act = (action) => action().then(storesChanged, (error) => setSaid(error.message));
  const named = (name) => {
    setRenaming(false);
    if (name) act(async () => setStore(await rename(id, name)));
  };
  const remove = () => confirm(`Delete “${nameOf(store)}” with its files? They go from every store that has them.`) && act(async () => {
    await removeStore(id, (done, all) => setSaid(`Deleted ${done} of ${all} files`));
    location.hash = "#/documents";
  });
  return html`<p><a href="#/documents">← All stores</a></p>
    ${renaming ? html`<${Rename} c=${{ title: store.name }} onDone=${named} />`
      : html`<div class="row"><h1 dir="auto">${store ? nameOf(store) : "…"}</h1><span class="grow"></span>${store?.read_only && html`<span>shared with this key</span>`}${store && !refused && !store.read_only && html`<button type="button" ref=${renamer} onClick=${() => setRenaming(true)}>Rename</button>
        <button type="button" onClick=${remove}>Delete store</button>`}</div>`}
    <p role="status" class="said">${said}</p>
    <${Members} id=${id} refused=${refused} onStore=${setStore} />
    <${Search} id=${id} />`;
}

/** A store in the list. */
const Card = ({ store }) => html`<li><a href=${`#/documents/${encodeURIComponent(store.id)}`}><bdi>${nameOf(store)}</bdi></a>
  <span class="facts"><span>${standing(store)}</span> <span>${bytes(store.usage_bytes)} of text</span></span></li>`;

function Stores({ list, refused }) {
  const [name, setName] = useState("");
  const [said, setSaid] = useState("");
  const make = (event) => {
    event.preventDefault();
    create(name.trim()).then((made) => (location.hash = `#/documents/${encodeURIComponent(made.id)}`), (error) => setSaid(error.message));
  };
  return html`<h1>Documents</h1><p>An answer can be from your own files: put them into a store here, and choose it beside the field for a message.</p>
    ${list.length ? html`<ul class="cards">${list.map((store) => html`<${Card} key=${store.id} store=${store} />`)}</ul>` : html`<p class="empty">There is no store yet.</p>`}
    ${refused ? html`<p role="status">Nothing can be written from here: ${refused}.</p>` : html`<form class="row" onSubmit=${make}>
      <label>Name of a new store<input required maxlength="200" dir="auto" value=${name} onInput=${(e) => setName(e.target.value)} /></label><button type="submit" class="first">Make it</button></form>`}
    <p role="status" class="said">${said}</p>`;
}

export function DocumentsView({ onClosed }) {
  const id = useChosen();
  const refused = useRefused(onClosed);
  const { list, failure } = useStores();
  useEffect(() => {
    if (!id) storesChanged();
  }, [id]);
  useEffect(() => void ([0, 401].includes(failure?.status) && onClosed(failure)), [failure]);
  const shown = () => {
    if (failure?.code === "no_directory") return html`<h1>Documents</h1><${Unset} what="documents" section="documents" />`;
    if (failure) return html`<h1>Documents</h1><p class="trouble" role="alert">${failure.message}</p>`;
    if (!list || refused === null) return html`<h1>Documents</h1><p class="empty">…</p>`;
    return id ? html`<${Store} key=${id} id=${id} refused=${refused} />` : html`<${Stores} list=${list} refused=${refused} />`;
  };
  return html`<div class="page documents">${shown()}</div>`;
}
