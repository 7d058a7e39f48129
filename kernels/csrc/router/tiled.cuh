// Many rows: scores on tensor cores, by tiles of rows and experts.
#pragma once
#include "router/row_a_block.cuh"

#define STEP 32
#define STEPS (COLS / STEP)
#define STEPS_A_SEGMENT ((STEPS + SEGMENTS_MAX - 1) / SEGMENTS_MAX)
#define SEGMENTS ((STEPS + STEPS_A_SEGMENT - 1) / STEPS_A_SEGMENT)
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
__device__ __forceinline__ float component(float4 v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// A tile of rows and experts by four warps, two by two, each with MT tiles of 16 rows and NT of 8 experts. STAGES steps are on their way.
template <int TR, int TC> struct Tile {
    static constexpr int MT = TR / 32, NT = TC / 16;
    // As many as a segment has, and as 48 KB hold.
    static constexpr int FIT = (48 << 10) / ((TR + TC) * STEP * 4), STAGES = FIT < STEPS_A_SEGMENT ? FIT : STEPS_A_SEGMENT < 2 ? 2 : STEPS_A_SEGMENT;
    // Sums of a warp.
    struct Sums {
        float at[MT][NT][4];
    };

    // x and weights of steps, on their way through shared memory.
    float x[STAGES][TR * STEP], w[STAGES][TC * STEP];

    // Asks for N rows of step `s`, those from `first` on as far as there are `count`.
    template <int N> __device__ __forceinline__ static void fetch(float *to, const float *rows, int first, int count, int s) {
#pragma unroll
        for (int i = 0; i < N * STEP / 4 / TILED_THREADS; i++) {
            int v = i * TILED_THREADS + threadIdx.x, r = v / (STEP / 4), c = v % (STEP / 4);
            bool there = first + r < count;
            fetch16(to + place_of(r, c), rows + (u64)(there ? first + r : 0) * COLS + s * STEP + c * 4, there);
        }
    }
    __device__ __forceinline__ void fetch_weights(const Arguments &args, int first, int s, int place) {
        fetch<TC>(w[place], args.weights, first, E, s);
    }
    __device__ __forceinline__ void fetch_rows(const Arguments &args, int first, int s, int place) { fetch<TR>(x[place], args.x, first, args.rows, s); }
};

template <class SUMS> __device__ __forceinline__ void clear(SUMS &sums) {
#pragma unroll
    for (int i = 0; i < (int)(sizeof(SUMS) / 4); i++) (&sums.at[0][0][0])[i] = 0;
}

// Two of a lane's four k of a half of N steps: small products first. One kind after another, and steps side by side, so that no instruction
// waits for the one before it.
template <class T, int N>
__device__ __forceinline__ void multiply_turn(typename T::Sums (&part)[N], const float4 (&a)[N][T::MT][2], const float4 (&b)[N][T::NT], int turn) {
    constexpr int MT = T::MT, NT = T::NT;
    u32 al[N][MT][4], as[N][MT][4], bl[N][NT][2], bs[N][NT][2];
#pragma unroll
    for (int s = 0; s < N; s++) {
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) split(component(a[s][m][i % 2], turn * 2 + i / 2), al[s][m][i], as[s][m][i]);
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) split(component(b[s][n], turn * 2 + i), bl[s][n][i], bs[s][n][i]);
    }
#pragma unroll
    for (int kind = 0; kind < 3; kind++)
#pragma unroll
        for (int s = 0; s < N; s++)
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int m = 0; m < MT; m++) mma_tf32(part[s].at[m][n], kind == 0 ? as[s][m] : al[s][m], kind == 1 ? bs[s][n] : bl[s][n]);
}

// N steps, from place `place` on, of a warp's rows (from m0 on) and experts (from n0 on) of the tiles, each into sums of its own.
template <class T, int N>
__device__ __forceinline__ void multiply_steps(const Thread &me, typename T::Sums (&part)[N], const float *norms, const T &tile, int place,
                                               int m0, int n0) {
#pragma unroll
    for (int s = 0; s < N; s++) clear(part[s]);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        // The order of k within a step is free: lane t takes 4t .. 4t + 3 of sixteen, two for each of two instructions.
        int v = half * 4 + me.t;
        float4 b[N][T::NT], a[N][T::MT][2];
#pragma unroll
        for (int s = 0; s < N; s++) {
            float4 norm = __ldg((const float4 *)(norms + s * STEP + v * 4));
#pragma unroll
            for (int n = 0; n < T::NT; n++) b[s][n] = *(const float4 *)(tile.w[place + s] + place_of(n0 + n * 8 + me.g, v));
#pragma unroll
            for (int m = 0; m < T::MT; m++)
#pragma unroll
                for (int h = 0; h < 2; h++) a[s][m][h] = times(*(const float4 *)(tile.x[place + s] + place_of(m0 + m * 16 + h * 8 + me.g, v)), norm);
        }
#pragma unroll
        for (int turn = 0; turn < 2; turn++) multiply_turn<T, N>(part, a, b, turn);
    }
}

template <class SUMS> __device__ __forceinline__ void add(SUMS &sums, const SUMS &more) {
#pragma unroll
    for (int i = 0; i < (int)(sizeof(SUMS) / 4); i++) (&sums.at[0][0][0])[i] += (&more.at[0][0][0])[i];
}

