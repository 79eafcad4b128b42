"""C++ (and gRPC) code from .proto files by the distribution's protoc; no rules are fetched."""

def weft_proto_library(name, srcs, deps = [], grpc = False, visibility = None):
    """Generates and compiles srcs; deps are other weft_proto_library targets whose .proto files are imported.

    Args:
      name: the cc_library's name.
      srcs: .proto files of this package, which lies at the path their imports name below proto/.
      deps: weft_proto_library targets.
      grpc: whether services are generated too.
      visibility: of the library.
    """
    pkg = native.package_name()
    outs = []
    for s in srcs:
        base = s[:-len(".proto")]
        outs += [base + ".pb.h", base + ".pb.cc"]
        if grpc:
            outs += [base + ".grpc.pb.h", base + ".grpc.pb.cc"]
    cmd = "protoc -Iproto --cpp_out=$(RULEDIR)/" + "/".join([".."] * (len(pkg.split("/")) - 1))
    if grpc:
        cmd += " --plugin=protoc-gen-grpc=$$(command -v grpc_cpp_plugin) --grpc_out=$(RULEDIR)/" + "/".join([".."] * (len(pkg.split("/")) - 1))
    cmd += " $(SRCS)"
    native.filegroup(name = name + "_protos", srcs = srcs, visibility = visibility)
    native.genrule(
        name = name + "_gen",
        srcs = srcs,
        outs = outs,
        cmd = cmd,
        tools = [d + "_protos" for d in deps],
    )
    native.cc_library(
        name = name,
        srcs = [o for o in outs if o.endswith(".cc")],
        hdrs = [o for o in outs if o.endswith(".h")],
        copts = ["-w"],
        includes = ["/".join([".."] * (len(pkg.split("/")) - 1))],
        deps = deps + (["//third_party:grpc"] if grpc else ["//third_party:protobuf"]),
        visibility = visibility,
    )
