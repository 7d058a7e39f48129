// Which experts a row goes to, with what weight; and the same by expert, for products that take rows together.
//
//   score[row][e] = factor(row) * sum over k of (x * w)[k] * weights[e][k]      x: [rows, COLS] f32, weights: [E, COLS] f32
//   experts[row]: the USED largest, ties to the lower id     gates[row]: softmax over those, then sigmoid(score of the shared gate)
//   groups: {expert, first, count, 0} for each expert; in_rows, out_rows: its rows and pairs (row * USED + k), in order of pairs
//
// Everything is f32 or as good. factor(row) is common.cuh's row_factor. slots[row] < 0: no row, experts -1 and gates 0. A row with a
// cut keeps the first of its experts, as many as reference::ExpertCut says; the others are -1 with gates 0, and in no group.
// Two ways to the sums over k, each with one order for every row, whatever stands beside it:
//
// few: a block holds the weights of two columns (experts, or the shared gate) in registers, read before its wait, and goes over the
//   rows. A thread adds its k in order, then the lanes, then the warps. The last blocks wait for all scores of some rows and choose; the
//   last of those may group: one launch.
//   Bound: the weights, 4 * COLS * (E + 1) bytes; each block reads every row of x.
// tiled: 64 rows by 64 experts on tensor cores, operands split into two tf32 (a product of the two small parts is left out), 32 k
//   at a time into an accumulator of their own. k comes in up to 16 segments, by a block each if there are few rows, and their sums
//   are added in order, by choose or by the one block. choose: a warp a row; its last block may group.
//
// count, place: grouping of more pairs than one block should take. A chunk of pairs a block; the last block of count adds up.
//
// -D: COLS (a multiple of 32), E (at most 512), USED.
#include "common/int8_rows.cuh"
#include "router/choose.cuh"
#include "router/score.cuh"
#include "arguments.cuh"

#define THREADS 256
#define WARPS (THREADS / WARP)
// The shared gate is column E of the scores.
#define STRIDE ((E + 1 + 7) / 8 * 8)
#define BLOCKS (COLS / 32)
#define EACH_LANE ((E + WARP - 1) / WARP)
#define CHUNK 2048

// Whether this block is the last of `blocks` to come here. What the others wrote before is then visible to all its threads, past
// L1. One thread fences for its block: the barrier before it orders the others' writes ahead.
__device__ __forceinline__ bool last_to_finish(int *counter, int blocks) {
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {
        int before;
        asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
        last = before == blocks - 1;
        if (last) *counter = 0;
    }
    __syncthreads();
    return last;
}

// Read ahead of the scores where there is time to hide it.
__device__ __forceinline__ Asked read_ahead(const Arguments &args, int row) {
    Asked row_asked = asked(args.slots, args.cuts, row);
    row_asked.factor = row_factor<BLOCKS>(args.squares + (u64)row * BLOCKS, args.eps);
    return row_asked;
}

// Sums of the segments begin .. begin + N, added in order; their loads are under way together.
template <int N> __device__ __forceinline__ void add_segments(const Arguments &args, int row, int begin, float (&value)[EACH_LANE]) {
    int lane = threadIdx.x % WARP;
    float part[N][EACH_LANE];
#pragma unroll
    for (int s = 0; s < N; s++) {
        const float *scores = args.scores + ((u64)(begin + s) * args.rows + row) * STRIDE;
#pragma unroll
        for (int i = 0; i < EACH_LANE; i++) part[s][i] = i * WARP + lane < E ? __ldcg(scores + i * WARP + lane) : 0.0f;
    }
#pragma unroll
    for (int s = 0; s < N; s++)
#pragma unroll
        for (int i = 0; i < EACH_LANE; i++) value[i] += part[s][i];
}

