// weft-worker: hosts actors and runs its part of every plan. One per GPU, or per CPU slot.

#include "common/device/cuda/library.h"
#include "worker/worker_main.h"

int main(int argc, char** argv) { return weft::WorkerMain(argc, argv, weft::LoadCudaPlugin); }
