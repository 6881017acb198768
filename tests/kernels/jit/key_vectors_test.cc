// The golden keys. A key that changes under an unchanged kKeySchema makes two versions of gemmd read
// each other's entries by accident, or rebuild everything in silence.
#include <gtest/gtest.h>

#include <fstream>

#include "kernels/jit/compiler.h"
#include "kernels/jit/kernel_key.h"
#include "nlohmann/json.hpp"

namespace gemmd::jit {
namespace {

// Device sources and compilers come and go, and keys with them; everything else about a key is fixed by
// its schema.
KeyInputs InputsOf(const std::string& program, const std::string& name,
                   const std::string& architecture) {
  KeyInputs inputs = KeyInputsOf({program, name, architecture}, "13.0 0123456789abcdef");
  inputs.sources_digest = std::string(64, '5');
  return inputs;
}

nlohmann::ordered_json Vectors() {
  nlohmann::ordered_json vectors;
  vectors["schema"] = kKeySchema;
  for (const char* architecture : {"sm_75", "sm_90a", "sm_120f"}) {
    vectors["keys"][architecture] =
        KeyOf(InputsOf("struct Config {};\n", "Gemm<Config>", architecture));
  }
  vectors["keys"]["empty program"] = KeyOf(InputsOf("", "Gemm<Config>", "sm_90a"));
  return vectors;
}

TEST(KeyVectorsTest, KeysChangeOnlyTogetherWithTheSchemaNumber) {
  std::ifstream file(std::string(GEMMD_TEST_DATA) + "/jit/key_vectors.json");
  ASSERT_TRUE(file) << "tests/data/jit/key_vectors.json";
  const auto recorded = nlohmann::ordered_json::parse(file);
  const auto present = Vectors();
  ASSERT_EQ(recorded["schema"], present["schema"])
      << "the schema was raised: record the new vectors in tests/data/jit/key_vectors.json:\n"
      << present.dump(2);
  EXPECT_EQ(recorded["keys"], present["keys"])
      << "keys changed: raise kKeySchema in kernels/jit/kernel_key.h and record the new vectors";
}

TEST(KeyVectorsTest, IsKeyTakesDigestsOnly) {
  EXPECT_TRUE(IsKey(std::string(64, 'a')));
  EXPECT_FALSE(IsKey(std::string(63, 'a')));
  EXPECT_FALSE(IsKey(std::string(64, 'g')));
  EXPECT_FALSE(IsKey(std::string(63, 'a') + "/"));
}

}  // namespace
}  // namespace gemmd::jit
