// h[p] = silu(gate * f) * (up * f) for each pair p of a row and one of its experts, and for each row with the shared expert, in int8
// form. gate, up: products of the row's activations; f: row_factor of its squares.
//
// Gate and up lie in one matrix of 2 * width rows: tiles of 8 rows of gate and the same 8 of up. Routed and shared experts have a layout
// and a width each. Rows of h are as long as the width rounded up to 128; only the true values are written. An expert below 0 says that
// the row is none: nothing is read or written for the pair.
//
// 4 tiles, 32 values of h, are done by a cluster of CLUSTER blocks, WK warps a tile; a routed expert has one column, the shared one all
// rows, up to 8. So an output depends on WK alone. Which experts are chosen is an input, and their weights cannot be read ahead; those
// of the shared one are. Bound: the bytes of the experts.
//
// The next kernel may start only once the kernels before this one have ended: down_sum builds on that.
//
// -D: COLS, WIDTH, SHARED_WIDTH (multiples of 32), USED, CODES, SCALES, LEVELS0..3, SHARED_CODES, SHARED_SCALES, SHARED_LEVELS0..3,
// WITH_GRID, NORM_BLOCKS, WK, CLUSTER, DEPTH,
// SHARED_DEPTH, REGISTERS.
#include "columns.cuh"

using Routed = Weights<CODES, SCALES, COLS, LEVELS0, LEVELS1, LEVELS2, LEVELS3>;
using Shared = Weights<SHARED_CODES, SHARED_SCALES, COLS, SHARED_LEVELS0, SHARED_LEVELS1, SHARED_LEVELS2, SHARED_LEVELS3>;
#define WARPS (4 * WK / CL)
#define THREADS (WARPS * WARP)
#define RESIDENT (65536 / REGISTERS / THREADS > 0 ? 65536 / REGISTERS / THREADS : 1)
#define GROUPS (WIDTH / 32)
#define SHARED_GROUPS (SHARED_WIDTH / 32)
#define STATIC_BYTES (48 * 1024 - 256 - (WITH_GRID ? GRID_WORDS * 4 : 0))

struct Call {
    const u8 *routed; // [experts]
    const u8 *shared;
    const i8 *codes;      // [rows, COLS]
    const float2 *meta;   // [rows, COLS / 32]
    const float *squares; // [rows, NORM_BLOCKS]
    const int *experts;   // [rows, USED]
    i8 *hidden;           // [rows, USED, ..]
    float2 *hidden_meta;
    i8 *shared_hidden; // [rows, ..]
    float2 *shared_meta;
    int rows;
    float eps;
};

template <class W, int NC, int VALUES, int LEAD> struct Group {
    static constexpr int SUMS = 4 * WK * NC * 16;
    static constexpr int COLUMNS_AT = (SUMS + NC + 3) / 4 * 16;
    static constexpr int PADDED = (VALUES + 127) / 128 * 128;
    using P = Part<W, NC, WK, WARPS, LEAD, STATIC_BYTES - COLUMNS_AT>;
    static constexpr int BYTES = COLUMNS_AT + P::C::BYTES;

    // `count` rows from `row` on with what `part` reads, to rows of h.
    static __device__ __forceinline__ void
    run(P &part, u8 *memory, const Call &call, int row, int count, int group, int number, i8 *h, float2 *h_meta, const u32 *grid) {
        int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
        float *sums = (float *)memory, *norms = sums + SUMS;
        const float *squares = call.squares + (u64)row * NORM_BLOCKS;
        Norms<NORM_BLOCKS, WARPS> norm;
        bool first = cluster_rank() == 0;
        if (first) norm.read(squares, count);
        float acc[(NC + 7) / 8][4] = {};
        const i8 *codes = call.codes + (u64)row * COLS;
        const float2 *meta = call.meta + (u64)row * (COLS / 32);
        part.multiply(acc, memory + COLUMNS_AT, codes, meta, count, number, grid, [&] {
            if (first) norm.put(norms, squares, count, call.eps, 1.0f);
        });
        cluster_started();
        put_sums<NC>(sums + number * NC * 16, acc);
        if (!all_stored()) return;
        for (int c = warp; c < count; c += WARPS) {
            const float *tile = sums + lane / 8 * WK * NC * 16;
            float gate = sum_of<NC, WK>(tile, c, lane % 8) * norms[c], up = sum_of<NC, WK>(tile, c, lane % 8 + 8) * norms[c];
            u64 at = (u64)c * (PADDED / 32) + group;
            quantize_block(silu(gate) * up, h + at * 32, h_meta + at);
        }
    }
};

template <int NC> __device__ __forceinline__ void run(const Call &call) {
    using R = Group<Routed, 1, WIDTH, DEPTH>;
    using S = Group<Shared, NC, SHARED_WIDTH, SHARED_DEPTH>;
    __shared__ __align__(16) u8 memory[R::BYTES > S::BYTES ? R::BYTES : S::BYTES];
    __shared__ u32 grid[WITH_GRID ? GRID_WORDS : 1];
    cluster_start();
    int number = cluster_rank() * WARPS + threadIdx.x / WARP, cluster = blockIdx.x / CL;
    if (cluster < SHARED_GROUPS) {
        typename S::P part;
        part.start(call.shared + (u64)(cluster * 4 + number / WK) * Shared::TILE_BYTES, number);
        fetch_grid(grid);
        wait_for_inputs();
        let_next_start();
        S::run(part, memory, call, 0, call.rows, cluster, number, call.shared_hidden, call.shared_meta, grid);
        return;
    }
#if USED > 0
    int pair = (cluster - SHARED_GROUPS) / GROUPS, group = (cluster - SHARED_GROUPS) % GROUPS;
    fetch_grid(grid);
    wait_for_inputs();
    let_next_start();
    int expert = call.experts[pair];
    if (expert < 0) {
        // Whoever started a barrier has to end it.
        cluster_started();
        return;
    }
    typename R::P part;
    part.start(call.routed + (u64)(expert * (WIDTH / 8) + group * 4 + number / WK) * Routed::TILE_BYTES, number);
    constexpr int PADDED = R::PADDED;
    R::run(part, memory, call, pair / USED, 1, group, number, call.hidden + (u64)pair * PADDED, call.hidden_meta + (u64)pair * (PADDED / 32), grid);
#endif
}

extern "C" __global__ void IN_CLUSTERS __launch_bounds__(THREADS, RESIDENT) gate_up_1(const Call call) { run<1>(call); }
extern "C" __global__ void IN_CLUSTERS __launch_bounds__(THREADS, RESIDENT) gate_up_8(const Call call) { run<8>(call); }
