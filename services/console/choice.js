// Which stores an answer is from: chosen at the composer and in the settings, kept with the conversation.

import { html, useState } from "./vendor/preact-htm.js";
import { closes, left } from "./focus.js";
import { chosen } from "./settings.js";
import { nameOf, useStores } from "./stores.js";

const withStores = (settings, ids) => ({ ...settings, stores: ids.join(",") });

/** All stores, each to be chosen or not. */
export function StoreChoice({ settings, onChange }) {
  const { list, failure } = useStores();
  return html`<${Checks} list=${list} failure=${failure} settings=${settings} onChange=${onChange} />`;
}

function Checks({ list, failure, settings, onChange }) {
  if (failure) return html`<p role="status">There are no documents to answer from: ${failure.message}.</p>`;
  if (!list) return html`<p role="status">…</p>`;
  if (!list.length) return html`<p role="status">There is no store of documents yet. <a href="#/documents">Make one</a></p>`;
  const ids = chosen(settings);
  const set = (id) => (event) => onChange(withStores(settings, event.target.checked ? [...ids, id] : ids.filter((other) => other !== id)));
  return html`<fieldset><legend>Answer from</legend>${list.map((store) => html`<label class="check" key=${store.id}>
    <input type="checkbox" checked=${ids.includes(store.id)} onChange=${set(store.id)} /> <bdi>${nameOf(store)}</bdi></label>`)}</fieldset>`;
}

/** The chosen stores as chips, and the menu that chooses. The service is asked for stores only when there is something to show. */
export function ChosenStores({ settings, onChange }) {
  const [open, setOpen] = useState(false);
  const ids = chosen(settings);
  const { list, failure } = useStores(open || ids.length > 0);
  const name = (id) => {
    const store = list?.find((store) => store.id === id);
    if (store) return nameOf(store);
    return list || failure ? "a store that is not there" : "…";
  };
  return html`<details class="menu upward" onKeyDown=${closes} onFocusOut=${left} onToggle=${(e) => setOpen(e.currentTarget.open)}>
      <summary class="button">Documents</summary><div>${open && html`<${Checks} list=${list} failure=${failure} settings=${settings} onChange=${onChange} />`}</div></details>
    ${ids.map((id) => html`<button type="button" class="chip" key=${id} aria-label=${`Do not answer from ${name(id)}`} onClick=${() => onChange(withStores(settings, ids.filter((other) => other !== id)))}>
      <bdi>${name(id)}</bdi> <span aria-hidden="true">✕</span></button>`)}`;
}
