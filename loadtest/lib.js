// What all scenarios share: the settings, one request, its figures, and the summary that is written at the end.
//
// k6 hands a body over when it is complete, so it cannot time the pieces of a stream. Times to the first token and between tokens are
// therefore read from `timings`, which the service puts into every reply; `chimere bench serve` times streams from outside.
import http from 'k6/http';
import { check, sleep } from 'k6';
import exec from 'k6/execution';
import { Counter, Rate, Trend } from 'k6/metrics';

export const URL = __ENV.URL || 'http://127.0.0.1:8080';
/** Seconds that a scenario's load lasts. */
export const SECONDS = number('SECONDS', 60);
/** Bounds of the p95 of the time to the first token and of the p95 between tokens, in milliseconds. */
export const TTFT_MS = number('TTFT_MS', 2000);
export const ITL_MS = number('ITL_MS', 150);
/** Most times that a refused request is sent again. */
const RETRIES = number('RETRIES', 100);
const REQUEST_TIMEOUT = '120s';

// Names that a dashboard knows them by: k6_<name>_... in Prometheus.
const answered = new Counter('answered');
const refused = new Counter('refused');
const failed = new Counter('failed');
const gaveUp = new Counter('gave_up');
const outputTokens = new Counter('output_tokens');
const ttft = new Trend('ttft', true);
const itl = new Trend('itl', true);
const queue = new Trend('queue', true);
const total = new Trend('total', true);
const honest = new Rate('retry_after_sound');

// A refusal with a time to come back is an answer, not an error.
http.setResponseCallback(http.expectedStatuses(200, 429));

/** A setting from the environment. */
export function number(name, otherwise) {
  const value = __ENV[name] === undefined ? otherwise : Number(__ENV[name]);
  if (!(value > 0)) {
    throw new Error(`${name} is above 0, not ${__ENV[name]}`);
  }
  return value;
}

/** Thresholds that hold in every scenario, and more. */
export function thresholds(more) {
  // A counter that never counted has no threshold that fails: `answered` must be there, `failed` need not.
  return Object.assign({ failed: ['count==0'], answered: ['count>0'], retry_after_sound: ['rate==1'], checks: ['rate==1'] }, more || {});
}

/** The bounds above, for scenarios within the service's capacity. */
export const LATENCY = { ttft: [`p(95)<${TTFT_MS}`], itl: [`p(95)<${ITL_MS}`] };

function headers(key) {
  const all = { 'Content-Type': 'application/json' };
  const bearer = key || __ENV.API_KEY;
  return bearer ? Object.assign(all, { Authorization: `Bearer ${bearer}` }) : all;
}

/** The reply's last JSON, which has `usage` and `timings`: all of it, or the last chunk of a stream, which may hold comments too. */
function account(reply) {
  if (!reply.headers['Content-Type'].startsWith('text/event-stream')) {
    return reply.json();
  }
  const chunks = reply.body.split('\n\n').filter((event) => event.startsWith('data: {'));
  return JSON.parse(chunks[chunks.length - 1].slice('data: '.length));
}

function record(reply, tags) {
  let last;
  try {
    last = account(reply);
  } catch (error) {
    // k6 ends the iteration at an exception and counts nothing.
    return fail(Object.assign(reply, { error: `${error}` }), tags);
  }
  const { timings, usage } = last;
  const sound = check(reply, {
    'the reply has timings': () => timings !== undefined && usage !== undefined,
    // Whatever the load: what the service counts begins after the client sent and ends before it received.
    'the service took no longer than the client waited': () => timings.total_ms <= reply.timings.duration,
  });
  if (sound) {
    answered.add(1, tags);
    outputTokens.add(usage.completion_tokens, tags);
    ttft.add(timings.ttft_ms, tags);
    queue.add(timings.queue_ms, tags);
    total.add(timings.total_ms, tags);
    if (usage.completion_tokens > 1) {
      itl.add(timings.itl_ms_p95, tags);
    }
  }
  return timings;
}

function fail(reply, tags) {
  failed.add(1, tags);
  console.error(`${reply.status} ${reply.error} ${String(reply.body).slice(0, 200)}`);
}

