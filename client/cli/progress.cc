#include "client/cli/progress.h"

#include <stdio.h>
#include <unistd.h>

namespace weft {

ProgressLine::ProgressLine() : enabled_(isatty(STDERR_FILENO) == 1), begin_(Clock::Real()->Now()) {}

void ProgressLine::Update(const std::string& text) {
  if (!enabled_) return;
  const Nanos now = Clock::Real()->Now();
  if (now - begin_ < kNanosPerSecond / 2 || now - last_ < kNanosPerSecond / 10) return;
  last_ = now;
  shown_ = true;
  fprintf(stderr, "\r\033[K%s", text.c_str());
  fflush(stderr);
}

void ProgressLine::Clear() {
  if (!shown_) return;
  shown_ = false;
  fputs("\r\033[K", stderr);
  fflush(stderr);
}

}  // namespace weft
