// What    Messages as JSON for scripts: field names as in the .proto files, every scalar present,
//         64-bit counters as numbers, ids (fixed64) and bytes as hexadecimal text, enums by name.
// Why     Protocol Buffers' own JSON writes every 64-bit number as text, which jq cannot compare.
// Threads Pure function.
#ifndef GEMMD_CLIENT_GEMMCTL_PROTO_JSON_H_
#define GEMMD_CLIENT_GEMMCTL_PROTO_JSON_H_

#include <google/protobuf/message.h>

#include "nlohmann/json.hpp"

namespace gemmd::gemmctl {

nlohmann::ordered_json ToJson(const google::protobuf::Message& message);

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_PROTO_JSON_H_