/** Seconds that a refusal says to stay away. */
function wait(reply, tags) {
  const seconds = Number(reply.headers['Retry-After']);
  const milliseconds = Number(reply.headers['Retry-After-Ms']);
  const sound = seconds >= 1 && seconds <= 60 && milliseconds > 0 && milliseconds <= 60000;
  honest.add(sound, tags);
  return sound ? milliseconds / 1000 : 1;
}

/**
 * Sends a request, stays away as long as a refusal says and tries again, and records its figures. Gives the reply's timings, or nothing
 * where there was no answer.
 */
export function ask(path, body, options) {
  const { key, tags, retries } = Object.assign({ tags: {}, retries: RETRIES }, options);
  const parameters = { headers: headers(key), timeout: REQUEST_TIMEOUT, tags };
  for (let turn = 0; turn <= retries; turn++) {
    const reply = http.post(URL + path, JSON.stringify(body), parameters);
    if (reply.status !== 429) {
      return reply.status === 200 ? record(reply, tags) : fail(reply, tags);
    }
    refused.add(1, tags);
    sleep(wait(reply, tags));
  }
  gaveUp.add(1, tags);
  return undefined;
}

/** Sends a request and goes away after some milliseconds; who is refused stays away as long as he is told. */
export function leave(path, body, milliseconds) {
  const reply = http.post(URL + path, JSON.stringify(body), { headers: headers(), timeout: `${milliseconds}ms`, responseCallback: null });
  if (reply.status === 429) {
    refused.add(1);
    sleep(wait(reply, {}));
  }
}

/** A gauge or counter of the service; the sum over series where a part of the labels is given. */
export function metric(name, labels) {
  const lines = http.get(`${URL}/metrics`).body.split('\n');
  const wanted = lines.filter((line) => line.startsWith(name) && /^[{ ]/.test(line.slice(name.length)) && line.includes(labels || ''));
  return wanted.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' ') + 1)), 0);
}

/** Ids of ordinary text in the model's vocabulary, for prompts of a stated length. */
export function vocabulary(key) {
  const text = 'the harbour master wrote down each ship that came in with the tide and what it carried, wool or salt or timber, and '
    + 'which of the four long piers had room for it before the evening bell';
  const reply = http.post(`${URL}/tokenize`, JSON.stringify({ prompt: text }), { headers: headers(key) });
  if (reply.status !== 200) {
    exec.test.abort(`${URL}/tokenize: ${reply.status} ${reply.error} ${reply.body}`);
  }
  return reply.json('tokens');
}

/** A completion of exactly so many tokens from a prompt of exactly so many, different at every call. */
export function completion(words, promptTokens, maxTokens) {
  const prompt = Array.from({ length: promptTokens }, () => words[Math.floor(Math.random() * words.length)]);
  return { prompt, max_tokens: maxTokens, ignore_eos: true, stream: true };
}

/** Sleeps as long as people think: about so many seconds, sometimes much longer. */
export function think(seconds) {
  sleep(Math.min(-Math.log(1 - Math.random()) * seconds, 5 * seconds));
}

/** Writes what was measured to $OUT/<scenario>.json and a few lines to the terminal. */
export function summary(scenario) {
  return (data) => {
    const verdicts = [];
    for (const [name, { thresholds: of }] of Object.entries(data.metrics)) {
      for (const [threshold, { ok }] of Object.entries(of || {})) {
        verdicts.push({ metric: name, threshold, ok });
      }
    }
    const metrics = Object.fromEntries(Object.entries(data.metrics).map(([name, { values }]) => [name, values]));
    const result = { scenario, url: URL, seconds: data.state.testRunDurationMs / 1000, verdicts, metrics };
    const lines = verdicts.map(({ metric: of, threshold, ok }) => `${ok ? 'ok    ' : 'MISSED'} ${scenario}: ${of} ${threshold}`);
    return { [`${__ENV.OUT || '.'}/${scenario}.json`]: `${JSON.stringify(result, null, 2)}\n`, stdout: `${lines.join('\n')}\n` };
  };
}

/** Options that every scenario has. */
export function options(scenarios, limits) {
  return { scenarios, thresholds: thresholds(limits), summaryTrendStats: ['avg', 'min', 'med', 'max', 'p(95)', 'p(99)', 'count'] };
}
