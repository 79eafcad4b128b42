#!/bin/sh
# Runs the [gpu] cases of the test binaries that are its arguments, where there is a GPU.
if [ ! -e /dev/nvidiactl ] || [ "${WEFT_TEST_CUDA:-1}" = 0 ]; then
  echo "SKIPPED: no GPU here (/dev/nvidiactl is absent), or WEFT_TEST_CUDA is 0"
  exit 0
fi
export WEFT_CUDA_LIBRARY="${WEFT_CUDA_LIBRARY:-$PWD/common/device/cuda/plugin/libweft_cuda.so}"
for binary in "$@"; do
  "$binary" "[gpu]" || exit 1
done
