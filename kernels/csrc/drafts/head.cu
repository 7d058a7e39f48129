// What stands around the layer of a draft head: its input, what it carries from position to position, and the rows of its guesses.
//
//   draft_input   row[r] = int8 form of [norm(table[token] * scale) * embed_norm ; norm(before) * hidden_norm], 2 * COLS values
//   draft_keep    carried[slot][position % RING] = norm(x[r]) * norm_weight, the token that the row had beside it, and x[r] = 0: the stream
//                 of what comes next begins there
//   draft_rows    the rows of the next guesses, behind what was accepted or behind the last guesses, which are places in `ids`, if there are any
//   draft_follow  the rows of a pass that goes on behind what a step accepts, with its guesses as drafts
//
// `before` is the model's hidden state, after the norm before the head, of the position before the row's: norm(x[r - 1]) * norm_weight
// where row r - 1 is that position, else what was carried. A guess carries its own in place of it. Rows of a sequence lie together, in the
// order of their positions. RING is more than the positions that a step adds, so no row of a decode pass writes what another one reads;
// of a prompt's piece the last row alone is kept. A row whose token is KEPT has the one that was kept at its position.
//
// draft_input, draft_keep: one block a row, a thread holds eight values of each half (common/int8_rows.cuh, quantize_quads). Bound: 8 * COLS
// bytes in, 2.5 * COLS out; 8 * COLS in and out. slots[row] < 0: no row. Its input is zeros, and nothing is carried.
//
// draft_rows: one thread a row. draft_follow likewise; rows stand as arrays one behind another: tokens, slots, positions, lengths of prompts, cuts
// (a pair each), what states lack, of that what was drafted. The new pass may lie where the old one does: all is read before anything is written.
//
// -D: COLS (a multiple of 32), VOCAB, ENCODING, RING, KEPT, PLANES, STORES.
#include "common/int8_rows.cuh"
#include "arguments.cuh"
#include "rows/tables.cuh"

using Table = TableOf<ENCODING>;
#define ROW_BYTES (COLS / Table::VALUES * Table::BYTES)
using Word = WordOf<ROW_BYTES>::Word;
#define WORDS (ROW_BYTES / (int)sizeof(Word))
#define THREADS ((COLS / 8 + WARP - 1) / WARP * WARP)
#define PADDED ((2 * COLS + 127) / 128 * 128)
// Of a slot: RING hidden states, then as many tokens.
#define CARRIED (RING * (COLS + 1))

// Eight values of a row: 4t.. and 16 + 4t.. of a block of 32.
struct Eight {
    float4 a, b;

    __device__ __forceinline__ void read(const float *row, int first) { a = *(const float4 *)(row + first), b = *(const float4 *)(row + first + 16); }
    __device__ __forceinline__ void write(float *row, int first) const { *(float4 *)(row + first) = a, *(float4 *)(row + first + 16) = b; }
    __device__ __forceinline__ float squares() const {
        return a.x * a.x + a.y * a.y + a.z * a.z + a.w * a.w + (b.x * b.x + b.y * b.y + b.z * b.z + b.w * b.w);
    }
    // Each times `factor` and its weight.
    __device__ __forceinline__ void scale(float factor, const Eight &w) {
        a = make_float4(a.x * factor * w.a.x, a.y * factor * w.a.y, a.z * factor * w.a.z, a.w * factor * w.a.w);
        b = make_float4(b.x * factor * w.b.x, b.y * factor * w.b.y, b.z * factor * w.b.z, b.w * factor * w.b.w);
    }
};

__device__ __forceinline__ Eight none() { return {make_float4(0, 0, 0, 0), make_float4(0, 0, 0, 0)}; }

