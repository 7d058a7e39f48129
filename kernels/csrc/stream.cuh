// What a warp reads of a matrix, on its way through shared memory of its own: a ring of stages that are filled ahead.
//
// A stage is a pair of units (or one, where two stages of pairs do not fit), as far as they belong to the warp: codes, planes, scales, and the
// group that both share. More stages than two are not better: what is asked for stands in the way of everything that is asked for later, in
// all of the device's memory.
#pragma once
#include "weights.cuh"

#define STAGES_MAX 2

template <class W, int N> struct Stage {
    static constexpr int UNITS = N;
    static constexpr int PLANES_AT = N * W::CODE_BYTES;
    static constexpr int SCALES_AT = PLANES_AT + N * W::PLANE_BYTES;
    static constexpr int GROUP_AT = SCALES_AT + N * W::SCALE_BYTES;
    static constexpr int BYTES = GROUP_AT + W::GROUP_BYTES;
    static constexpr int REST_BYTES = BYTES - PLANES_AT, PIECES = (REST_BYTES + 511) / 512;
    // All stages of a tile are whole.
    static constexpr bool WHOLE = W::UNITS % N == 0;

    // What a lane copies beside the codes, 16 bytes each time: where these lie for the first unit of a tile, how many bytes on for each unit
    // or pair of them, and which unit of the stage they belong to.
    int from[PIECES], step[PIECES], pairs[PIECES], unit[PIECES];

    __device__ __forceinline__ Stage() {
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            int at = PLANES_AT + i * 512 + threadIdx.x % WARP * 16;
            bool plane = at < SCALES_AT, scale = !plane && at < GROUP_AT;
            step[i] = plane ? W::PLANE_BYTES : scale ? W::SCALE_BYTES : W::GROUP_BYTES;
            pairs[i] = !plane && !scale;
            int in_part = at - (plane ? PLANES_AT : scale ? SCALES_AT : GROUP_AT);
            from[i] = (plane ? W::PLANES_AT : scale ? W::SCALES_AT : W::GROUPS_AT) + in_part;
            unit[i] = at >= BYTES ? N : pairs[i] ? 0 : in_part >= step[i];
        }
    }
    // By a warp: asks for a stage of a tile, from `first` on, to be copied to shared memory, past L1.
    __device__ __forceinline__ void fetch(u32 to, const u8 *tile, int first) const {
        int lane = threadIdx.x % WARP, count = WHOLE ? N : W::UNITS - first;
        const u8 *codes = tile + first * W::CODE_BYTES + lane * 16;
        to += lane * 16;
#pragma unroll
        for (int v = 0; v < N * W::VECTORS; v++) {
            if (WHOLE || v < W::VECTORS) copy16(to + v * 512, codes + v * 512);
            else copy16_if(count > 1, to + v * 512, codes + v * 512);
        }
#pragma unroll
        for (int i = 0; i < PIECES; i++)
            copy16_if(unit[i] < N && unit[i] < count, to + PLANES_AT + i * 512, tile + from[i] + (first >> pairs[i]) * step[i]);
    }
    // Unit `at` of the stage. `P`: what of it is wanted.
    template <class P> static __device__ __forceinline__ void load(typename W::Unit &w, const u8 *stage, int at) {
        P::template load<W>(w, stage + at * W::CODE_BYTES, stage + PLANES_AT + at * W::PLANE_BYTES, stage + SCALES_AT + at * W::SCALE_BYTES,
                            stage + GROUP_AT);
    }
};

// Which items somebody takes: `at`, then `step` on, then `stride` on each time, below `past`.
struct Items {
    int at, step, stride, past;

    __device__ __forceinline__ bool any() const { return at < past; }
    __device__ __forceinline__ void advance() { at += step, step = stride; }
};

// Units `begin` to `end` of the tile `tile_of` of each item, one after another. EVEN: these are even. Loops are not unrolled where they need not be, here and
// elsewhere: a launch runs most of its instructions a few times, and fetching them would be most of its time.
template <class W, int BYTES, bool EVEN, class F> struct Stream {
    using S = Stage<W, BYTES >= 2 * Stage<W, 2>::BYTES ? 2 : 1>;
    static constexpr int STAGES = BYTES / S::BYTES < STAGES_MAX ? BYTES / S::BYTES : STAGES_MAX;
    static_assert(STAGES > 0, "a unit has to fit");
    const u8 *ring;
    F tile_of;
    Items items;
    int begin, end, unit, to = 0, from = 0;
    const u8 *tile = nullptr;
    S stage;

    __device__ __forceinline__ Stream(const u8 *ring, Items items, int begin, int end, F tile_of)
        : ring(ring), tile_of(tile_of), items(items), begin(begin), end(end), unit(begin / S::UNITS * S::UNITS) {}

    // Asks for as much as the ring holds; nothing of another stream may be under way.
    __device__ __forceinline__ void start() {
        if (items.any() && begin < end) tile = tile_of(items.at);
        // Without items nothing is asked for: what another stream waits for is counted among all that this warp asked for.
        if (tile) {
#pragma unroll 1
            for (int i = 0; i < STAGES; i++) ask();
        }
    }
    __device__ __forceinline__ void ask() {
        if (tile) {
            stage.fetch(shared_address(ring) + to * S::BYTES, tile, unit);
            if ((unit += S::UNITS) >= end) {
                unit = begin / S::UNITS * S::UNITS, items.advance();
                tile = items.any() ? tile_of(items.at) : nullptr;
            }
        }
        copies_end();
        to = to + 1 == STAGES ? 0 : to + 1;
    }

    // Adds the units of the next item, times the columns.
    template <class P> __device__ __forceinline__ void multiply(P &columns, const u8 *memory, const u32 *grid) {
#pragma unroll 1
        for (int first = begin / S::UNITS * S::UNITS; first < end; first += S::UNITS) {
            copies_wait<STAGES - 1>();
            __syncwarp();
            const u8 *from_here = ring + from * S::BYTES;
            from = from + 1 == STAGES ? 0 : from + 1;
#pragma unroll P::UNROLL
            for (int i = 0; i < S::UNITS; i++) {
                if (S::UNITS > 1 && !EVEN && (first + i < begin || first + i >= end)) continue;
                typename W::Unit w;
                S::template load<P>(w, from_here, i);
                columns.template multiply<W>(w, memory, first, i, grid);
            }
            // All lanes have read before the place is filled again.
            __syncwarp();
            ask();
        }
    }
};
