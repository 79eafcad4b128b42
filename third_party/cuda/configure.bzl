"""Finds a CUDA toolkit, if there is one, and says so to the build as @local_cuda."""

_BUILD = """
package(default_visibility = ["//visibility:public"])

# Headers and static runtime of the toolkit at {root}.
cc_library(
    name = "cuda",
    hdrs = glob(["include/**"], exclude = ["include/**/*.bzl"]),
    includes = ["include"],
    linkopts = ["-L{root}/lib64", "-lcudart_static", "-ldl", "-lrt", "-lpthread"],
)
"""

_BUILD_ABSENT = """
package(default_visibility = ["//visibility:public"])

cc_library(name = "cuda")
"""

def _impl(ctx):
    root = ctx.os.environ.get("CUDA_HOME", "/usr/local/cuda")
    found = ctx.path(root + "/bin/nvcc").exists and ctx.path(root + "/include/cuda_runtime.h").exists
    if found:
        ctx.symlink(root + "/include", "include")
        ctx.file("BUILD.bazel", _BUILD.format(root = root))
    else:
        ctx.file("BUILD.bazel", _BUILD_ABSENT)
    ctx.file("config.bzl", "CUDA_ENABLED = %s\nCUDA_ROOT = \"%s\"\n" % (found, root if found else ""))

cuda_configure = repository_rule(
    implementation = _impl,
    environ = ["CUDA_HOME"],
    local = True,
)