// Asks for lines of the norm's weights, which are read where they are multiplied with: each a trip to memory otherwise, one after another.
__device__ __forceinline__ void bring_norm(const float *norm, int steps) {
    if (threadIdx.x < steps) ahead4(norm + threadIdx.x * STEP);
}

// All of a segment's steps, which are under way together: one barrier, and steps side by side.
template <class T>
__device__ __forceinline__ void multiply_segment(const Thread &me, typename T::Sums &sum, const Arguments &args, const T &tile, int first,
                                                 int m0, int n0) {
    constexpr int TOGETHER = T::STAGES % 2 == 0 ? 2 : 1;
    copies_wait<0>();
    __syncthreads();
#pragma unroll
    for (int s = 0; s < T::STAGES; s += TOGETHER) {
        if (STEPS % STEPS_A_SEGMENT != 0 && first + s >= STEPS) break;
        typename T::Sums part[TOGETHER];
        multiply_steps<T, TOGETHER>(me, part, args.norm + (first + s) * STEP, tile, s, m0, n0);
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) add(sum, part[i]);
    }
}

// Block (tile of experts; tile of rows and segment). ONE: all segments. Which tile a row is in changes no bit of its sums.
template <int TR, int TC, bool ONE> __device__ __forceinline__ void tiled(const Arguments &args) {
    using T = Tile<TR, TC>;
    constexpr int STAGES = T::STAGES;
    __shared__ __align__(16) T tile;
    let_next_start();
    int segment = ONE ? 0 : blockIdx.y % SEGMENTS, first_row = (ONE ? blockIdx.y : blockIdx.y / SEGMENTS) * TR;
    int column = blockIdx.x * TC, first = segment * STEPS_A_SEGMENT, stop = ONE ? STEPS : min(first + STEPS_A_SEGMENT, STEPS);
#pragma unroll
    for (int s = 0; s < STAGES; s++)
        if (first + s < stop) tile.fetch_weights(args, column, first + s, s);
    bring_norm(args.norm + first * STEP, stop - first);
    wait_for_inputs();
    empty_lists(args);
    const Thread me = this_thread();
    int m0 = me.warp / 2 * (TR / 2), n0 = me.warp % 2 * (TC / 2);
    typename T::Sums total, sum;
    clear(total), clear(sum);
#pragma unroll
    for (int s = 0; s < STAGES; s++) {
        if (first + s < stop) tile.fetch_rows(args, first_row, first + s, s);
        copies_end();
    }
    // Of pairs, a segment that is not whole has whole ones too.
    constexpr bool TOGETHER = !ONE && T::MT * T::NT <= 2 && STAGES == STEPS_A_SEGMENT && (STEPS % STEPS_A_SEGMENT) % 2 == 0;
    if constexpr (TOGETHER) multiply_segment(me, sum, args, tile, first, m0, n0);
    for (int step = TOGETHER ? stop : first, place = 0; step < stop; step++) {
        if (step == first) copies_wait<STAGES - 1>();
        else copies_wait<STAGES - 2>();
        // This step's tiles are there, and all warps are past the ones of the step before, which are fetched over.
        __syncthreads();
        if (step > first) {
            int next = step - 1 + STAGES, to = place == 0 ? STAGES - 1 : place - 1;
            if (next < stop) tile.fetch_weights(args, column, next, to), tile.fetch_rows(args, first_row, next, to);
            copies_end();
        }
        typename T::Sums part[1];
        multiply_steps<T, 1>(me, part, args.norm + step * STEP, tile, place, m0, n0);
        place = place + 1 == STAGES ? 0 : place + 1;
        add(sum, part[0]);
        if (ONE && (step + 1) % STEPS_A_SEGMENT == 0) add(total, sum), clear(sum);
    }
    float *scores = args.scores + (u64)segment * args.rows * STRIDE;
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int n = 0; n < T::NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int row = first_row + m0 + m * 16 + i / 2 * 8 + me.g, c = column + n0 + n * 8 + 2 * me.t + i % 2;
                // A last segment that is not whole is still in `sum`; adding its zero after a whole one changes nothing.
                float out = total.at[m][n][i] + sum.at[m][n][i];
                if (row < args.rows && c < E) scores[(u64)row * STRIDE + c] = out;
            }
}

extern "C" __global__ void __launch_bounds__(TILED_THREADS) tiled_small(const Arguments args) { tiled<32, 32, false>(args); }
extern "C" __global__ void __launch_bounds__(TILED_THREADS) tiled_narrow(const Arguments args) { tiled<64, 32, false>(args); }
extern "C" __global__ void __launch_bounds__(TILED_THREADS) tiled_segments(const Arguments args) { tiled<64, 64, false>(args); }
// Of so many rows that the device has not room for all blocks at once: four of a multiprocessor, for some spilt registers.
extern "C" __global__ void __launch_bounds__(TILED_THREADS, 4) tiled_crowded(const Arguments args) { tiled<64, 64, false>(args); }
extern "C" __global__ void __launch_bounds__(TILED_THREADS) tiled_whole(const Arguments args) { tiled<64, 64, true>(args); }
