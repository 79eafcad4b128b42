// The one translation unit that carries Catch2's main: it takes many seconds to compile.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
