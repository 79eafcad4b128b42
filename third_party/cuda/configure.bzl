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

# What a toolkit must have for the library to be built; cuBLAS and NCCL themselves are looked for when it is loaded.
_NEEDED = ["bin/nvcc", "include/cuda_runtime.h", "include/cublas_v2.h", "lib64/libcudart_static.a"]

# Compiled for these where nvcc knows them; the newest also as PTX, for GPUs that come later.
_ARCHITECTURES = ["80", "90", "100"]

def _impl(ctx):
    root = ctx.os.environ.get("CUDA_HOME", "/usr/local/cuda")
    found = True
    for file in _NEEDED:
        found = found and ctx.path(root + "/" + file).exists
    architectures = []
    if found:
        known = ctx.execute([root + "/bin/nvcc", "--list-gpu-code"]).stdout.split("\n")
        architectures = [a for a in _ARCHITECTURES if "sm_" + a in known]
        found = len(architectures) > 0
    if found:
        ctx.symlink(root + "/include", "include")
        ctx.file("BUILD.bazel", _BUILD.format(root = root))
    else:
        ctx.file("BUILD.bazel", _BUILD_ABSENT)
    ctx.file("config.bzl", "CUDA_ENABLED = %s\nCUDA_ROOT = \"%s\"\nCUDA_ARCHITECTURES = %s\n" %
                           (found, root if found else "", architectures))

cuda_configure = repository_rule(
    implementation = _impl,
    environ = ["CUDA_HOME"],
    local = True,
)