// The sum of all threads' values; all get it. `sums`: a warp's each, for one call.
__device__ __forceinline__ float block_sum(float v, float *sums) {
    v = warp_sum(v);
    if (threadIdx.x % WARP == 0) sums[threadIdx.x / WARP] = v;
    __syncthreads();
    float all = 0;
    for (int i = 0; i < THREADS / WARP; i++) all += sums[i];
    return all;
}
__device__ __forceinline__ float norm_factor(float squares, float eps) { return __frcp_rn(__fsqrt_rn(squares * (1.0f / COLS) + eps)); }

__device__ __forceinline__ u64 hidden_at(int slot, int position) { return (u64)slot * CARRIED + (u64)(position % RING) * COLS; }
__device__ __forceinline__ u64 token_at(int slot, int position) { return (u64)slot * CARRIED + RING * COLS + position % RING; }

extern "C" __global__ void __launch_bounds__(THREADS) draft_input(const InputArguments args) {
    __shared__ __align__(16) u8 encoded[ROW_BYTES];
    __shared__ float sums[3][THREADS / WARP];
    let_next_start();
    const int row = blockIdx.x, tid = threadIdx.x, block = tid / 4, first = block * 32 + tid % 4 * 4;
    const bool live = tid < COLS / 8;
    Eight half = none(), w = none(), before = none(), embed_norm = none(), hidden_norm = none();
    // A few rows are one latency after another: what does not depend on the last is on its way before it.
    if (live) embed_norm.read(args.embed_norm, first), hidden_norm.read(args.hidden_norm, first);
    wait_for_inputs();
    const int slot = args.slots[row], position = args.positions[row];
    int token = args.tokens[row];
    const bool follows = args.x && row > 0 && slot >= 0 && args.slots[row - 1] == slot && args.positions[row - 1] == position - 1;
    if (live && follows) before.read(args.x + (u64)(row - 1) * COLS, first);
    if (live && !follows && slot >= 0) before.read(args.carried + hidden_at(slot, position + RING - 1), first);
    if (slot >= 0 && token == -1) token = args.sampled[slot];
    if (slot >= 0 && token == KEPT) token = __float_as_int(args.carried[token_at(slot, position)]);
    const bool known = slot >= 0 && (u32)token < VOCAB;
    if (known)
        for (int i = tid; i < WORDS; i += THREADS) ((Word *)encoded)[i] = ((const Word *)(args.table + (u64)token * ROW_BYTES))[i];
    __syncthreads();
    if (live && known) {
        half.a = Table::decode(encoded, first), half.b = Table::decode(encoded, first + 16);
        w = {make_float4(1, 1, 1, 1), make_float4(1, 1, 1, 1)};
        half.scale(args.scale, w);
    }
    const float factor = norm_factor(block_sum(half.squares(), sums[0]), args.eps);
    half.scale(factor, embed_norm);
    i8 *codes = args.codes + (u64)row * PADDED * PLANES;
    float2 *meta = args.meta + (u64)row * (PADDED / 32) * PLANES;
    quantize_quads(half.a, half.b, codes + block * 32 * PLANES, meta + block * PLANES, live);

    const float of_before = norm_factor(block_sum(before.squares(), sums[1]), args.eps);
    if (follows) {
        if (live) w.read(args.norm, first);
        before.scale(of_before, w);
    }
    const float of_hidden = norm_factor(block_sum(before.squares(), sums[2]), args.eps);
    before.scale(of_hidden, hidden_norm);
    const int behind = COLS / 32 + block;
    quantize_quads(before.a, before.b, codes + behind * 32 * PLANES, meta + behind * PLANES, live);
    if (live && args.begin) none().write(args.begin + (u64)row * COLS, first);
}

