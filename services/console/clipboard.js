// Copying. Browsers give the clipboard to pages of HTTPS and localhost alone; elsewhere a selection is copied, as a person would do it.

/** Copies a text. Says whether the browser did. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copySelected(text);
  }
}

function copySelected(text) {
  const before = document.activeElement;
  const place = document.createElement("textarea");
  place.className = "unseen";
  place.value = text;
  document.body.append(place);
  place.select();
  const copied = document.execCommand("copy");
  place.remove();
  before?.focus?.();
  return copied;
}

/** What a button says after it was asked to copy. */
export const copied = (done) => (done ? "Copied" : "Not copied: select the text and press Ctrl+C");
