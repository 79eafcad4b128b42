#!/bin/sh
# The cases that need a GPU, where there is one.
if [ ! -e /dev/nvidiactl ]; then
  echo "SKIPPED: no GPU here (/dev/nvidiactl is absent)"
  exit 0
fi
exec common/device/cuda/cuda_test "[gpu]"
