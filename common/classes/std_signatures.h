#pragma once

// weft's own classes by theme, and the methods that several of them share. Internal to ClassTable::Std().

#include "common/classes/signature.h"

namespace weft {

MethodSignature IdentityMethod();
MethodSignature AddMethod();
MethodSignature ScaleMethod();
MethodSignature ReduceMethod();
MethodSignature PeekMethod();

MethodSignature SplitMethod();
MethodSignature ConcatMethod();
MethodSignature MatmulMethod();
MethodSignature SquareMethod();

// Checks each field of the stateless methods that is set: scale, axis, parts, reduce, precision.
absl::Status CheckMathConfig(const v1::Config& config);
// "", "fp32" or "tf32".
absl::Status CheckPrecision(const v1::Config& config);

void AddElementwiseClasses(ClassTable* table);  // std.Identity, std.Add, std.Scale, std.Reduce
void AddShapeClasses(ClassTable* table);        // std.Split, std.Concat
void AddMatrixClasses(ClassTable* table);       // std.Gemm, std.Math
void AddStatefulClasses(ClassTable* table);     // std.Source, std.Constant, std.Linear, std.Delay, std.Fail, std.Check

void AddMlpClass(ClassTable* table);            // std.Mlp

}  // namespace weft
