// Many rows: scores on tensor cores, by tiles of rows and experts.
#pragma once
#include "router/row_a_block.cuh"

#define TILE 64
#define STEP 32
#define STEPS (COLS / STEP)
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

// Sums of a warp's 32 rows and 32 experts.
using Accumulators = float[2][4][4];

__device__ __forceinline__ void clear(Accumulators &sums) {
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) sums[m][n][i] = 0;
}

// x and weights of steps, on their way through shared memory.
struct Tiles {
    float step[STAGES][2][TILE * STEP];

    // Asks for step `s` of the rows and columns from these on, if it is before `stop`.
    __device__ __forceinline__ void fetch(const Arguments &args, int first_row, int column, int s, int stop) {
        int tid = threadIdx.x;
        if (s < stop) {
#pragma unroll
            for (int i = 0; i < TILE * STEP / 4 / TILED_THREADS; i++) {
                int v = i * TILED_THREADS + tid, r = v / (STEP / 4), c = v % (STEP / 4);
                bool row = first_row + r < args.rows, expert = column + r < E;
                const float *from = args.x + (u64)(row ? first_row + r : 0) * COLS + s * STEP + c * 4;
                fetch16(&step[s % STAGES][0][place_of(r, c)], from, row);
                from = args.weights + (u64)(expert ? column + r : 0) * COLS + s * STEP + c * 4;
                fetch16(&step[s % STAGES][1][place_of(r, c)], from, expert);
            }
        }
        copies_end();
    }
};

// Two of a lane's four k of a half step: small products first. One kind after another, so that no instruction waits for the one before it.
__device__ __forceinline__ void multiply_turn(Accumulators &part, const float4 (&a)[2][2], const float4 (&b)[4], int turn) {
    u32 al[2][4], as[2][4], bl[4][2], bs[4][2];
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) split(component(a[m][i % 2], turn * 2 + i / 2), al[m][i], as[m][i]);
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) split(component(b[n], turn * 2 + i), bl[n][i], bs[n][i]);
#pragma unroll
    for (int kind = 0; kind < 3; kind++)
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int m = 0; m < 2; m++) mma_tf32(part[m][n], kind == 0 ? as[m] : al[m], kind == 1 ? bs[n] : bl[n]);
}

// One step of a warp's rows (from m0 on) and experts (from n0 on) of the tiles.
__device__ __forceinline__ void multiply_step(const Thread &me, Accumulators &part, const float *norms, const float *xs, const float *ws, int m0, int n0) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        // The order of k within a step is free: lane t takes 4t .. 4t + 3 of sixteen, two for each of two instructions.
        int v = half * 4 + me.t;
        float4 norm = __ldg((const float4 *)(norms + v * 4));
        float4 b[4];
#pragma unroll
        for (int n = 0; n < 4; n++) b[n] = *(const float4 *)(ws + place_of(n0 + n * 8 + me.g, v));
        float4 a[2][2];
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) a[m][h] = times(*(const float4 *)(xs + place_of(m0 + m * 16 + h * 8 + me.g, v)), norm);
#pragma unroll
        for (int turn = 0; turn < 2; turn++) multiply_turn(part, a, b, turn);
    }
}

// Block (tile of experts; tile of rows and segment). ONE: all segments.
template <bool ONE> __device__ __forceinline__ void tiled(const Arguments &args) {
    __shared__ __align__(16) Tiles tiles;
    let_next_start();
    int segment = ONE ? 0 : blockIdx.y % SEGMENTS, first_row = (ONE ? blockIdx.y : blockIdx.y / SEGMENTS) * TILE;
    int column = blockIdx.x * TILE;
    wait_for_inputs();
    const Thread me = this_thread();
    int m0 = me.warp / 2 * 32, n0 = me.warp % 2 * 32;
    int step = segment * STEPS_A_SEGMENT, stop = ONE ? STEPS : step + STEPS_A_SEGMENT;
    if (stop > STEPS) stop = STEPS;
    Accumulators total, sum;
    clear(total), clear(sum);
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) tiles.fetch(args, first_row, column, step + s, stop);
    for (; step < stop; step++) {
        copies_wait<STAGES - 2>();
        // This step's tiles are there, and all warps are past the ones of the step before, which are fetched over.
        __syncthreads();
        tiles.fetch(args, first_row, column, step + STAGES - 1, stop);
        Accumulators part;
        clear(part);
        multiply_step(me, part, args.norm + step * STEP, tiles.step[step % STAGES][0], tiles.step[step % STAGES][1], m0, n0);
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
                int row = first_row + m0 + m * 16 + i / 2 * 8 + me.g, c = column + n0 + n * 8 + 2 * me.t + i % 2;
                // A last segment that is not whole is still in `sum`; adding its zero after a whole one changes nothing.
                float out = total[m][n][i] + sum[m][n][i];
                if (row < args.rows && c < E) scores[(u64)row * STRIDE + c] = out;
            }
}

extern "C" __global__ void __launch_bounds__(TILED_THREADS) tiled_segments(const Arguments args) { tiled<false>(args); }
// Of so many rows that the device has not room for all blocks at once: four of a multiprocessor, for some spilt registers.
extern "C" __global__ void __launch_bounds__(TILED_THREADS, 4) tiled_crowded(const Arguments args) { tiled<false>(args); }
extern "C" __global__ void __launch_bounds__(TILED_THREADS) tiled_whole(const Arguments args) { tiled<true>(args); }
