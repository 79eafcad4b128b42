// The one translation unit that carries Catch2 itself: it takes many seconds to compile.
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

int RunCatch(int argc, char** argv) { return Catch::Session().run(argc, argv); }

// Weak: a program that is more than its tests has a main of its own (tests/package).
__attribute__((weak)) int main(int argc, char** argv) { return RunCatch(argc, argv); }
