#include <stdlib.h>

namespace {

// Before OpenBLAS's own constructor, which has no priority, in the same program.
__attribute__((constructor(200))) void OneThread() { setenv("OPENBLAS_NUM_THREADS", "1", 0); }

}  // namespace
