#include "gtest/gtest.h"
#include "tests/e2e/environment.h"
#include "tests/e2e/roles.h"

int main(int argc, char** argv) {
  const std::string role = gemmd::e2e::Variable("GEMMD_E2E_ROLE", "");
  if (!role.empty()) return gemmd::e2e::RunRole(role);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
