// Writes down when each kernel of a program ran, in graphs too: a line each with start and end in ns, name, grid and threads.
//
//   cc -shared -fPIC -O1 -o step_trace.so scripts/step_trace.c -I CUPTI/include -I CUDA/include -L CUPTI/lib -l:libcupti.so.13
//   CUDA_INJECTION64_PATH=$PWD/step_trace.so TRACE_OUT=trace.txt chimere bench step ... --steps 4 --repeat 1
//   scripts/step_trace.py trace.txt
//
// CUPTI comes with the wheel nvidia-cuda-cupti.
#include <cupti.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static FILE *out;

static void CUPTIAPI give(uint8_t **buffer, size_t *size, size_t *records) {
    *size = 16 << 20, *records = 0;
    *buffer = aligned_alloc(8, *size);
}

static void CUPTIAPI take(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    (void)context, (void)stream, (void)size;
    CUpti_Activity *record = NULL;
    while (valid && cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
        if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
        const CUpti_ActivityKernel10 *k = (const void *)record;
        fprintf(out, "%llu %llu %s %dx%d %d\n", (unsigned long long)k->start, (unsigned long long)k->end, k->name, k->gridX, k->gridY, k->blockX);
    }
    free(buffer);
}

static void finish(void) {
    cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    fclose(out);
}

// Called by the driver as it loads this.
int InitializeInjection(void) {
    const char *path = getenv("TRACE_OUT");
    out = fopen(path ? path : "trace.txt", "w");
    if (!out || cuptiActivityRegisterCallbacks(give, take) != CUPTI_SUCCESS ||
        cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != CUPTI_SUCCESS) {
        fprintf(stderr, "no trace: its file cannot be written, or CUPTI refuses\n");
        return 0;
    }
    atexit(finish);
    return 1;
}
