#include "kernels/tune/kernel_digest.h"

#include <gtest/gtest.h>

#include <cstring>

namespace gemmd {
namespace {

using Sources = std::vector<jit::EmbeddedSource>;

jit::EmbeddedSource Source(const char* name, const char* text) {
  return {name, text, std::strlen(text)};
}

std::string Digest(const Sources& sources) { return DigestOfIncluded(sources, {"root.cuh"}); }

TEST(KernelDigestTest, CountsWhatIsIncludedAndNothingElse) {
  const Sources base = {Source("leaf.h", "int a;\n"), Source("other.h", "int b;\n"),
                        Source("root.cuh", "#include <cstdint>\n#include \"leaf.h\"\nint r;\n")};
  Sources changed = base;
  changed[1] = Source("other.h", "int c;\n");
  EXPECT_EQ(Digest(changed), Digest(base));
  changed[0] = Source("leaf.h", "int c;\n");
  EXPECT_NE(Digest(changed), Digest(base));
  changed = base;
  changed[2] = Source("root.cuh", "#include <cstdint>\n#include \"leaf.h\"\nint q;\n");
  EXPECT_NE(Digest(changed), Digest(base));
}

TEST(KernelDigestTest, CirclesEnd) {
  const Sources circle = {Source("leaf.h", "#include \"root.cuh\"\n"),
                          Source("root.cuh", "#include \"leaf.h\"\n")};
  EXPECT_EQ(Digest(circle).size(), 64u);
}

TEST(KernelDigestTest, CommentsAndLayoutDoNotCount) {
  const Sources plain = {Source("root.cuh", "int a = 1;\nint b;\n")};
  for (const char* text : {"// why\nint a = 1;  // so\n\n\nint b;\n", "/* x\n y */int a  =  1;\nint b;\n",
                           "int\ta = 1;\n  int b;\n"}) {
    EXPECT_EQ(Digest({Source("root.cuh", text)}), Digest(plain)) << text;
  }
  for (const char* text : {"int a = 1; int b;\n", "int a = 2;\nint b;\n", "inta = 1;\nint b;\n"}) {
    EXPECT_NE(Digest({Source("root.cuh", text)}), Digest(plain)) << text;
  }
}

TEST(KernelDigestTest, StringsKeepEverything) {
  EXPECT_EQ(WithoutComments("asm(\"a // b  c\"); // d"), "asm(\"a // b  c\"); ");
  EXPECT_EQ(WithoutComments("\"\\\"//\" x"), "\"\\\"//\" x");
  EXPECT_EQ(WithoutComments("\"unfinished"), "\"unfinished");
  EXPECT_EQ(WithoutComments("a /* unfinished"), "a ");
  EXPECT_EQ(WithoutComments("\"ends with \\"), "\"ends with \\");
}

TEST(KernelDigestTest, TheKernelsOfThisProgramHaveOne) {
  const std::string& digest = TunedKernelsDigest();
  EXPECT_EQ(digest.size(), 64u);
  EXPECT_NE(digest, DigestOfIncluded({}, {"root.cuh"})) << "no source was found";
  EXPECT_NE(digest, DigestOfIncluded(jit::EmbeddedSources(), {"kernels/device/gemm_sm90.cuh"}));
}

}  // namespace
}  // namespace gemmd
