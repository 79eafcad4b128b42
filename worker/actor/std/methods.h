#pragma once

// The stateless methods on the CPU, each as a row of a method table. In a namespace of their own, since common/classes has
// functions of the same names for the methods' signatures.

#include "worker/actor/std/method_table.h"

namespace weft::cpu {

StdMethod IdentityMethod();  // x
StdMethod AddMethod();       // x1 + x2 + ..., in this order; F16 and BF16 in float, rounded once
StdMethod ScaleMethod();     // x * config.scale; the product is one of the dtype (F32: of floats), integers wrap around
StdMethod PeekMethod();      // x's first element (0 if it has none) [1], dims I64[rank], dtype number I32[1]

StdMethod SplitMethod();   // config.parts equal parts along config.axis
StdMethod ConcatMethod();  // along config.axis

// config.reduce along config.axis, which goes away; without an axis over all elements, [1]. Sums of floats are added in double in
// index order, those of integers wrap around.
StdMethod ReduceMethod();

// Products of two matrices. F32 and F64 by OpenBLAS on one thread; integers wrap around; F16 and BF16 are Unimplemented.
StdMethod MatmulMethod();  // a·b
StdMethod SquareMethod();  // a·a

}  // namespace weft::cpu
