#pragma once

namespace weft {

// v1::DType's numbers, for code that includes no protobuf.
enum DeviceDType : int {
  kDeviceF16 = 1,
  kDeviceBF16 = 2,
  kDeviceF32 = 3,
  kDeviceF64 = 4,
  kDeviceI8 = 5,
  kDeviceU8 = 6,
  kDeviceI16 = 7,
  kDeviceI32 = 8,
  kDeviceI64 = 9,
  kDeviceBool = 10,
};

}  // namespace weft
