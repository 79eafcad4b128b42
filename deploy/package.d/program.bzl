"""Programs that deploy/package links into one."""

def weft_program(name, entry, srcs, deps, testonly = False, **kwargs):
    """A cc_binary, and the same code as library NAME_main, in which main is called `entry`.

    Args:
      name: the binary's name.
      entry: a C++ function of the same type as main.
      srcs: the file that has main.
      deps: of both.
      testonly: of both.
      **kwargs: of the binary.
    """
    native.cc_binary(
        name = name,
        srcs = srcs,
        testonly = testonly,
        deps = deps,
        **kwargs
    )
    native.cc_library(
        name = name + "_main",
        srcs = srcs,
        local_defines = ["main=" + entry],
        tags = ["manual"],
        testonly = testonly,
        visibility = [
            "//deploy:__subpackages__",
            "//tests/package:__pkg__",
        ],
        deps = deps,
    )
