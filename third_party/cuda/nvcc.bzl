"""cuda_objects: compiles .cu files by nvcc into objects for a cc_binary's srcs."""

load("@local_cuda//:config.bzl", "CUDA_ARCHITECTURES", "CUDA_ROOT")

def _impl(ctx):
    headers = depset(
        ctx.files.hdrs,
        transitive = [d[CcInfo].compilation_context.headers for d in ctx.attr.deps],
    )
    flags = ["-std=c++17", "-O3", "-c", "-I", ".", "--compress-mode=size", "--expt-relaxed-constexpr"]

    # Products and sums stay apart, as on the CPU.
    flags.append("-fmad=false")
    flags += ["-Xcompiler", "-fPIC,-fvisibility=hidden,-Wall,-Wno-unused-function"]
    for a in CUDA_ARCHITECTURES:
        flags += ["-gencode", "arch=compute_%s,code=sm_%s" % (a, a)]
    if CUDA_ARCHITECTURES:
        flags += ["-gencode", "arch=compute_%s,code=compute_%s" % (CUDA_ARCHITECTURES[-1], CUDA_ARCHITECTURES[-1])]
    objects = []
    for src in ctx.files.srcs:
        out = ctx.actions.declare_file("%s/%s.pic.o" % (ctx.label.name, src.basename[:-len(".cu")]))
        args = ctx.actions.args()
        args.add_all(flags)
        # Names of internal symbols come from the path, so that objects are the same everywhere.
        args.add("-frandom-seed", src.short_path)
        args.add("-o", out)
        args.add(src)
        ctx.actions.run(
            executable = CUDA_ROOT + "/bin/nvcc",
            arguments = [args],
            inputs = depset([src], transitive = [headers]),
            outputs = [out],
            use_default_shell_env = True,
            mnemonic = "Nvcc",
            progress_message = "Compiling " + src.short_path,
        )
        objects.append(out)
    return [DefaultInfo(files = depset(objects))]

cuda_objects = rule(
    implementation = _impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"]),
        "hdrs": attr.label_list(allow_files = [".h", ".cuh"]),
        "deps": attr.label_list(providers = [CcInfo]),
    },
)
