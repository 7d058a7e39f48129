// Scores of prompts' rows on the matrix instructions of warpgroups (sm_90a): tiles of 64 rows by up to 256 experts.
//
// Each operand is a sum of two halves, times a power of two: x norm 2^a = large + small, where |x norm 2^a| < 2^16 by the row's factor and
// the norm's largest value, and w 2^10 likewise, so that a weight of 64 or more becomes infinite. Three products of four are taken; what
// is left out is 2^-22 of each. 32 k come into an accumulator of their own, because the instruction's sum is cut off, not rounded; those
// are added in order within a segment, then the segments in order: by the block, or by `choose` where a block has one. The shared gate's
// sum, in f32, comes likewise from whoever splits the rows, so that `choose` reads none of them.
//
// A step is 32 k. A row of it is 128 bytes of shared memory, large halves, then small ones, as the instruction reads them. `split_weights`
// makes them of a layer's weights, once for all tiles; a block's rows are split by its threads, while the step before is multiplied.
//
// Bounds, 8,192 rows of 2,048 values and 256 experts: 26 G operations, 26 us at 990 T/s; each tile reads all weights, 2 MB, from the cache,
// 50 us in all at 5.5 TB/s.
#pragma once
#include "common/mbarrier.cuh"
#include "router/tiled.cuh"
#include "wide/wgmma.cuh"

#define PROMPT_ROWS 64
#define PROMPT_EXPERTS (E <= 64 ? 64 : E <= 128 ? 128 : 256)
// Of a warpgroup.
#define PROMPT_COLUMNS (E <= 64 ? 64 : 128)
#define PROMPT_THREADS (PROMPT_EXPERTS / PROMPT_COLUMNS * 128)
// Steps of rows that are on their way, and stages.
#define PROMPT_AHEAD 4
#define PROMPT_STAGES 4
#define WEIGHT_EXPONENT 10
// Of x norm 2^a: |x| factor is at most the square root of COLS, 2^6.5.
#define ROW_EXPONENT 9
static_assert(COLS <= 8192, "rows so long have larger values");

// D[64, N] (+)= A[64, 16] B[16, N] in f16, both in shared memory; without `more` D is overwritten. D lies as wide/wgmma.cuh says.
template <int N> __device__ __forceinline__ void multiply_halves(float (&d)[N / 2], u64 a, u64 b, bool more);

#define SUMS_8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define SUMS_32(i) SUMS_8(i), SUMS_8(i + 8), SUMS_8(i + 16), SUMS_8(i + 24)
template <> __device__ __forceinline__ void multiply_halves<64>(float (&d)[32], u64 a, u64 b, bool more) {
    asm volatile(
        "{.reg .pred p; setp.ne.s32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
        "}, %32, %33, p, 1, 1, 0, 0;}"
        : SUMS_32(0)
        : "l"(a), "l"(b), "r"((int)more));
}
template <> __device__ __forceinline__ void multiply_halves<128>(float (&d)[64], u64 a, u64 b, bool more) {
    asm volatile(
        "{.reg .pred p; setp.ne.s32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
        "}, %64, %65, p, 1, 1, 0, 0;}"
        : SUMS_32(0), SUMS_32(32)
        : "l"(a), "l"(b), "r"((int)more));
}

// 2^e.
__device__ __forceinline__ float power_of_two(int e) { return __uint_as_float((u32)(e + 127) << 23); }
__device__ __forceinline__ int exponent_of(float v) { return (int)(__float_as_uint(v) >> 23 & 255) - 127; }

// Four values as large and small halves.
struct Split {
    uint2 large, small;

    __device__ __forceinline__ explicit Split(float4 v) {
        large = make_uint2(pack_f16(v.x, v.y), pack_f16(v.z, v.w));
        small.x = pack_f16(v.x - low_half(large.x), v.y - high_half(large.x));
        small.y = pack_f16(v.z - low_half(large.y), v.w - high_half(large.y));
    }
    // Where the large ones of a row's vector are, in bytes from the tile's beginning; the small ones at that xor 64. Pieces of 16 bytes
    // change places by the row's number.
    __device__ __forceinline__ static u32 place(int row, int vector) { return row * 128 + ((vector / 2 ^ row & 7) * 16) + vector % 2 * 8; }
};
__device__ __forceinline__ float4 times(float4 v, float f) { return make_float4(v.x * f, v.y * f, v.z * f, v.w * f); }

