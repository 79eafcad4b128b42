#include "common/comm/agree.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tensor/combine.h"

namespace weft {
namespace {

std::string CallName(int32_t op, int32_t reduce, int32_t root) {
  if (op == v1::BROADCAST) return absl::StrCat("BROADCAST from rank ", root);
  const std::string name = v1::CollectiveOp_IsValid(op) ? v1::CollectiveOp_Name(static_cast<v1::CollectiveOp>(op)) : absl::StrCat("op ", op);
  if (op != v1::ALL_REDUCE && op != v1::REDUCE_SCATTER) return name;
  return absl::StrCat(name, " ",
                      v1::ReduceOp_IsValid(reduce) ? v1::ReduceOp_Name(static_cast<v1::ReduceOp>(reduce)) : absl::StrCat(reduce));
}

// What must be the same on all ranks whatever the values are, in words.
std::string Identity(const CollectiveHeader& h) {
  return absl::StrCat(CallName(h.op, h.reduce, h.root), " number ", h.message.sequence, " of execution ", h.message.execution, ", group ",
                      h.message.edge, ", plan ", absl::Hex(h.message.plan_hash, absl::kZeroPad16));
}

bool SameIdentity(const CollectiveHeader& a, const CollectiveHeader& b) {
  return a.op == b.op && a.reduce == b.reduce && a.root == b.root && a.message.sequence == b.message.sequence &&
         a.message.execution == b.message.execution && a.message.edge == b.message.edge && a.message.plan_hash == b.message.plan_hash;
}

std::string ValueName(const MessageHeader& h) { return absl::StrCat(DTypeName(static_cast<DType>(h.dtype)), DimsToString(DimsOf(h))); }

// The dims of a rank's result, and whether there can be one.
absl::StatusOr<Dims> OutDims(int32_t op, int32_t reduce, int32_t root, int size, DType dtype, const Dims& in) {
  WEFT_RETURN_IF_ERROR(NumElements(in).status());
  Dims out = in;
  switch (op) {
    case v1::ALL_REDUCE:
      WEFT_RETURN_IF_ERROR(CheckCombine(dtype, static_cast<v1::ReduceOp>(reduce)));
      break;
    case v1::ALL_GATHER:
      if (in.empty()) return absl::InvalidArgumentError("a scalar has no axis along which to gather; give it the shape [1]");
      out[0] *= size;
      break;
    case v1::REDUCE_SCATTER:
      WEFT_RETURN_IF_ERROR(CheckCombine(dtype, static_cast<v1::ReduceOp>(reduce)));
      if (in.empty() || in[0] % size != 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("axis 0 of a value ", DTypeName(dtype), DimsToString(in), " does not divide into ", size, " equal parts"));
      }
      out[0] /= size;
      break;
    case v1::BROADCAST:
      if (root < 0 || root >= size) return absl::InvalidArgumentError(absl::StrCat("root rank ", root, " is not within 0 to ", size - 1));
      break;
    default:
      return absl::InvalidArgumentError(absl::StrCat("collective op ", op, " is unknown"));
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t n, NumElements(out));
  if (SizeOf(dtype) == 0 || static_cast<uint64_t>(n) * SizeOf(dtype) > kMaxTensorBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the result ", DTypeName(dtype), DimsToString(out), " cannot be"));
  }
  return out;
}

}  // namespace

std::string GroupInfo::RankName(int rank) const { return absl::StrCat("rank ", rank, " (", workers[rank], ")"); }

TaskErrorRef CollectiveError(const GroupInfo& group, int rank, int64_t execution, const absl::Status& status) {
  auto e = std::make_shared<TaskError>();
  e->worker = group.workers[rank];
  e->node = group.name;
  e->execution = execution;
  e->code = status.code();
  e->message = absl::StrCat("collective ", group.name, ": ", std::string(status.message()));
  return e;
}

CollectiveHeader MakeCollectiveHeader(const GroupInfo& group, int rank, const CollectiveCall& call, uint64_t sequence, const Value& in,
                                      const Tensor& buffer) {
  TaskErrorRef error = in.error;
  if (error == nullptr && !in.tensor.defined()) {
    error = CollectiveError(group, rank, call.execution, absl::InternalError(absl::StrCat(group.RankName(rank), " has no value to give")));
  }
  if (error == nullptr) {
    const absl::StatusOr<Dims> out = OutDims(call.op, call.reduce, call.root_rank, group.size(), in.tensor.dtype(), in.tensor.dims());
    // What cannot be is seen by all ranks alike in Agree.
    const uint64_t bytes = out.ok() ? static_cast<uint64_t>(*NumElements(*out)) * SizeOf(in.tensor.dtype()) : 0;
    if (bytes > buffer.bytes()) {
      error = CollectiveError(group, rank, call.execution,
                              absl::OutOfRangeError(absl::StrCat(
                                  "the result for ", group.RankName(rank), " would be ", DTypeName(in.tensor.dtype()), DimsToString(*out), ", ",
                                  bytes, " bytes, and ", buffer.bytes(), " are reserved; declare the members' outputs as large as they become")));
    }
  }
  CollectiveHeader h;
  h.message = MakeHeader(group.plan_hash, group.id, call.execution, sequence, in.tensor, error);
  h.op = call.op;
  h.reduce = call.reduce;
  h.root = call.root_rank;
  return h;
}

Agreement Agree(const GroupInfo& group, const std::vector<CollectiveHeader>& headers) {
  Agreement a;
  const CollectiveHeader& first = headers[0];
  const auto fail = [&](int rank, const absl::Status& s) {
    a.error = CollectiveError(group, rank, first.message.execution, s);
    return a;
  };
  for (int r = 0; r < group.size(); ++r) {
    const MessageHeader& m = headers[r].message;
    if (m.magic != MessageHeader::kMagic || m.version != MessageHeader().version || m.rank > kMaxRank) {
      return fail(r, absl::DataLossError(absl::StrCat("what came from ", group.RankName(r), " is no message of this release of weft")));
    }
    if (!SameIdentity(headers[r], first)) {
      return fail(r, absl::FailedPreconditionError(absl::StrCat("ranks are not at the same call: ", group.RankName(0), " runs ", Identity(first),
                                                                "; ", group.RankName(r), " runs ", Identity(headers[r]))));
    }
  }
  for (const CollectiveHeader& h : headers) {
    a.error = ErrorOf(h.message);
    if (a.error != nullptr) return a;
  }
  for (int r = 1; r < group.size(); ++r) {
    const MessageHeader& m = headers[r].message;
    if (m.dtype != first.message.dtype || DimsOf(m) != DimsOf(first.message) || m.bytes != first.message.bytes) {
      return fail(r, absl::InvalidArgumentError(absl::StrCat("members give values of one dtype and shape; ", group.RankName(0), " gives ",
                                                             ValueName(first.message), ", ", group.RankName(r), " gives ", ValueName(m))));
    }
  }
  a.dtype = static_cast<DType>(first.message.dtype);
  a.in = DimsOf(first.message);
  const absl::StatusOr<Dims> out = OutDims(first.op, first.reduce, first.root, group.size(), a.dtype, a.in);
  if (!out.ok()) return fail(0, out.status());
  a.out = *out;
  return a;
}

Tensor ResultIn(const Tensor& buffer, const Agreement& agreed) { return Tensor(agreed.dtype, agreed.out, buffer.data(), buffer.owner()); }

}  // namespace weft
