#pragma once

#include <functional>

namespace weft {

// Ctrl-C (SIGINT, SIGTERM, SIGHUP) as an event: the first one runs the callback on a thread of its own and the command winds down; the
// second ends the process at once with code 130.
class Interrupt {
 public:
  // Blocks the signals and starts the thread. Call once, on the main thread, before any other thread exists.
  static void Install();
  static bool Requested();

  // While it lives, an interrupt runs `callback`; at once when it has come already.
  class Scope {
   public:
    explicit Scope(std::function<void()> callback);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    std::function<void()> outer_;
  };
};

}  // namespace weft
