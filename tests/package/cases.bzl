"""Tests whose cases are also in the package's test program."""

def weft_cases_test(name, srcs, deps, tags = [], **kwargs):
    """A cc_test of Catch2 cases, and the cases as library NAME_cases for //tests/package.

    The cases must run outside Bazel too: no runfiles (tests/integration/daemons.h finds the programs), and nothing to write to but the
    temporary directory.

    Args:
      name: the test's name.
      srcs: files with cases.
      deps: of the cases; not :catch2_main.
      tags: of the test.
      **kwargs: of the test.
    """
    native.cc_library(
        name = name + "_cases",
        testonly = True,
        srcs = srcs,
        linkstatic = True,
        visibility = ["//tests/package:__pkg__"],
        deps = deps + ["//third_party:catch2"],
        alwayslink = True,
    )
    native.cc_test(
        name = name,
        tags = tags,
        deps = [
            ":" + name + "_cases",
            "//third_party:catch2_main",
        ],
        **kwargs
    )
