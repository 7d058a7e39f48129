// y[c][r] = sum_k w[r][k] x[c][k] of listed columns, as warpgroup.cu and with its bits, for many columns an expert.
//
// A block goes through TURNS blocks of 256 rows with its up to C = 128 columns, brings the next one's stages while one is multiplied, and
// stores sums from registers: what stands before a block's first instruction and after its last is there once for all of those rows. Where
// KEEP, all inputs of its columns, as of experts' down, stay in shared memory and are read once; then each warpgroup has weights and turns of
// its own, so that one may store while others multiply. Else columns come with the weights, again for each turn.
//
// Bounds: as of warpgroup.cu; with KEEP 2 COLS bytes a column once for 256 TURNS rows.
// -D: ROWS (a multiple of 256 TURNS), COLS, the layout's (weights.cuh), LISTED, TURNS, KEEP, STAGES, EPILOGUE (PLAIN, or GATED with
// HALF_ROWS), NORM_BLOCKS, PLACED.
#define GROUPS 4
#define TW 1
#define C8 16
#include "wide/warpgroups.cuh"
// Fewer columns are done by as many instructions for as few as this.
#define STEP (C / 4)
#include "wide/columns.cuh"
#include "wide/listed.cuh"
#include "wide/expand.cuh"

static_assert(ROWS % (R * TURNS) == 0 && (EPILOGUE == PLAIN || EPILOGUE == GATED && HALF_ROWS), "whole blocks of rows, each stored by its lanes");
// Stages that are on their way while one is in use: where columns lie in them, one more is read by instructions that may not be over.
#define AHEAD (STAGES - (KEEP ? 1 : 2))
#define STEPS (TURNS * W::UNITS)
static_assert(AHEAD > 0, "one on its way");

// An 8 x 8 matrix of f16, as `mma` fragments hold it, with rows and columns exchanged.
__device__ __forceinline__ u32 transposed(u32 two) {
    u32 out;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(two));
    return out;
}

// Of the first of a lane's four values, those of its quad's lanes, first lane first; and so on.
__device__ __forceinline__ void exchange_in_quad(u32 (&v)[4]) {
#pragma unroll
    for (int bit = 1; bit < 4; bit *= 2)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (j & bit) continue;
            const bool high = threadIdx.x & bit;
            const u32 got = __shfl_xor_sync(~0u, high ? v[j] : v[j | bit], bit);
            if (high) v[j] = got;
            else v[j | bit] = got;
        }
}

// Threads that go through turns together, and the first of their tiles.
#define TOGETHER (KEEP ? 4 * WARP : THREADS)
__device__ __forceinline__ int first_tile() { return KEEP ? (int)threadIdx.x / TOGETHER * (4 * TW) : 0; }
// They come here equally often: once for each step. No clock bounds it.
__device__ __forceinline__ void together() {
    if (KEEP) asm volatile("bar.sync %0, %1;" ::"r"(1 + threadIdx.x / TOGETHER), "n"(TOGETHER) : "memory");
    else __syncthreads();
}

// What all of a block's warps know.
struct Turns {
    const Arguments &args;
    const Lists &lists;
    const u8 *matrix;
    u32 shared;
    int tile0, left;
    const u32 *grid;
    WeightCopies weights;
    HalfCopies halves;