// By one warp.
__device__ __forceinline__ void select_row(const Arguments &args, int row, Asked asked, const float (&value)[EACH_LANE], float gate) {
    int lane = threadIdx.x % WARP;
    Choice<E, USED> choice(asked, value, gate);
    if (lane < USED) {
        args.experts[(u64)row * USED + lane] = choice.expert;
        args.gates[(u64)row * (USED + 1) + lane] = choice.weight;
    }
    if (lane != 0) return;
    args.gates[(u64)row * (USED + 1) + USED] = choice.shared;
    if (asked.limits > 0) atomicAdd(args.tally, choice.left);
}

// ---- by expert ----

struct Ranks {
    int next[WARPS][E]; // pairs of each warp's part, then where its next one goes
    int sums[WARPS];
};

// Pairs of a lane, for up to CHUNK_MAX of a block: warp i has the i-th part of ROUNDS * 32, 32 at a time in order.
#define CHUNK_MAX 2560
#define ROUNDS (CHUNK_MAX / THREADS)
struct Pairs {
    int first, rounds;
    int expert[ROUNDS];
    u32 same[ROUNDS]; // the lanes with the same expert
};

__device__ __forceinline__ void load_pairs(Pairs &pairs, const int *experts, int begin, int end) {
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    pairs.rounds = (end - begin + THREADS - 1) / THREADS;
    pairs.first = begin + warp * pairs.rounds * WARP + lane;
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
        int p = pairs.first + i * WARP;
        pairs.expert[i] = i < pairs.rounds && p < end ? __ldcg(experts + p) : -1;
    }
#pragma unroll
    for (int i = 0; i < ROUNDS; i++)
        if (i < pairs.rounds) pairs.same[i] = __match_any_sync(~0u, pairs.expert[i]);
}

// Counts by warp and expert.
__device__ __forceinline__ void count_pairs(Ranks &ranks, const Pairs &pairs) {
    for (int i = threadIdx.x; i < WARPS * E; i += THREADS) (&ranks.next[0][0])[i] = 0;
    __syncthreads();
    int *mine = ranks.next[threadIdx.x / WARP], lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
        if (i >= pairs.rounds) break;
        bool leads = (pairs.same[i] & ((1u << lane) - 1)) == 0;
        if (leads && pairs.expert[i] >= 0) mine[pairs.expert[i]] += __popc(pairs.same[i]);
        __syncwarp();
    }
    __syncthreads();
}

// With `ranks.next` the places of each warp's next pairs.
__device__ __forceinline__ void place_pairs(Ranks &ranks, const Arguments &args, const Pairs &pairs) {
    int *mine = ranks.next[threadIdx.x / WARP], lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
        if (i >= pairs.rounds) break;
        int e = pairs.expert[i], p = pairs.first + i * WARP, before = __popc(pairs.same[i] & ((1u << lane) - 1));
        int at = e >= 0 ? mine[e] + before : 0;
        __syncwarp();
        if (e >= 0) {
            if (before == 0) mine[e] += __popc(pairs.same[i]);
            args.in_rows[at] = p / USED;
            args.out_rows[at] = p;
        }
        __syncwarp();
    }
}

// Turns the counts of experts tid, tid + THREADS, ... into where each begins; all threads.
#define EXPERTS_A_THREAD ((E + THREADS - 1) / THREADS)
__device__ __forceinline__ void begins(Ranks &ranks, const int (&count)[EXPERTS_A_THREAD], int (&first)[EXPERTS_A_THREAD]) {
    int lane = threadIdx.x % WARP, base = 0;
#pragma unroll
    for (int i = 0; i < EXPERTS_A_THREAD; i++) {
        int upto = count[i];
#pragma unroll
        for (int step = 1; step < WARP; step *= 2) {
            int other = __shfl_up_sync(~0u, upto, step);
            if (lane >= step) upto += other;
        }
        if (lane == WARP - 1) ranks.sums[threadIdx.x / WARP] = upto;
        __syncthreads();
        int before = 0, all = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            if (w < threadIdx.x / WARP) before += ranks.sums[w];
            all += ranks.sums[w];
        }
        first[i] = base + before + upto - count[i];
        base += all;
        __syncthreads();
    }
}

