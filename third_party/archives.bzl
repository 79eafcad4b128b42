"""How system libraries are linked: as shared objects, or with --config=package from their static archives."""

# The rest of Abseil's archives are for its flags and its tests.
_ABSL = [
    "bad_any_cast_impl",
    "bad_optional_access",
    "bad_variant_access",
    "base",
    "city",
    "civil_time",
    "cord",
    "cord_internal",
    "cordz_functions",
    "cordz_handle",
    "cordz_info",
    "debugging_internal",
    "demangle_internal",
    "exponential_biased",
    "graphcycles_internal",
    "hash",
    "hashtablez_sampler",
    "int128",
    "log_severity",
    "low_level_hash",
    "malloc_internal",
    "random_distributions",
    "random_internal_platform",
    "random_internal_pool_urbg",
    "random_internal_randen",
    "random_internal_randen_hwaes",
    "random_internal_randen_hwaes_impl",
    "random_internal_randen_slow",
    "random_internal_seed_material",
    "random_seed_gen_exception",
    "random_seed_sequences",
    "raw_hash_set",
    "raw_logging_internal",
    "spinlock_wait",
    "stacktrace",
    "status",
    "statusor",
    "str_format_internal",
    "strerror",
    "strings",
    "strings_internal",
    "symbolize",
    "synchronization",
    "throw_delegate",
    "time",
    "time_zone",
]

# One group: gRPC, protobuf and Abseil need each other in no order that a single pass would meet.
ARCHIVES = ["-Wl,--start-group"] + ["-l:lib%s.a" % name for name in [
    "grpc++_reflection",
    "grpc++",
    "grpc",
    "gpr",
    "address_sorting",
    "upb",
    "protobuf",
    "re2",
    "cares",
] + ["absl_" + name for name in _ABSL]] + [
    "-Wl,--end-group",
    "-lssl",
    "-lcrypto",
    "-lz",
    "-lrt",
    "-lpthread",
]

def system_library(name, linkopts, archives, deps = [], **kwargs):
    """A cc_library that is the link line of a library of the system.

    Args:
      name: the target's name.
      linkopts: the link line with shared objects.
      archives: label of the target that links the library in --config=package.
      deps: further system libraries, in both cases.
      **kwargs: as for cc_library.
    """
    native.cc_library(
        name = name,
        linkopts = select({
            "//third_party:package": [],
            "//conditions:default": linkopts,
        }),
        deps = deps + select({
            "//third_party:package": [archives],
            "//conditions:default": [],
        }),
        **kwargs
    )
