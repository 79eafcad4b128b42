#include "common/classes/signature.h"

#include <utility>

#include "common/classes/std_signatures.h"

namespace weft {

const MethodSignature* ClassSignature::Find(const std::string& method) const {
  if (method.empty()) return methods.size() == 1 ? &methods.front() : nullptr;
  for (const MethodSignature& m : methods) {
    if (m.name == method) return &m;
  }
  return nullptr;
}

const ClassTable& ClassTable::Std() {
  // Never destroyed: signatures may be used until the process ends.
  static const ClassTable* const table = [] {
    auto* t = new ClassTable;
    AddElementwiseClasses(t);
    AddShapeClasses(t);
    AddMatrixClasses(t);
    AddStatefulClasses(t);
    AddMlpClass(t);
    return t;
  }();
  return *table;
}

void ClassTable::Add(ClassSignature signature) {
  std::string name = signature.name;
  classes_[std::move(name)] = std::move(signature);
}

const ClassSignature* ClassTable::Find(const std::string& name) const {
  const auto it = classes_.find(name);
  return it == classes_.end() ? nullptr : &it->second;
}

std::vector<std::string> ClassTable::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, signature] : classes_) names.push_back(name);
  return names;
}

}  // namespace weft