// All pairs, CHUNK_MAX at most, by one block.
__device__ __forceinline__ void group_all(Ranks &ranks, const Arguments &args) {
    int count[EXPERTS_A_THREAD], first[EXPERTS_A_THREAD];
    Pairs pairs;
    load_pairs(pairs, args.experts, 0, args.rows * USED);
    count_pairs(ranks, pairs);
#pragma unroll
    for (int i = 0; i < EXPERTS_A_THREAD; i++) {
        int e = i * THREADS + threadIdx.x;
        count[i] = 0;
        for (int w = 0; w < WARPS && e < E; w++) {
            int n = ranks.next[w][e];
            ranks.next[w][e] = count[i];
            count[i] += n;
        }
    }
    begins(ranks, count, first);
#pragma unroll
    for (int i = 0; i < EXPERTS_A_THREAD; i++) {
        int e = i * THREADS + threadIdx.x;
        if (e >= E) continue;
        for (int w = 0; w < WARPS; w++) ranks.next[w][e] += first[i];
        args.groups[e] = make_int4(e, first[i], count[i], 0);
    }
    __syncthreads();
    place_pairs(ranks, args, pairs);
}

extern "C" __global__ void __launch_bounds__(THREADS) group(const Arguments args) {
    __shared__ Ranks ranks;
    let_next_start();
    wait_for_inputs();
    group_all(ranks, args);
}

