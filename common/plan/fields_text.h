#pragma once

#include <string>

#include "common/plan/text_cursor.h"
#include "google/protobuf/message.h"

namespace weft {

// Appends every field of `message` that is set, in the order of field numbers, each as " name=value": enums by name, strings quoted,
// lists as [1,2], map<string, string> entries as name["key"]="value" in the order of keys, fields of sub-messages as name.field=value,
// an empty sub-message as name={}. Works by reflection, so that a new field of Config or Options needs no change here.
void AppendFields(const google::protobuf::Message& message, std::string* out);

// The inverse, up to the end of the line. False after cursor->Fail: unknown or repeated fields, values that do not fit.
bool ReadFields(TextCursor* cursor, google::protobuf::Message* message);

}  // namespace weft
