// Two keys. One user of MODEST_KEY asks now and then, first alone, then beside GREEDY users of GREEDY_KEY who never pause: the p95 of the
// time to the first token may grow by half.
import { Trend } from 'k6/metrics';
import { ask, completion, number, options as build, summary, think, vocabulary, SECONDS } from './lib.js';

const ALONE = SECONDS / 2;
/** When the comparison is made. */
const TELL = 0.9 * SECONDS;
const growth = new Trend('ttft_growth');
const times = { alone: [], beside: [] };
let told = false;

export const options = build({
  modest: { executor: 'constant-vus', vus: 1, duration: `${SECONDS}s`, gracefulStop: '120s', exec: 'modest' },
  greedy: {
    executor: 'constant-vus', vus: number('GREEDY', 64), startTime: `${ALONE}s`, duration: `${SECONDS - ALONE}s`, gracefulStop: '120s',
    exec: 'greedy',
  },
}, { ttft_growth: ['min>0', 'max<1.5'] });
export const handleSummary = summary('fairness');
export const setup = () => ({ words: vocabulary(__ENV.MODEST_KEY), begin: Date.now() });

function p95(values) {
  return values.slice().sort((a, b) => a - b)[Math.ceil(0.95 * values.length) - 1];
}

export function modest({ words, begin }) {
  const phase = Date.now() - begin < ALONE * 1000 ? 'alone' : 'beside';
  const timings = ask('/v1/completions', completion(words, 64, 32), { key: __ENV.MODEST_KEY, tags: { key: 'modest', phase } });
  if (timings) {
    times[phase].push(timings.ttft_ms);
  }
  // This user's figures are its own VU's, so it says how they compare, once, when its time is nearly over.
  if (!told && Date.now() - begin > TELL * 1000 && times.beside.length > 0) {
    told = true;
    growth.add(p95(times.beside) / p95(times.alone));
  }
  think(0.3);
}

export function greedy({ words }) {
  ask('/v1/completions', completion(words, 64, 128), { key: __ENV.GREEDY_KEY, tags: { key: 'greedy', phase: 'beside' } });
}
