// Drawing that is done a little at a time: a frame gets a few milliseconds of it and a bounded amount of text, because the browser
// lays out and paints behind us what we add. So no task of the page is long, however much there is to draw.

const SLICE_MS = 6;
const SLICE_CHARS = 6000;

const steps = []; // taken in turn: many messages grow together
let asked = false;

/** Calls `step` again and again, some in each frame, until it gives 0; otherwise it gives how many characters it drew. */
export function bySlices(step) {
  steps.push(step);
  if (!asked) ask();
}

function ask() {
  asked = true;
  // Nothing is drawn while nobody looks.
  requestAnimationFrame(slice);
}

function slice() {
  asked = false;
  const end = performance.now() + SLICE_MS;
  try {
    for (let drawn = 0; steps.length && drawn < SLICE_CHARS && performance.now() < end; ) drawn += turn();
  } finally {
    // One that fails does not hold up the others.
    if (steps.length && !asked) ask();
  }
}

function turn() {
  const step = steps.shift();
  const chars = step();
  if (chars) steps.push(step);
  return chars;
}