// Chunk blockIdx.x: its counts to offsets; then, by the last block, offsets become places and groups are written.
extern "C" __global__ void __launch_bounds__(THREADS) count(const Arguments args) {
    __shared__ Ranks ranks;
    let_next_start();
    wait_for_inputs();
    int pairs = args.rows * USED, begin = blockIdx.x * CHUNK, end = begin + CHUNK < pairs ? begin + CHUNK : pairs;
    Pairs mine;
    load_pairs(mine, args.experts, begin, end);
    count_pairs(ranks, mine);
    for (int e = threadIdx.x; e < E; e += THREADS) {
        int n = 0;
        for (int w = 0; w < WARPS; w++) n += ranks.next[w][e];
        args.offsets[(u64)blockIdx.x * E + e] = n;
    }
    if (!last_to_finish(args.counters, gridDim.x)) return;
    int total[EXPERTS_A_THREAD], first[EXPERTS_A_THREAD], chunks = gridDim.x;
#pragma unroll
    for (int i = 0; i < EXPERTS_A_THREAD; i++) {
        int e = i * THREADS + threadIdx.x;
        total[i] = 0;
        if (e >= E) continue;
#pragma unroll 16
        for (int c = 0; c < chunks; c++) total[i] += __ldcg(args.offsets + (u64)c * E + e);
    }
    begins(ranks, total, first);
#pragma unroll
    for (int i = 0; i < EXPERTS_A_THREAD; i++) {
        int e = i * THREADS + threadIdx.x, at = first[i];
        if (e >= E) continue;
        args.groups[e] = make_int4(e, first[i], total[i], 0);
        for (int c = 0; c < chunks; c += 16) {
            int n[16];
#pragma unroll
            for (int j = 0; j < 16; j++) n[j] = c + j < chunks ? __ldcg(args.offsets + (u64)(c + j) * E + e) : 0;
#pragma unroll
            for (int j = 0; j < 16; j++) {
                if (c + j < chunks) args.offsets[(u64)(c + j) * E + e] = at;
                at += n[j];
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) place(const Arguments args) {
    __shared__ Ranks ranks;
    let_next_start();
    wait_for_inputs();
    int pairs = args.rows * USED, begin = blockIdx.x * CHUNK, end = begin + CHUNK < pairs ? begin + CHUNK : pairs;
    Pairs mine;
    load_pairs(mine, args.experts, begin, end);
    count_pairs(ranks, mine);
    for (int e = threadIdx.x; e < E; e += THREADS) {
        int at = args.offsets[(u64)blockIdx.x * E + e];
        for (int w = 0; w < WARPS; w++) {
            int n = ranks.next[w][e];
            ranks.next[w][e] = at;
            at += n;
        }
    }
    __syncthreads();
    place_pairs(ranks, args, mine);
}

// ---- few rows ----

#define COLUMNS 2

// Blocks that choose, at most: the last ones, which wait for the others. So few that a small device has room for others beside them.
#define CHOOSERS 16

// By the last blocks: waits for the scores of some rows each, and chooses.
__device__ __forceinline__ void choose_few(const Arguments &args, u32 tag) {
    __shared__ Ranks ranks;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int choosers = gridDim.x < CHOOSERS ? gridDim.x : CHOOSERS, chooser = gridDim.x - 1 - blockIdx.x;
    if (chooser >= choosers || chooser >= args.rows) return;
    // Not warp 0 first: it is the one that still stores scores.
    for (int row = chooser + choosers * ((warp + WARPS - 1) % WARPS); row < args.rows; row += choosers * WARPS) {
        Asked ahead = read_ahead(args, row);
        float value[EACH_LANE], gate;
        await_scores<E>(args.tagged + (u64)row * STRIDE, tag, value, gate);
        // Every block has read the count by now, or its scores were not here.
        if (row == 0 && lane == 0) args.counters[1] = (int)tag;
        select_row(args, row, ahead, value, gate);
    }
    if (!args.groups || !last_to_finish(args.counters, choosers < args.rows ? choosers : args.rows)) return;
    group_all(ranks, args);
}

// ROWS rows at a time.
template <int ROWS> __device__ __forceinline__ void few(const Arguments &args) {
    static_assert(WARPS == SCORE_PARTS, "a warp a part");
    __shared__ float parts[WARPS][ROWS * COLUMNS];
    let_next_start();
    int tid = threadIdx.x, warp = tid / WARP, lane = tid % WARP, column = blockIdx.x * COLUMNS;
    PartOfRow<COLS> weights[COLUMNS], norm;
    norm.read(args.norm, warp, true);
#pragma unroll
    for (int c = 0; c < COLUMNS; c++)
        weights[c].read(column + c < E ? args.weights + (u64)(column + c) * COLS : args.shared_gate, warp, column + c <= E);
    wait_for_inputs();
    u32 tag = __ldcg((const u32 *)args.counters + 1) + 1;
    for (int row = 0; row < args.rows; row += ROWS) {
        PartOfRow<COLS> x[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) x[r].read(args.x + (u64)(row + r) * COLS, warp, row + r < args.rows);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            x[r].multiply(norm);
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                float sum = x[r].score(weights[c]);
                if (lane == 0) parts[warp][r * COLUMNS + c] = sum;
            }
        }
        __syncthreads();
        int r = tid / COLUMNS, c = column + tid % COLUMNS;
        if (tid < ROWS * COLUMNS && row + r < args.rows && c <= E) {
            float all = 0;
#pragma unroll
            for (int i = 0; i < WARPS; i++) all += parts[i][tid];
            put_score(args.tagged + (u64)(row + r) * STRIDE + c, tag, all);
        }
        if (row + ROWS < args.rows) __syncthreads();
    }
    choose_few(args, tag);
}

extern "C" __global__ void __launch_bounds__(THREADS) few1(const Arguments args) { few<1>(args); }
// As many registers as leave room beside the next kernel, which waits on the same multiprocessor.
extern "C" __global__ void __launch_bounds__(THREADS, 4) few4(const Arguments args) { few<4>(args); }

// ---- many rows ----

#define TILE 64
#define STEP 32
#define STEPS (COLS / STEP)
#define SEGMENTS_MAX 16
#define STEPS_A_SEGMENT ((STEPS + SEGMENTS_MAX - 1) / SEGMENTS_MAX)
#define SEGMENTS ((STEPS + STEPS_A_SEGMENT - 1) / STEPS_A_SEGMENT)
#define STAGES 3
#define TILED_THREADS 128

// 16 bytes from device to shared memory, zeros instead if not `there`.
__device__ __forceinline__ void fetch16(void *to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(there ? 16 : 0) : "memory");
}