extern "C" __global__ void __launch_bounds__(THREADS) draft_keep(const KeepArguments args) {
    __shared__ float sums[THREADS / WARP];
    let_next_start();
    wait_for_inputs();
    const int row = blockIdx.x, tid = threadIdx.x, first = tid / 4 * 32 + tid % 4 * 4;
    const bool live = tid < COLS / 8;
    const int slot = args.slots[row], position = args.positions[row];
    Eight x = none(), w = none();
    if (live) x.read(args.x + (u64)row * COLS, first), w.read(args.norm, first);
    x.scale(norm_factor(block_sum(x.squares(), sums), args.eps), w);
    const bool last = !args.last || row + 1 == (int)gridDim.x || args.slots[row + 1] != slot;
    if (live && slot >= 0 && last) x.write(args.carried + hidden_at(slot, position), first);
    if (tid == 0 && slot >= 0 && last) {
        const int token = args.tokens[row];
        args.carried[token_at(slot, position)] = __int_as_float(token == -1 ? args.sampled[slot] : token);
    }
    if (live) none().write(args.x + (u64)row * COLS, first);
}

// How many of so many drafts are what was sampled in their place.
__device__ __forceinline__ int accepted(const SampleResult *results, const int *tokens, int drafts) {
    int right = 0;
    while (right < drafts && results[right].token == tokens[right]) right++;
    return right;
}

extern "C" __global__ void __launch_bounds__(256) draft_rows(const RowsArguments args) {
    let_next_start();
    wait_for_inputs();
    const int i = threadIdx.x;
    if (i >= args.rows) return;
    int slot = -1, position = 0, token = 0;
    if (i < args.count) {
        // Row, sample, drafts, and the first position that there is no room for; of a prompt's end ~slot, sample and position.
        const int4 asked = args.asked[i];
        if (args.first && asked.x < 0) {
            slot = ~asked.x, position = asked.z + 1, token = args.results[asked.y].token;
        } else if (args.first) {
            const int right = accepted(args.results + asked.y, args.step_tokens + asked.x + 1, asked.z);
            slot = args.step_slots[asked.x], position = args.step_positions[asked.x] + right + 1;
            token = args.results[asked.y + right].token;
            args.params[i].output_index += right + (args.ahead ? args.ahead[asked.x] : 0);
        } else {
            slot = args.slots[i], position = args.positions[i] + 1, token = args.guessed[i].token;
            if (args.ids) token = args.ids[token];
            args.params[i].output_index++;
        }
        if (position >= asked.w) slot = -1;
    }
    args.tokens[i] = token, args.slots[i] = slot, args.positions[i] = position;
}

extern "C" __global__ void __launch_bounds__(256) draft_follow(const FollowArguments args) {
    let_next_start();
    wait_for_inputs();
    const int i = threadIdx.x, n = args.rows;
    const bool live = i < n;
    int token = 0, slot = -1, position = 0, prompt_len = 0, lacks = 0, drafted = 0, right = 0;
    int2 cut = make_int2(0, 0);
    if (live) {
        // Row, first result, drafts and number of this row in its piece; place among who guessed, position of the state, and how often it is stored.
        const int4 behind = args.behind[2 * i], state = args.behind[2 * i + 1];
        token = args.planned[i], slot = args.planned[n + i], position = args.planned[2 * n + i], prompt_len = args.planned[3 * n + i];
        cut = ((const int2 *)(args.planned + 4 * n))[i], lacks = args.planned[6 * n + i], drafted = args.planned[7 * n + i];
        if (behind.x >= 0) {
            right = accepted(args.results + behind.y, args.step_tokens + behind.x + 1, behind.z);
            position += right;
            if (behind.w == 0) {
                token = args.results[behind.y + right].token;
                const int pending = position - state.y, last = state.z - 1;
                lacks = pending | (position % state.z == last || pending >= last ? STORES : 0), drafted = right;
            } else {
                token = args.guessed[(behind.w - 1) * args.guess_rows + state.x].token;
                if (args.ids) token = args.ids[token];
            }
        }
    }
    __syncthreads();
    if (!live) return;
    args.to[i] = token, args.to[n + i] = slot, args.to[2 * n + i] = position, args.to[3 * n + i] = prompt_len;
    ((int2 *)(args.to + 4 * n))[i] = cut;
    args.to[6 * n + i] = lacks, args.to[7 * n + i] = drafted;
    args.ahead[i] = right;
}
