// Int8 rows as f16 for wide/warpgroup.cu: half_rows.cuh. Beside a row stands what its products are multiplied by: its 2^e, times row_factor of
// its NORM_BLOCKS `squares` where those are not 0. Four warps a row, or one.
//
// -D COLS, NORM_BLOCKS.
#include "arguments.cuh"
#include "rows/half_rows.cuh"

#define THREADS 128
#define BLOCKS (COLS / 32)
// Threads of a row: a short one's are a warp.
#define TEAM (COLS >= 1024 ? THREADS : WARP)

// Largest scale of the row's blocks. What is no number is passed over: its codes become none either.
__device__ __forceinline__ float largest_scale(const float2 *meta) {
    __shared__ float of_warp[THREADS / WARP];
    float top = 0;
    for (int i = threadIdx.x % TEAM; i < BLOCKS; i += TEAM) top = fmaxf(top, meta[i].x);
    top = warp_max(top);
    if constexpr (TEAM > WARP) {
        if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = top;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < THREADS / WARP; i++) top = fmaxf(top, of_warp[i]);
    }
    return top;
}

// Eight values of a row, in the order of weights/halves.cuh: of each quad of a half block the first and third, or the second and fourth.
struct Eight {
    u32 quads[4];
    float scale;

    __device__ __forceinline__ void read(const Arguments &args, u64 row, int c) {
        const u32 *codes = (const u32 *)(args.codes + row * COLS) + c / 4 * 8 + c / 2 % 2;
        scale = args.meta[row * BLOCKS + c / 4].x;
#pragma unroll
        for (int t = 0; t < 4; t++) quads[t] = codes[2 * t];
    }
    __device__ __forceinline__ void write(const Arguments &args, u64 row, int c, float down) const {
        u32 out[4];
#pragma unroll
        for (int t = 0; t < 4; t++) out[t] = half_pair(quads[t], c % 2, scale * down);
        *(uint4 *)(args.halves + half_place(c, row, args.rows)) = make_uint4(out[0], out[1], out[2], out[3]);
    }
};

// What a thread has of a row; all of it comes beside the scales that decide on e, where that is little.
#define EACH ((COLS / 8 + TEAM - 1) / TEAM)
#define AHEAD (EACH <= 4 ? EACH : 0)

extern "C" __global__ void __launch_bounds__(THREADS) halves(const Arguments args) {
    let_next_start();
    wait_for_inputs();
    const int of_row = threadIdx.x % TEAM;
    const u64 row = (u64)blockIdx.x * (THREADS / TEAM) + threadIdx.x / TEAM;
    if (row >= args.rows) return;
    Eight ahead[AHEAD + 1];
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        if (of_row + i * TEAM < COLS / 8) ahead[i].read(args, row, of_row + i * TEAM);
    float norm = 1.0f;
    if constexpr (NORM_BLOCKS > 0)
        if (of_row < WARP) norm = row_factor<NORM_BLOCKS>(args.squares + row * NORM_BLOCKS, args.eps);
    const HalfScale of_all = half_scale(largest_scale(args.meta + row * BLOCKS));
    if (of_row == 0) args.scales[row] = __fmul_rn(of_all.up, norm);
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        if (of_row + i * TEAM < COLS / 8) ahead[i].write(args, row, of_row + i * TEAM, of_all.down);
#pragma unroll 2
    for (int c = of_row; AHEAD == 0 && c < COLS / 8; c += TEAM) {
        Eight v;
        v.read(args, row, c), v.write(args, row, c, of_all.down);
    }
}
