// What becomes of a block's sums: plain rows, the residual stream, gate and up, squares of what is above zero, or int8 rows.
#pragma once
#include "wide/stages.cuh"
#if HALVES
#include "weights/halves.cuh"
#endif
#if HALF_ROWS
#include "rows/half_rows.cuh"
#endif
#if LORA
#include "common/lora.cuh"
#endif

#if SPLIT > 1
// By all threads of a cluster, whose blocks have the same columns and so come here equally often. The hardware starts the blocks of a cluster
// together. No clock bounds it.
__device__ __forceinline__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Four sums at `address` of this block's shared memory over COUNT blocks of the cluster, neighbours first.
template <u32 COUNT> __device__ __forceinline__ float4 cluster_sum(u32 address, u32 rank = 0) {
    if constexpr (COUNT == 1) {
        float4 v;
        asm volatile("{.reg .u32 a; mapa.shared::cluster.u32 a, %4, %5; ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [a];}"
                     : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                     : "r"(address), "r"(rank)
                     : "memory");
        return v;
    } else {
        constexpr u32 HALF = COUNT / 2;
        float4 a = cluster_sum<HALF>(address, rank), b = cluster_sum<COUNT - HALF>(address, rank + HALF);
        return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
    }
}
#else
__device__ __forceinline__ void cluster_barrier() {}
#endif

// Factors of four rows from row `row` of a matrix on, a multiple of 4, as sums of its weights are multiplied with them.
__device__ __forceinline__ float4 factors_of(const u8 *matrix, int row) {
    float4 f = W::factors_of(matrix + (u64)(u32)min(row / 16, TILES - 1) * W::TILE_BYTES, row % 16);
#if HALVES
    f.x *= WEIGHT_FACTOR, f.y *= WEIGHT_FACTOR, f.z *= WEIGHT_FACTOR, f.w *= WEIGHT_FACTOR;
#endif
    return f;
}

// Sums of a column of the block, times its factor.
struct ColumnSums {
    const float *sums;
    float factor;
    const u8 *matrix;
    int first; // row of the matrix that is the block's first

    // Four from row `r` of the block on, without the column's factor.
    __device__ __forceinline__ float4 plain(int r) const {
#if SPLIT > 1
        float4 v = cluster_sum<SPLIT>(shared_address(sums + r));
#else
        float4 v = *(const float4 *)(sums + r);
#endif
        if constexpr (W::HAS_FACTORS) {
            const float4 f = factors_of(matrix, first + r);
            v = make_float4(v.x * f.x, v.y * f.y, v.z * f.z, v.w * f.w);
        }
        return v;
    }
    __device__ __forceinline__ float4 at(int r) const {
        float4 v = plain(r);
        return make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
    }
};

// Where a lane's outputs go: row `row` of out, if there is such a column; the block's first tile, and rows that the block before has done.
struct Target {
    u64 row;
    bool store;
    int tile0, skip, t;
};

// Four outputs, of which the matrix has `left`.
__device__ __forceinline__ void put_floats(float *out, float4 v, int left, bool aligned) {
    if (ROWS % 4 == 0 && aligned) {
        if (left > 0) *(float4 *)out = v;
        return;
    }
    if (left > 0) out[0] = v.x;
    if (left > 1) out[1] = v.y;
    if (left > 2) out[2] = v.z;
    if (left > 3) out[3] = v.w;
}
__device__ __forceinline__ void put_halves(u16 *out, float4 v, int left, bool aligned) {
    const uint2 two = make_uint2(pack_f16(v.x, v.y), pack_f16(v.z, v.w));
    if (ROWS % 4 == 0 && aligned) {
        if (left > 0) *(uint2 *)out = two;
        return;
    }
    if (left > 0) out[0] = (u16)two.x;
    if (left > 1) out[1] = (u16)(two.x >> 16);
    if (left > 2) out[2] = (u16)two.y;
    if (left > 3) out[3] = (u16)(two.y >> 16);
}

// What the adapter of a column adds.
struct Adapted {
#if LORA
    LoraRow of_row;
    bool store;

    // Rows that are not stored may lie behind the last one.
    __device__ __forceinline__ Adapted(const Arguments &args, const Target &to) : of_row(args.lora, to.store ? to.row : 0), store(to.store) {}
    // Four outputs from `row` of the matrix on.
    __device__ __forceinline__ float4 add(int row, float4 v) const { return store ? of_row.add(row, ROWS - row, v) : v; }
#else
    __device__ __forceinline__ Adapted(const Arguments &, const Target &) {}
    __device__ __forceinline__ float4 add(int, float4 v) const { return v; }
#endif
};

// Each finishes piece `piece` of a column, of 32 outputs: a lane those 4t.. and 16 + 4t.., which is how an int8 block is made (quantize_quads).
template <int KIND> struct Epilogue;

