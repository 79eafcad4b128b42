// The package's one program: weft, weft-driver and weft-worker by the name that it is called by. gRPC and OpenBLAS are in it once.

#include <cstdio>
#include <cstring>

// The mains of the three programs, under these names in this build only (program.bzl).
int WeftMain(int argc, char** argv);
int WeftDriverMain(int argc, char** argv);
int WeftWorkerMain(int argc, char** argv);

int main(int argc, char** argv) {
  const char* const path = argc > 0 ? argv[0] : "";
  const char* const slash = std::strrchr(path, '/');
  const char* const name = slash == nullptr ? path : slash + 1;
  if (std::strcmp(name, "weft-driver") == 0) return WeftDriverMain(argc, argv);
  if (std::strcmp(name, "weft-worker") == 0) return WeftWorkerMain(argc, argv);
  if (std::strcmp(name, "weft") == 0) return WeftMain(argc, argv);
  std::fprintf(stderr, "%s: call this program as weft, weft-driver or weft-worker\n", name);
  return 2;
}
