// x[row] += sum_k gates[row][k] * (w_k h[row, k]), the experts in order, the shared one last; then the int8 form of x * next and the sums
// of squares of x.
//
// w: [ROWS, COLS] an expert, [ROWS, SHARED_COLS] the shared one, a layout each; h: int8 rows, of gate_up. ROWS is a multiple of 32. A row
// whose first expert is below 0 is none: nothing is read or written for it.
//
// 32 outputs of a row, two tiles, are done by a cluster of CLUSTER blocks: a warp a tile and expert, which takes the units in order. Then
// one warp adds the experts up: total = fma(gate, sum, total), x + total. Bound: the bytes of the experts, each row its own.
//
// `early`: the kernel before was gate_up, so that what the kernels before that one wrote (experts, gates, x) is there already before we
// wait. It is read past L1, which may be older than this kernel.
//
// -D: ROWS, COLS, SHARED_COLS, USED, CODES, SCALES, LEVELS0..3, SHARED_CODES, SHARED_SCALES, SHARED_LEVELS0..3, WITH_GRID, CLUSTER, DEPTH,
// SHARED_DEPTH, REGISTERS.
#include "columns.cuh"

using Routed = Weights<CODES, SCALES, COLS, LEVELS0, LEVELS1, LEVELS2, LEVELS3>;
using Shared = Weights<SHARED_CODES, SHARED_SCALES, SHARED_COLS, SHARED_LEVELS0, SHARED_LEVELS1, SHARED_LEVELS2, SHARED_LEVELS3>;
#define ALL (USED + 1)
#define WARPS (2 * ALL / CL)
#define THREADS (WARPS * WARP)
#define RESIDENT (65536 / REGISTERS / THREADS > 0 ? 65536 / REGISTERS / THREADS : 1)
#define NEXT_COLS ((ROWS + 127) / 128 * 128)

struct Call {
    const u8 *routed; // [experts]
    const u8 *shared;
    const i8 *hidden; // [rows, USED, COLS]
    const float2 *hidden_meta;
    const i8 *shared_hidden; // [rows, SHARED_COLS]
    const float2 *shared_meta;
    const int *experts; // [rows, USED]
    const float *gates; // [rows, ALL]
    float *x;           // [rows, ROWS]
    const float *next;  // [ROWS]
    i8 *next_codes;     // [rows, NEXT_COLS]
    float2 *next_meta;
    float *next_squares; // [rows, ROWS / 32]
    int early;
};

// The sum of one expert's tile, for one column.
template <class W, int LEAD>
__device__ __forceinline__ void
run_one(float *sums, u8 *memory, const u8 *tile, const i8 *codes, const float2 *meta, bool early, const u32 *grid) {
    constexpr int AHEAD = LEAD < W::UNITS ? LEAD : W::UNITS;
    Share<W, AHEAD> share;
    share.start(tile, 0, W::UNITS);
    if (early) wait_for_inputs();
    Columns<1, W::UNITS>::stage(memory, codes, meta, W::UNITS * 128, 1, threadIdx.x % WARP, WARP, [](int slot) { return slot; });
    __syncwarp();
    float acc[1][4] = {};
    share.template multiply<W::UNITS, 1, W::UNITS>(acc, memory, 0, 0, grid);
    cluster_started();
    put_sums<1>(sums, acc);
}

extern "C" __global__ void IN_CLUSTERS __launch_bounds__(THREADS, RESIDENT) down_sum(const Call call) {
    constexpr int BYTES = Columns<1, Routed::UNITS>::BYTES, SHARED_BYTES = Columns<1, Shared::UNITS>::BYTES;
    constexpr int EACH = BYTES > SHARED_BYTES ? BYTES : SHARED_BYTES;
    __shared__ __align__(16) u8 memory[WARPS][EACH];
    __shared__ float sums[2 * ALL][16];
    __shared__ u32 grid[WITH_GRID ? GRID_WORDS : 1];
    let_next_start();
    cluster_start();
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, rank = cluster_rank(), number = rank * WARPS + warp;
    int group = blockIdx.x / CL, tile = group * 2 + number / ALL, k = number % ALL;
    u64 row = blockIdx.y;
    bool early = call.early;
    fetch_grid(grid);
    bool last = rank == 0 && warp == 0;
    float next = last ? __ldg(call.next + group * 32 + lane) : 0;
    if (!early) wait_for_inputs();

    int first = __ldcg(call.experts + row * USED), expert = k < USED ? __ldcg(call.experts + row * USED + k) : 0;
    float *x = call.x + row * ROWS + group * 32 + lane, old = 0, gate = 0;
    if (last) {
        old = __ldcg(x);
        if (lane < ALL) gate = __ldcg(call.gates + row * ALL + lane);
    }
    if (WITH_GRID) __syncthreads();
    if (first < 0) {
        // Whoever started a barrier has to end it, and what comes after us counts on our having waited.
        wait_for_inputs();
        cluster_started();
        return;
    }
    if (k < USED) {
        const u8 *w = call.routed + (u64)(max(expert, 0) * (ROWS / 16) + tile) * Routed::TILE_BYTES;
        u64 pair = row * USED + k;
        run_one<Routed, DEPTH>(sums[number], memory[warp], w, call.hidden + pair * COLS, call.hidden_meta + pair * (COLS / 32), early, grid);
    } else {
        const u8 *w = call.shared + (u64)tile * Shared::TILE_BYTES;
        run_one<Shared, SHARED_DEPTH>(
            sums[number], memory[warp], w, call.shared_hidden + row * SHARED_COLS, call.shared_meta + row * (SHARED_COLS / 32), early, grid
        );
    }
    if (!all_stored() || !last) return;
    float total = 0;
#pragma unroll
    for (int i = 0; i < ALL; i++) {
        float sum = sums[lane / 16 * ALL + i][lane % 16];
        total = __fmaf_rn(__shfl_sync(0xffffffffu, gate, i), sum, total);
    }
    float value = old + total;
    *x = value;
    float squares = warp_sum(value * value);
    if (lane == 0) call.next_squares[row * (ROWS / 32) + group] = squares;
    u64 at = row * (NEXT_COLS / 32) + group;
    quantize_block(value * next, call.next_codes + at * 32, call.next_meta + at);
}
