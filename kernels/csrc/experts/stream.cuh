// Tiles of a matrix on their way through a warp's ring in shared memory.
#pragma once
#include "experts/shape.cuh"

// Which items somebody takes: `at`, then `step` on, then `stride` on each time, below `past`.
struct Items {
    int at, step, stride, past;

    __device__ __forceinline__ bool any() const { return at < past; }
    __device__ __forceinline__ void advance() { at += step, step = stride; }
};

// What a warp takes of tiles, one after another: units `begin` to `end` of `tile_of` each item. They pass through its ring in shared
// memory; when one has been read, its place takes what comes next.
//
// Loops are not unrolled where they need not be, here and below: a launch runs most of its instructions once or twice, and fetching them
// would be most of its time.
template <class W, int BYTES, class F> struct Stream {
    static constexpr int STAGES = BYTES / W::STAGED_BYTES < 8 ? BYTES / W::STAGED_BYTES : 8;
    static_assert(STAGES > 0, "a unit has to fit");
    const u8 *ring;
    F tile_of;
    Items items;
    int begin, end, unit, to = 0, from = 0;
    // Whether anything is left to be asked for, and of which tile.
    int asks = 0;
    const u8 *tile = nullptr;
    typename W::Rest rest;

    __device__ __forceinline__ Stream(const u8 *ring, Items items, int begin, int end, F tile_of)
        : ring(ring), tile_of(tile_of), items(items), begin(begin), end(end), unit(begin) {
        asks = items.any() && begin < end;
        // Without items nothing is asked for: what another stream waits for is counted among all that this warp asked for.
        if (asks) {
            tile = tile_of(items.at);
#pragma unroll 1
            for (int i = 0; i < STAGES; i++) ask();
        }
    }
    __device__ __forceinline__ void ask() {
        if (asks) {
            W::fetch(shared_address(ring) + to * W::STAGED_BYTES, tile, unit, rest);
            if (++unit == end) {
                unit = begin, items.advance();
                if (asks = items.any()) tile = tile_of(items.at);
            }
        }
        copies_end();
        to = to + 1 == STAGES ? 0 : to + 1;
    }
    // `way`: where the unit's tile is to lie too, or null.
    template <class P> __device__ __forceinline__ void take(typename W::Unit &w, u8 *way, int of_tile) {
        copies_wait<STAGES - 1>();
        __syncwarp();
        P::template load<W>(w, ring + from * W::STAGED_BYTES);
        if (PLACED && way) W::put(way, of_tile, ring + from * W::STAGED_BYTES, rest);
        from = from + 1 == STAGES ? 0 : from + 1;
        // All lanes have read before the place is filled again.
        __syncwarp();
        ask();
    }

    // Adds the units of the next item, times the columns. `way`: where its tile is to lie too, or null.
    template <class P> __device__ __forceinline__ void multiply(P &columns, const u8 *memory, const u32 *grid, u8 *way) {
#pragma unroll 1
        for (int u = begin; u < end; u++) {
            typename W::Unit w;
            take<P>(w, way, u);
            columns.template multiply<W>(w, memory, u, grid);
        }
    }
};