// args.halves: of a tile of experts, then of a step, the tile's rows. A thread a vector, all of a row's step beside one another.
extern "C" __global__ void __launch_bounds__(THREADS) split_weights(const Arguments args) {
    let_next_start();
    const int at = blockIdx.x * THREADS + threadIdx.x, expert = at / (COLS / 4), vector = at % (COLS / 4);
    if (expert >= (E + PROMPT_EXPERTS - 1) / PROMPT_EXPERTS * PROMPT_EXPERTS) return;
    const float4 v = expert < E ? __ldg((const float4 *)(args.weights + (u64)expert * COLS) + vector) : make_float4(0, 0, 0, 0);
    const Split split(times(v, (float)(1 << WEIGHT_EXPONENT)));
    u8 *tile = (u8 *)args.halves + (u64)(u32)(expert / PROMPT_EXPERTS * STEPS + vector / 8) * (PROMPT_EXPERTS * 128);
    const u32 place = Split::place(expert % PROMPT_EXPERTS, vector % 8);
    // The layer before may still be read.
    wait_for_inputs();
    *(uint2 *)(tile + place) = split.large, *(uint2 *)(tile + (place ^ 64)) = split.small;
}

// Shared memory: stages of a step's rows and weights, then rows on their way, each thread's beside the others'.
struct PromptTile {
    static constexpr int WEIGHTS = PROMPT_ROWS * 128, STAGE = WEIGHTS + PROMPT_EXPERTS * 128, RAW = PROMPT_STAGES * STAGE;
};

// Rows on their way. Each thread brings and splits the same vectors: threads go along a row's eight, then over the rows, those with each
// other's place of four first, so that a half warp writes to every bank once.
struct RawRows {
    static constexpr int N = PROMPT_ROWS * 8 / PROMPT_THREADS;
    const Arguments &args;
    float4 *raw;
    const float *down;
    int first;
    float4 norm, weights; // of the step that is put next, and of the shared gate
    float gate[N], total[N]; // the shared gate's sums: of a segment by this thread, of those before by all of a row

    __device__ __forceinline__ static int row(int i) {
        const int j = (i * PROMPT_THREADS + threadIdx.x) / 8;
        return (j & ~7) | (j & 1) << 2 | (j >> 1 & 3);
    }
    __device__ __forceinline__ float4 *place(int step, int i) const { return raw + (step % PROMPT_AHEAD * N + i) * PROMPT_THREADS + threadIdx.x; }
    // Asks for a step of them, where there is one; zeros behind the last row.
    __device__ __forceinline__ void ask(int step, int stop) const {
        if (step < stop) {
#pragma unroll
            for (int i = 0; i < N; i++) {
                const int r = first + row(i);
                const bool there = r < args.rows;
                fetch16(place(step, i), args.x + (u64)(u32)(there ? r : 0) * COLS + step * STEP + threadIdx.x % 8 * 4, there);
            }
        }
        copies_end();
    }
    __device__ __forceinline__ void read_weights(int step) {
        const int at = min(step, STEPS - 1) * (STEP / 4) + threadIdx.x % 8;
        norm = __ldg((const float4 *)args.norm + at), weights = __ldg((const float4 *)args.shared_gate + at);
    }
    // The step that was asked for first, to its stage; none if not before `stop`.
    __device__ __forceinline__ void put(u8 *stage, int step, int stop) {
        copies_wait<PROMPT_AHEAD - 1>();
        const float4 by = norm, gates = weights;
        read_weights(step + 1);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float4 v = times(*place(step, i), by);
            const float more = dot(v, gates, gate[i]);
            gate[i] = step < stop ? more : gate[i];
            const Split split(times(v, down[row(i)]));
            const u32 at = Split::place(row(i), threadIdx.x % 8);
            *(uint2 *)(stage + at) = split.large, *(uint2 *)(stage + (at ^ 64)) = split.small;
        }
        shared_for_matrices();
    }
    // Behind the last step of a segment: what the eight threads of a row have, neighbours first.
    __device__ __forceinline__ void add_gates() {
#pragma unroll
        for (int i = 0; i < N; i++) {
            float all = gate[i];
#pragma unroll
            for (int lanes = 1; lanes < 8; lanes *= 2) all += __shfl_xor_sync(~0u, all, lanes);
            total[i] += all, gate[i] = 0;
        }
    }
};

