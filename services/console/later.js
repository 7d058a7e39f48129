// Parts of the page that its first picture does without. Each is a file with all that it imports: fetched when it is first wanted, or
// soon after the first picture, so that the page is whole before the service goes away or is replaced by another version.

import { html, useEffect, useState } from "./vendor/preact-htm.js";

const loads = [];

/** Has a file fetched soon after the first picture. Gives `load`, which is for those who cannot wait. */
export function ahead(load) {
  loads.push(load);
  return load;
}

/** A component of another file; until the file is there, nothing is drawn. */
export function later(load) {
  let Part = null;
  const fetched = ahead(async () => (Part ||= await load()));
  return function Later(props) {
    const [failed, fail] = useState(false);
    const [, draw] = useState(0);
    // The file may come after this drawing and before its effect.
    const drawn = Boolean(Part);
    useEffect(() => void (drawn || fetched().then(() => draw(1), () => fail(true))), []);
    if (failed) return html`<p class="trouble" role="alert">A part of the page could not be fetched. Reload the page when the service is there.</p>`;
    return Part && html`<${Part} ...${props} />`;
  };
}

/** Has the browser fetch files at once, which otherwise name each other one after the other. They run when they are imported. */
export function preload(files) {
  const links = files.map((file) => Object.assign(document.createElement("link"), { rel: "modulepreload", href: `/console/${file}.js` }));
  document.head.append(...links);
}

/** Fetches what is still to come, a file at a time, so that no task is long. */
export async function complete() {
  for (const load of loads) {
    await new Promise((resolve) => setTimeout(resolve));
    // The component says so when it is wanted.
    await load().catch(() => {});
  }
}
