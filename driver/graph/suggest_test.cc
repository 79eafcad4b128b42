#include "driver/graph/suggest.h"

#include <catch2/catch.hpp>

#include "driver/graph/error_list.h"

namespace weft {
namespace {

TEST_CASE("EditDistance") {
  CHECK(EditDistance("", "", 3) == 0);
  CHECK(EditDistance("square0", "square0", 3) == 0);
  CHECK(EditDistance("squar0", "square0", 3) == 1);
  CHECK(EditDistance("sqaure0", "square0", 3) == 1);  // a swap
  CHECK(EditDistance("kitten", "sitting", 3) == 3);
  CHECK(EditDistance("kitten", "sitting", 2) == 3);
  CHECK(EditDistance("a", "abcdef", 2) == 3);
  CHECK(EditDistance(std::string(65, 'x'), std::string(65, 'x'), 2) == 3);
  CHECK(EditDistance("abcdefgh", "badcfehg", 4) == 4);
}

TEST_CASE("the closest name is suggested") {
  Suggester s;
  const std::vector<std::string> names = {"make0", "make1", "square0", "sum"};
  CHECK(s.For("squar0", names) == " (did you mean \"square0\"?)");
  CHECK(s.For("make00", names) == " (did you mean \"make0\"?)");
  CHECK(s.For("smu", names) == " (did you mean \"sum\"?)");
  CHECK(s.For("entirely", names) == "");
  CHECK(s.For("", names) == "");
  CHECK(s.For(std::string(100, 'x'), names) == "");
}

TEST_CASE("messages are safe to print") {
  CHECK(Printable("plain \xc3\xa9") == "plain \xc3\xa9");
  CHECK(Printable("a\nb\x1b[0m\x7f") == "a\\x0ab\\x1b[0m\\x7f");
  CHECK(Printable("\xff") == "\\xff");
  CHECK(Quote("abc") == "\"abc\"");
  CHECK(Quote(std::string(63, 'a') + "\xc3\xa9") == "\"" + std::string(63, 'a') + "...\"");
  ErrorList e;
  CHECK(e.ToStatus().ok());
  for (int i = 0; i < 101; ++i) e.Add("x");
  CHECK(e.full());
  CHECK(std::string(e.ToStatus().message()).find("\n1 more error") != std::string::npos);
}

}  // namespace
}  // namespace weft
