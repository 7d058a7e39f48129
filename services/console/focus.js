// Where the focus goes when what had it is closed. Left alone it falls back to the whole page, and a person without a mouse begins anew.

import { useEffect, useRef } from "./vendor/preact-htm.js";

/** The ref of an element that gets the focus when what `open` tells of was open and is closed. */
export function useReturn(open) {
  const place = useRef(null);
  const was = useRef(open);
  useEffect(() => {
    if (was.current && !open) place.current?.focus();
    was.current = open;
  }, [open]);
  return place;
}

/** Closes a menu (`details`) at Escape. */
export function closes(event) {
  if (event.key !== "Escape" || !event.currentTarget.open) return;
  event.stopPropagation();
  event.currentTarget.open = false;
  event.currentTarget.firstElementChild.focus();
}

/** A menu closes when the focus goes elsewhere. */
export function left(event) {
  if (event.relatedTarget && !event.currentTarget.contains(event.relatedTarget)) event.currentTarget.open = false;
}