// Where vector v (four floats) of a row of a tile is: rows next to each other swap halves, so that a quarter of a warp, which reads
// four vectors of two rows, meets every bank once.
__device__ __forceinline__ int place_of(int row, int v) { return row * STEP + (v ^ (row & 1) << 2) * 4; }

// v = large + small, each rounded to tf32 (10 bits after the first).
__device__ __forceinline__ void split(float v, u32 &large, u32 &small) {
    large = (__float_as_uint(v) + 0x1000u) & 0xffffe000u;
    small = (__float_as_uint(v - __uint_as_float(large)) + 0x1000u) & 0xffffe000u;
}
// D[16,8] += A[16,8] B[8,8]. Lane (g, t): a0, a2 row g, a1, a3 row g + 8; a0, a1, b0 at k = t, a2, a3, b1 at k = t + 4.
__device__ __forceinline__ void mma_tf32(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ float component(float4 v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// Block (tile of experts; tile of rows and segment). ONE: all segments.
template <bool ONE> __device__ __forceinline__ void tiled(const Arguments &args) {
    __shared__ __align__(16) float tiles[STAGES][2][TILE * STEP]; // x and weights of a step
    let_next_start();
    int segment = ONE ? 0 : blockIdx.y % SEGMENTS, first_row = (ONE ? blockIdx.y : blockIdx.y / SEGMENTS) * TILE;
    int column = blockIdx.x * TILE;
    wait_for_inputs();
    int tid = threadIdx.x, warp = tid / WARP, lane = tid % WARP, g = lane / 4, t = lane % 4;
    int m0 = warp / 2 * 32, n0 = warp % 2 * 32;
    int step = segment * STEPS_A_SEGMENT, stop = ONE ? STEPS : step + STEPS_A_SEGMENT;
    if (stop > STEPS) stop = STEPS;

    auto fetch = [&](int s) {
        if (s < stop) {
#pragma unroll
            for (int i = 0; i < TILE * STEP / 4 / TILED_THREADS; i++) {
                int v = i * TILED_THREADS + tid, r = v / (STEP / 4), c = v % (STEP / 4);
                bool row = first_row + r < args.rows, expert = column + r < E;
                const float *from = args.x + (u64)(row ? first_row + r : 0) * COLS + s * STEP + c * 4;
                fetch16(&tiles[s % STAGES][0][place_of(r, c)], from, row);
                from = args.weights + (u64)(expert ? column + r : 0) * COLS + s * STEP + c * 4;
                fetch16(&tiles[s % STAGES][1][place_of(r, c)], from, expert);
            }
        }
        copies_end();
    };

    float total[2][4][4], sum[2][4][4];
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) total[m][n][i] = sum[m][n][i] = 0;

#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) fetch(step + s);
    for (; step < stop; step++) {
        copies_wait<STAGES - 2>();
        // This step's tiles are there, and all warps are past the ones of the step before, which are fetched over.
        __syncthreads();
        fetch(step + STAGES - 1);
        const float *xs = tiles[step % STAGES][0], *ws = tiles[step % STAGES][1];
        float part[2][4][4];
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) part[m][n][i] = 0;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            // The order of k within a step is free: lane t takes 4t .. 4t + 3 of sixteen, two for each of two instructions.
            int v = half * 4 + t;
            float4 norm = __ldg((const float4 *)(args.norm + step * STEP + v * 4));
            float4 b[4];
#pragma unroll
            for (int n = 0; n < 4; n++) b[n] = *(const float4 *)(ws + place_of(n0 + n * 8 + g, v));
            float4 a[2][2];
#pragma unroll
            for (int m = 0; m < 2; m++)
#pragma unroll
                for (int h = 0; h < 2; h++) a[m][h] = times(*(const float4 *)(xs + place_of(m0 + m * 16 + h * 8 + g, v)), norm);
#pragma unroll
            for (int turn = 0; turn < 2; turn++) {
                u32 al[2][4], as[2][4], bl[4][2], bs[4][2];
#pragma unroll
                for (int m = 0; m < 2; m++)
#pragma unroll
                    for (int i = 0; i < 4; i++) split(component(a[m][i % 2], turn * 2 + i / 2), al[m][i], as[m][i]);
#pragma unroll
                for (int n = 0; n < 4; n++)
#pragma unroll
                    for (int i = 0; i < 2; i++) split(component(b[n], turn * 2 + i), bl[n][i], bs[n][i]);
                // Small products first. One kind after another, so that no instruction waits for the one before it.
#pragma unroll
                for (int kind = 0; kind < 3; kind++)
#pragma unroll
                    for (int n = 0; n < 4; n++)
#pragma unroll
                        for (int m = 0; m < 2; m++) mma_tf32(part[m][n], kind == 0 ? as[m] : al[m], kind == 1 ? bs[n] : bl[n]);
            }
        }
        bool ends = ONE && (step + 1) % STEPS_A_SEGMENT == 0;
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    sum[m][n][i] += part[m][n][i];
                    if (ends) total[m][n][i] += sum[m][n][i], sum[m][n][i] = 0;
                }
    }
    float *scores = args.scores + (u64)segment * args.rows * STRIDE;
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int row = first_row + m0 + m * 16 + i / 2 * 8 + g, c = column + n0 + n * 8 + 2 * t + i % 2;
                // A last segment that is not whole is still in `sum`; adding its zero after a whole one changes nothing.
                float out = total[m][n][i] + sum[m][n][i];
                if (row < args.rows && c < E) scores[(u64)row * STRIDE + c] = out;
            }
}