// The exponent of the norm's largest value, and one.
__device__ __forceinline__ int norm_exponent(const Arguments &args) {
    __shared__ float largest[PROMPT_THREADS / WARP];
    float top = 0;
#pragma unroll 4
    for (int i = threadIdx.x; i < COLS / 4; i += PROMPT_THREADS) {
        const float4 v = __ldg((const float4 *)args.norm + i);
        top = fmaxf(fmaxf(top, fmaxf(fabsf(v.x), fabsf(v.y))), fmaxf(fabsf(v.z), fabsf(v.w)));
    }
    top = warp_max(top);
    if (threadIdx.x % WARP == 0) largest[threadIdx.x / WARP] = top;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < PROMPT_THREADS / WARP; i++) top = fmaxf(top, largest[i]);
    // A norm of zeros need not be raised.
    return max(exponent_of(top) + 1, -30);
}

// 2^a of each row, and what its sums are multiplied by. Ends with a barrier.
__device__ __forceinline__ void put_scales(const Arguments &args, int first_row, int norm_exponent, float *down, float *up) {
#pragma unroll 4
    for (int r = threadIdx.x / WARP; r < PROMPT_ROWS; r += PROMPT_THREADS / WARP) {
        const int row = min(first_row + r, args.rows - 1);
        const float factor = row_factor<BLOCKS>(args.squares + (u64)row * BLOCKS, args.eps);
        const int a = max(-100, min(100, exponent_of(factor) - norm_exponent + ROW_EXPONENT));
        if (threadIdx.x % WARP == 0) down[r] = power_of_two(a), up[r] = power_of_two(-a - WEIGHT_EXPONENT);
    }
    __syncthreads();
}

// Block (tile of experts; tile of rows and segment). ONE: all segments.
template <bool ONE> struct PromptScores {
    static constexpr int SUMS = PROMPT_COLUMNS / 2, STAGES = PROMPT_STAGES;
    const Arguments &args;
    u8 *shared;
    u32 barriers;
    int first_row, first, count; // the block's rows and steps
    RawRows raw;
    float part[SUMS], sum[SUMS], total[SUMS]; // of a step, a segment, the segments before

    __device__ __forceinline__ u8 *stage(int i) const { return shared + i % STAGES * PromptTile::STAGE; }
    __device__ __forceinline__ u32 full(int i) const { return barriers + i % STAGES * 8; }
    // The i-th step's weights, by one thread.
    __device__ __forceinline__ void feed(int i) const {
        constexpr u32 BYTES = PROMPT_EXPERTS * 128;
        barrier_arrive_for(full(i), BYTES);
        copy_bulk(shared_address(stage(i)) + PromptTile::WEIGHTS, (const u8 *)args.halves + (u64)(u32)(blockIdx.x * STEPS + first + i) * BYTES, BYTES,
                  full(i));
    }
    // A warpgroup's products of a stage, not waited for: small ones first.
    __device__ __forceinline__ void multiply(int i) {
        const u32 at = shared_address(stage(i));
        const u64 x = descriptor(at), w = descriptor(at + PromptTile::WEIGHTS + threadIdx.x / 128 * (PROMPT_COLUMNS * 128));
        // In 16 bytes: from k to k, and from large to small ones.
        constexpr int K = 2, SMALL = 4;
        matrices_begin();
#pragma unroll
        for (int kind = 0; kind < 3; kind++)
#pragma unroll
            for (int k = 0; k < 2; k++)
                multiply_halves<PROMPT_COLUMNS>(part, x + k * K + (kind == 0 ? SMALL : 0), w + k * K + (kind == 1 ? SMALL : 0), kind + k > 0);
        matrices_end();
    }
    // What the i-th step made.
    __device__ __forceinline__ void add(int i) {
#pragma unroll
        for (int s = 0; s < SUMS; s++) sum[s] += part[s];
        if (!ONE || (i + 1) % STEPS_A_SEGMENT != 0) return;
#pragma unroll
        for (int s = 0; s < SUMS; s++) total[s] += sum[s], sum[s] = 0;
    }
    // Multiplies the i-th step, and splits the next meanwhile; behind the last what is put is not read. Nothing in between is left out, nor
    // does a step's product outlast it: the compiler else has each instruction wait for the one before.
    __device__ __forceinline__ void step(int i) {
        if (i + 1 == count || (i + 1) % STEPS_A_SEGMENT == 0) raw.add_gates();
        // Ends when the step's weights are there, which thread 0 asked for STAGES steps before or ahead of the first. By all threads, for every step;
        // the stage's next weights are asked for behind the barrier at the end of the step.
        barrier_wait<ROUTER_WEIGHTS>(full(i), i / STAGES & 1);
        multiply(i);
        raw.put(stage(i + 1), first + i + 1, first + count);
        raw.ask(first + i + 1 + PROMPT_AHEAD, first + count);
        matrices_wait<0>();
        add(i);
        // The next step's rows are there, and this one's stage is free.
        __syncthreads();
        if (threadIdx.x == 0 && i + STAGES < count) feed(i + STAGES);
    }
    __device__ __forceinline__ void run() {
#pragma unroll
        for (int s = 0; s < SUMS; s++) total[s] = 0, sum[s] = 0, part[s] = 0;
        raw.put(stage(0), first, first + count);
        raw.ask(first + PROMPT_AHEAD, first + count);
        __syncthreads();
#pragma unroll 1
        for (int i = 0; i < count; i++) step(i);
    }
    __device__ __forceinline__ void store(float *scores, const float *up) const {
        const int warp = threadIdx.x / WARP, g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
#pragma unroll
        for (int s = 0; s < SUMS; s++) {
            const int r = warp % 4 * 16 + g + s % 4 / 2 * 8, row = first_row + r;
            const int c = blockIdx.x * PROMPT_EXPERTS + warp / 4 * PROMPT_COLUMNS + s / 4 * 8 + 2 * t + s % 2;
            // A last segment that is not whole is still in `sum`; adding its zero after a whole one changes nothing.
            const float out = total[s] + sum[s];
            if (row < args.rows && c < E) scores[(u64)row * STRIDE + c] = out * up[r];
        }
        if (blockIdx.x > 0 || threadIdx.x % 8 > 0) return;
#pragma unroll
        for (int i = 0; i < raw.N; i++)
            if (first_row + raw.row(i) < args.rows) scores[(u64)(first_row + raw.row(i)) * STRIDE + E] = raw.total[i];
    }
};

