// The steady load for long (SECONDS=1800), with now and then a client that leaves and a request that is wrong: no errors but those, and the
// memory of the process stays as it is after a sixth of the time.
import http from 'k6/http';
import { check } from 'k6';
import { Trend } from 'k6/metrics';
import { ask, completion, leave, metric, number, options as build, summary, think, vocabulary, LATENCY, SECONDS, URL } from './lib.js';

const GROWTH = 0.02;
const PROCESS = 'use="process"';
const growth = new Trend('memory_growth');
let first;

export const options = build({
  users: { executor: 'constant-vus', vus: number('USERS', 8), duration: `${SECONDS}s`, gracefulStop: '60s', exec: 'user' },
  memory: {
    executor: 'constant-vus', vus: 1, startTime: `${SECONDS / 6}s`, duration: `${SECONDS - SECONDS / 6}s`, exec: 'memory',
  },
}, Object.assign({ memory_growth: [`max<${GROWTH}`], refused: ['count==0'] }, LATENCY));
export const handleSummary = summary('soak');
export const setup = vocabulary;

export function user(words) {
  const length = [16, 64, 256, 1024][__ITER % 4];
  if (__ITER % 10 === 7) {
    leave('/v1/completions', completion(words, length, 500), 100);
  } else if (__ITER % 10 === 3) {
    const parameters = { headers: { 'Content-Type': 'application/json' }, responseCallback: null };
    const reply = http.post(`${URL}/v1/completions`, '{"prompt": 7}', parameters);
    check(reply, { 'a wrong request is told so': (r) => r.status === 400 });
  } else {
    ask('/v1/completions', completion(words, length, 64));
  }
  think(number('THINK', 1));
}

export function memory() {
  const now = metric('chimere_memory_bytes', PROCESS);
  check(now, { 'the process has memory': (bytes) => bytes > 0 });
  first = first || now;
  growth.add(Math.abs(now / first - 1));
  think(5);
}
