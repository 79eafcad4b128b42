#!/bin/bash
# `weft doctor` as a process, with probes as processes of their own: without a GPU, and with two that the CPU plays.
set -u
weft="$PWD/client/cli/weft"
fakes="$PWD/client/doctor/libfake_cuda.so"
tmp="${TEST_TMPDIR:-$(mktemp -d)}"
export XDG_RUNTIME_DIR="$tmp/run"
mkdir -p -m 0700 "$XDG_RUNTIME_DIR"
unset WEFT_CUDA_LIBRARY
. tests/shell/checks.sh
run() { # run CODE ARGS...
  local want=$1
  shift
  "$weft" doctor "$@" > "$tmp/out" 2> "$tmp/err"
  local got=$?
  [ "$got" = "$want" ] || fail "doctor $*: code $got instead of $want: $(cat "$tmp/out" "$tmp/err")"
}
says() { grep -qE "$1" "$tmp/out" || fail "no line \"$1\" in: $(cat "$tmp/out")"; }

run 0 --device cpu
says '^ok +system calls '
says '^ok +weft-worker .*/worker/weft-worker$'
says '^skipped +GPU +--device cpu$'
says '^[0-9]+ ok, [0-9]+ warnings?, 0 failures, 1 skipped$'
[ ! -e "$XDG_RUNTIME_DIR/weft" ] || fail "it leaves a directory"

run 1 --device cuda
says '^fail +CUDA .*WEFT_CUDA_LIBRARY'
says '^ +do: '
grep -q 'see CUDA above' "$tmp/err" || fail "stderr: $(cat "$tmp/err")"

WEFT_BIN_DIR="$tmp" run 1 --device cpu
says '^fail +weft-driver '

# The probes' own GPUs share nothing but what CUDA shares between processes.
export WEFT_CUDA_LIBRARY="$fakes"
run 0 --device cuda
says '^ok +CUDA .*runtime 13.0'
says '^ok +GPU 1 +Fake GPU'
says '^ok +peer access +between all 2 GPUs$'
says '^ok +IPC memory .*2 pairs'
says '^ok +stream memory operations +GPU 0: .*GPU 1: '
grep -qE '^(ok|warn) +copies from registered memory +GPU 0: ' "$tmp/out" || fail "copies: $(cat "$tmp/out")"
says '^warn +NCCL +the fake has no NCCL$'
says '^skipped +ipc or nccl +not measured: there is no NCCL to compare with; the default stays'

run 0 --device cuda --json
says '"gpus": 2,'
says '"verdict": "warn"'
CUDA_LAUNCH_BLOCKING=1 run 1 --device cuda --json
says 'CUDA_LAUNCH_BLOCKING=1'
pgrep -f "$weft doctor --probe" > /dev/null && fail "a probe is left"
run 2 --probe
[ "$failures" = 0 ] || exit 1
