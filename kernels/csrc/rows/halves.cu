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

extern "C" __global__ void __launch_bounds__(THREADS) halves(const Arguments args) {
    let_next_start();
    wait_for_inputs();
    const u64 row = (u64)blockIdx.x * (THREADS / TEAM) + threadIdx.x / TEAM;
    if (row >= args.rows) return;
    const float2 *meta = args.meta + row * BLOCKS;
    const u32 *codes = (const u32 *)(args.codes + row * COLS);
    const HalfScale of_row = half_scale(largest_scale(meta));
    if (threadIdx.x % TEAM < WARP) {
        float scale = of_row.up;
        if constexpr (NORM_BLOCKS > 0) scale *= row_factor<NORM_BLOCKS>(args.squares + row * NORM_BLOCKS, args.eps);
        if (threadIdx.x % WARP == 0) args.scales[row] = scale;
    }
    // Eight values, in the order of wide/halves.cuh: of each quad of a half block the first and third, or the second and fourth.
    #pragma unroll 2
    for (int c = threadIdx.x % TEAM; c < COLS / 8; c += TEAM) {
        int block = c / 4, half = c / 2 % 2, odd = c % 2;
        float scale = meta[block].x * of_row.down;
        u32 out[4];
#pragma unroll
        for (int t = 0; t < 4; t++) out[t] = half_pair(codes[block * 8 + 2 * t + half], odd, scale);
        *(uint4 *)(args.halves + half_place(c, row, args.rows)) = make_uint4(out[0], out[1], out[2], out[3]);
    }
}
