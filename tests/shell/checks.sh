# For tests that are shell scripts: . tests/shell/checks.sh (the working directory is the repository's root, also under Bazel).

failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}
# Waits up to $1 seconds for a command to succeed.
within() {
  local until=$(($(date +%s%N) + $1 * 1000000000))
  shift
  while ! eval "$*"; do
    [ "$(date +%s%N)" -lt "$until" ] || return 1
    sleep 0.05
  done
}
