#include "client/gemmctl/proto_json.h"

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace gemmd::gemmctl {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Json = nlohmann::ordered_json;

std::string Hex(const std::string& bytes) { return std::string(absl::BytesToHexString(bytes)); }

std::string IdText(uint64_t id) { return absl::StrCat(absl::Hex(id, absl::kZeroPad16)); }

Json Scalar(const Message& message, const FieldDescriptor* field) {
  const Reflection* r = message.GetReflection();
  if (field->type() == FieldDescriptor::TYPE_FIXED64) return IdText(r->GetUInt64(message, field));
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return r->GetInt32(message, field);
    case FieldDescriptor::CPPTYPE_INT64:
      return r->GetInt64(message, field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return r->GetUInt32(message, field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return r->GetUInt64(message, field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return r->GetDouble(message, field);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return r->GetFloat(message, field);
    case FieldDescriptor::CPPTYPE_BOOL:
      return r->GetBool(message, field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return r->GetEnum(message, field)->name();
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string text = r->GetString(message, field);
      return field->type() == FieldDescriptor::TYPE_BYTES ? Hex(text) : text;
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ToJson(r->GetMessage(message, field));
  }
  return nullptr;
}

// The contract repeats messages, strings and 64-bit integers only.
Json Element(const Message& message, const FieldDescriptor* field, int i) {
  const Reflection* r = message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ToJson(r->GetRepeatedMessage(message, field, i));
    case FieldDescriptor::CPPTYPE_STRING:
      return r->GetRepeatedString(message, field, i);
    case FieldDescriptor::CPPTYPE_INT64:
      return r->GetRepeatedInt64(message, field, i);
    case FieldDescriptor::CPPTYPE_UINT64:
      return r->GetRepeatedUInt64(message, field, i);
    default:
      return nullptr;
  }
}

Json Repeated(const Message& message, const FieldDescriptor* field) {
  const Reflection* r = message.GetReflection();
  Json json = field->is_map() ? Json::object() : Json::array();
  for (int i = 0; i < r->FieldSize(message, field); ++i) {
    if (!field->is_map()) {
      json.push_back(Element(message, field, i));
      continue;
    }
    const Message& entry = r->GetRepeatedMessage(message, field, i);
    const auto* type = entry.GetDescriptor();
    json[Scalar(entry, type->map_key()).get<std::string>()] = Scalar(entry, type->map_value());
  }
  return json;
}

}  // namespace

Json ToJson(const Message& message) {
  Json json = Json::object();
  const auto* type = message.GetDescriptor();
  const Reflection* r = message.GetReflection();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    if (field->is_repeated()) {
      json[field->name()] = Repeated(message, field);
    } else if (!field->has_presence() || r->HasField(message, field)) {
      json[field->name()] = Scalar(message, field);
    }
  }
  return json;
}

}  // namespace gemmd::gemmctl