extern "C" __global__ void __launch_bounds__(TILED_THREADS) tiled_segments(const Arguments args) { tiled<false>(args); }
extern "C" __global__ void __launch_bounds__(TILED_THREADS) tiled_whole(const Arguments args) { tiled<true>(args); }

// The shared gate's score of a row, by one warp: lane l takes vectors l, l + 32, ...
__device__ __forceinline__ float gate_score(const Arguments &args, int row) {
    const float *x = args.x + (u64)row * COLS;
    float sum = 0;
#pragma unroll 8
    for (int at = threadIdx.x % WARP * 4; at < COLS; at += WARP * 4) {
        float4 xw = times(*(const float4 *)(x + at), __ldg((const float4 *)(args.norm + at)));
        sum = dot(xw, __ldg((const float4 *)(args.shared_gate + at)), sum);
    }
    return warp_sum(sum);
}

extern "C" __global__ void __launch_bounds__(THREADS) choose(const Arguments args) {
    __shared__ Ranks ranks;
    let_next_start();
    wait_for_inputs();
    int row = blockIdx.x * WARPS + threadIdx.x / WARP;
    if (row < args.rows) {
        Asked ahead = read_ahead(args, row);
        float value[EACH_LANE] = {};
        if (args.segments == 1) {
            add_segments<1>(args, row, 0, value);
        } else {
#define AT_ONCE (EACH_LANE <= 8 ? 8 : 4)
#pragma unroll 1
            for (int s = 0; s + AT_ONCE <= SEGMENTS; s += AT_ONCE) add_segments<AT_ONCE>(args, row, s, value);
            if (SEGMENTS % AT_ONCE) add_segments<(SEGMENTS % AT_ONCE ? SEGMENTS % AT_ONCE : 1)>(args, row, SEGMENTS / AT_ONCE * AT_ONCE, value);
        }
        select_row(args, row, ahead, value, gate_score(args, row));
    }
    if (!args.groups || !last_to_finish(args.counters, gridDim.x)) return;
    group_all(ranks, args);
}