    __device__ __forceinline__ u32 stage(int step) const { return shared + STAGES_AT + step % STAGES * STAGE_BYTES; }
    // Where the columns of a step lie.
    __device__ __forceinline__ u32 columns(int step) const { return KEEP ? shared + step % W::UNITS * (C * 256) : stage(step); }
    __device__ __forceinline__ void bring_columns(int step) const {
        halves.copy(args, columns(step), step % W::UNITS, (left + STEP - 1) / STEP * STEP);
    }
    // Asks for what step `step` needs, where there is one.
    __device__ __forceinline__ void ask(int step) {
        if (step < STEPS) {
            if (step % W::UNITS == 0) weights.set(matrix, tile0 + step / W::UNITS * BT + first_tile());
            weights.copy(stage(step) + WEIGHTS_IN + first_tile() * UNIT_BYTES, step % W::UNITS);
            if (!KEEP || step < W::UNITS) bring_columns(step);
        }
        copies_end();
    }
    __device__ __forceinline__ void begin() {
        halves.set(lists.in_row);
#pragma unroll
        for (int step = 0; step < AHEAD; step++) ask(step);
    }
    // Factors of a lane's rows g and g + 8 of a tile.
    __device__ __forceinline__ float2 factors(int tile) const {
        const u8 *at = matrix + (u64)(u32)tile * W::TILE_BYTES;
        const int g = threadIdx.x % WARP / 4;
        return make_float2(W::factor_of(at, g) * WEIGHT_FACTOR, W::factor_of(at, g + 8) * WEIGHT_FACTOR);
    }
    // The sums times them, where rows have some.
    template <int N> __device__ __forceinline__ void multiply_factors(float (&acc)[N / 2], int tile) const {
        if constexpr (W::HAS_FACTORS) {
            const float2 f = factors(tile);
#pragma unroll
            for (int i = 0; i < N / 2; i++) acc[i] *= i % 4 < 2 ? f.x : f.y;
        }
    }
    // Of gate and up, tile `tile`: eight rows of gate, whose sums are a lane's first two of four, and eight of up.
    template <int N> __device__ __forceinline__ void store_gated(const float (&acc)[N / 2], int tile) const {
        const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
        for (int i = 0; i < N / 8; i++) {
            const float f0 = lists.factor[i * 8 + 2 * t], f1 = lists.factor[i * 8 + 2 * t + 1];
            const float *v = acc + i * 4;
            const u32 two = transposed(hidden_pair(gated(v[0] * f0, v[2] * f0), gated(v[1] * f1, v[3] * f1)));
            put_hidden_octet(args.out_halves, (u32)lists.out_row[i * 8 + g], args.out_half_rows, tile * 8, two, i * 8 + g < left);
        }
    }
    // A warp's 16 rows from `row` on of the first N columns. f16 by two octets of columns at a time: lanes 0 and 1 of a quad get both halves
    // of the first one's column g, the others those of the second's.
    template <int N> __device__ __forceinline__ void store_halves(const float (&acc)[N / 2], int row) const {
        const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
        for (int i = 0; i < N / 8; i += 2) {
            u32 four[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int c = (i + j / 2) * 8 + 2 * t;
                const float *v = acc + (i + j / 2) * 4 + j % 2 * 2;
                four[j] = transposed(pack_f16(v[0] * lists.factor[c], v[1] * lists.factor[c + 1]));
            }
            exchange_in_quad(four);
            const int c = (i + t / 2) * 8 + g;
            u16 *to = (u16 *)args.out + (u64)(u32)lists.out_row[c] * args.out_stride + row + t % 2 * 8;
            if (c < left) put_eight(to, four);
        }
    }
    __device__ __forceinline__ void put_eight(u16 *to, const u32 (&four)[4]) const {
        if (args.aligned) {
            *(uint4 *)to = make_uint4(four[0], four[1], four[2], four[3]);
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++) to[2 * j] = (u16)four[j], to[2 * j + 1] = (u16)(four[j] >> 16);
        }
    }
    template <int N> __device__ __forceinline__ void store_floats(const float (&acc)[N / 2], int row) const {
        const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            const int c = i / 4 * 8 + 2 * t + i % 2;
            if (c < left) args.out[(u64)(u32)lists.out_row[c] * args.out_stride + row + g + i % 4 / 2 * 8] = acc[i] * lists.factor[c];
        }
    }
    template <int N> __device__ __forceinline__ void store(const float (&acc)[N / 2], int tile) const {
        if constexpr (EPILOGUE == GATED) store_gated<N>(acc, tile);
        else if (args.half_out) store_halves<N>(acc, tile * 16);
        else store_floats<N>(acc, tile * 16);
    }
    template <int N> __device__ __forceinline__ void run() {
        Fragment fragments[FRAGMENTS];
#pragma unroll 1
        for (int turn = 0; turn < TURNS; turn++) {
            float acc[1][N / 2];
#pragma unroll
            for (int i = 0; i < N / 2; i++) acc[0][i] = 0;
#pragma unroll 1
            for (int unit = 0; unit < W::UNITS; unit++) {
                const int step = turn * W::UNITS + unit;
                copies_wait<AHEAD - 1>();
                shared_for_matrices();
                // The step's stage is there, and all have read the weights of the one before.
                if (KEEP && step < W::UNITS) __syncthreads();
                else together();
                ask(step + AHEAD);
                multiply_unit<N>(acc, fragments, columns(step), stage(step) + WEIGHTS_IN, [] {}, grid);
            }
            matrices_wait<0>();
            multiply_factors<N>(acc[0], tile0 + turn * BT + tile_of(0));
            store<N>(acc[0], tile0 + turn * BT + tile_of(0));
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) turns(const Arguments args) {
    extern __shared__ __align__(1024) u8 shared[];
    u32 *grid = (u32 *)(shared + GRID_AT);
    Lists lists(shared);
    fetch_grid(grid);
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const Thread me = {(int)threadIdx.x, warp, lane, lane / 4, lane % 4};
    const Work work = find_work(args, lists.in_row);
    let_next_start();
    for (int base = work.base; base < work.end; base += C) {
        const int left = min(work.end - base, C);
        Turns turns = {args, lists, matrix_of(args, work.matrix), shared_address(shared), (int)blockIdx.x * BT * TURNS, left, grid};
        if (args.early) wait_for_inputs();
        lists.put_rows(args, work, base);
        __syncthreads();
        turns.begin();
        lists.put_factors(me, args);
        __syncthreads();
        with_columns<C>(left, [&](auto columns) { turns.run<decltype(columns)::COUNT>(); });
        // The next columns overwrite what was just read.
        copies_wait<0>();
        __syncthreads();
    }
    ends_behind_inputs(args);
}