template <bool ONE> __device__ __forceinline__ void score_prompts(const Arguments &args) {
    extern __shared__ __align__(1024) u8 prompt_tile[];
    __shared__ float down[PROMPT_ROWS], up[PROMPT_ROWS];
    __shared__ __align__(8) u64 barriers[PROMPT_STAGES];
    let_next_start();
    const int segment = ONE ? 0 : blockIdx.y % SEGMENTS, first_row = (ONE ? blockIdx.y : blockIdx.y / SEGMENTS) * PROMPT_ROWS;
    const int first = segment * STEPS_A_SEGMENT, count = (ONE ? STEPS : min(first + STEPS_A_SEGMENT, STEPS)) - first;
    RawRows raw = {args, (float4 *)(prompt_tile + PromptTile::RAW), down, first_row};
    raw.read_weights(first);
#pragma unroll
    for (int i = 0; i < raw.N; i++) raw.gate[i] = 0, raw.total[i] = 0;
    PromptScores<ONE> scores = {args, prompt_tile, shared_address(barriers), first_row, first, count, raw};
    if (threadIdx.x == 0) {
        for (int i = 0; i < scores.STAGES; i++) barrier_make(scores.full(i), 1);
        barriers_made();
    }
    const int exponent = norm_exponent(args);
    wait_for_inputs();
    empty_lists(args);
    if (threadIdx.x == 0)
        for (int i = 0; i < min(count, scores.STAGES); i++) scores.feed(i);
    for (int i = 0; i < PROMPT_AHEAD; i++) raw.ask(first + i, first + count);
    put_scales(args, first_row, exponent, down, up);
    scores.run();
    scores.store(args.scores + (u64)segment * args.rows * STRIDE, up);
}

extern "C" __global__ void __launch_bounds__(PROMPT_THREADS) prompts_segments(const Arguments args) { score_prompts<false>(args); }
extern "C" __global__ void __launch_bounds__(PROMPT_THREADS) prompts_whole(const Arguments args) { score_prompts<true>(args); }