template <> struct Epilogue<PLAIN> {
    static __device__ __forceinline__ void finish(const Arguments &args, const ColumnSums &sums, const Target &to, int piece) {
        const Adapted adapted(args, to);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int in_block = piece * 32 + half * 16 + 4 * to.t, r = to.tile0 * 16 + in_block;
            if (in_block >= R || in_block < to.skip) continue;
            float4 v = sums.at(in_block);
            const u64 at = to.row * args.out_stride + r;
            if (!to.store) continue;
            v = adapted.add(r, v);
            if (args.half_out) put_halves((u16 *)args.out + at, v, ROWS - r, args.aligned);
            else put_floats(args.out + at, v, ROWS - r, args.aligned);
        }
    }
};

template <> struct Epilogue<RESIDUAL> {
    static __device__ __forceinline__ void finish(const Arguments &args, const ColumnSums &sums, const Target &to, int piece) {
        int r = to.tile0 * 16 + piece * 32;
        if (piece * 32 < to.skip || r >= ROWS) return;
        const Adapted adapted(args, to);
        float4 v[2], w[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int at = half * 16 + 4 * to.t;
            float4 sum = sums.plain(piece * 32 + at), *x = (float4 *)(args.out + to.row * args.out_stride + r + at);
            float4 old = to.store ? *x : make_float4(0, 0, 0, 0), norm = __ldg((const float4 *)(args.weight + r + at));
            float f = sums.factor;
            v[half] = make_float4(__fmaf_rn(sum.x, f, old.x), __fmaf_rn(sum.y, f, old.y), __fmaf_rn(sum.z, f, old.z), __fmaf_rn(sum.w, f, old.w));
            v[half] = adapted.add(r + at, v[half]);
            w[half] = make_float4(v[half].x * norm.x, v[half].y * norm.y, v[half].z * norm.z, v[half].w * norm.w);
            if (to.store) *x = v[half];
        }
        u64 block = (to.row * args.code_stride + r) / 32;
        quantize_quads(w[0], w[1], args.out_codes + block * (32 * PLANES), args.out_meta + block * PLANES, to.store);
        float squares = quads_squares(v[0], v[1]);
        if (to.store && to.t == 0) args.out_squares[to.row * (ROWS / 32) + r / 32] = squares;
    }
};

// Products in f16 equal no others to the bit.
__device__ __forceinline__ float opened(float gate) {
#if HALVES
    return silu_fast(gate);
#else
    return silu(gate);
#endif
}

// Of an expert's values.
__device__ __forceinline__ float gated(float gate, float up) { return opened(gate) * up; }

// What experts' down reads, of a row's values from `r` on a lane's 4t.. and 16 + 4t..: an int8 block, or f16.
__device__ __forceinline__ void put_hidden(const Arguments &args, const Target &to, int r, const float4 (&v)[2]) {
#if HALF_ROWS
    if (to.store) put_hidden_quads(args.out_halves, to.row, args.out_half_rows, r, v[0], v[1]);
#else
    u64 block = (to.row * args.code_stride + r) / 32;
    quantize_quads(v[0], v[1], args.out_codes + block * (32 * PLANES), args.out_meta + block * PLANES, to.store);
#endif
}

template <> struct Epilogue<GATED> {
    static __device__ __forceinline__ void finish(const Arguments &args, const ColumnSums &sums, const Target &to, int piece) {
        int r = to.tile0 * 8 + piece * 32;
        if (piece * 64 < to.skip || r >= ROWS / 2) return;
        const Adapted adapted(args, to);
        float4 v[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            // Eight values are a tile: 4t.. of 16 are the first or second four of tile t / 2.
            int at = piece * 64 + half * 32 + to.t / 2 * 16 + to.t % 2 * 4;
            const int row = to.tile0 * 16 + at;
            float4 gate = adapted.add(row, sums.at(at)), up = adapted.add(row + 8, sums.at(at + 8));
            v[half] = make_float4(gated(gate.x, up.x), gated(gate.y, up.y), gated(gate.z, up.z), gated(gate.w, up.w));
        }
        put_hidden(args, to, r, v);
    }
};

// Up alone: squares of what is above zero, or the sums themselves.
template <bool SQUARES> struct UpAlone {
    static __device__ __forceinline__ void finish(const Arguments &args, const ColumnSums &sums, const Target &to, int piece) {
        int r = to.tile0 * 16 + piece * 32;
        if (piece * 32 < to.skip || r >= ROWS) return;
        float4 v[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            v[half] = sums.at(piece * 32 + half * 16 + 4 * to.t);
            if constexpr (SQUARES) v[half] = make_float4(relu2(v[half].x), relu2(v[half].y), relu2(v[half].z), relu2(v[half].w));
        }
        put_hidden(args, to, r, v);
    }
};
template <> struct Epilogue<SQUARED> : UpAlone<true> {};
template <> struct Epilogue<ROUNDED> : UpAlone<false> {};
